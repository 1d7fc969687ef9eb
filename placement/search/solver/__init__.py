"""The solver: assigns a provider to each requirement of a request at one search unit, in pure Python."""
