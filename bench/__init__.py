"""The benchmark: fills databases, drives placement-api over HTTP, and prints what each work costs beside its floor."""
