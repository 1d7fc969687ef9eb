"""The benchmark: fills databases, sends requests to placement-api, and prints the cost of each line and its floor."""
