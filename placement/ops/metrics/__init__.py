"""The metrics that are read from the database, at most once per interval."""
