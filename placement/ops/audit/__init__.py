"""Checks of the data in the database, and their repairs."""
