"""Reports for operators, as plain data: provider trees, sums, consumers. Nothing here prints."""
