"""What operators look at, as plain data: trees, sums, why a search finds nothing. Nothing here writes or prints."""
