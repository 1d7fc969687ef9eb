"""What operators look at: trees, sums, and whether the database is usable. Nothing here writes."""
