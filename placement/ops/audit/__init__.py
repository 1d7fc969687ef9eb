"""The audit: checks that find rows that contradict one another or are invalid, and the repairs of what they find."""
