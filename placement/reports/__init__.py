"""Reports for operators, as plain data: provider trees, sums, why a search finds nothing. Nothing here prints."""
