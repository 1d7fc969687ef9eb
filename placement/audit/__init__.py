"""Checks of what the database holds, and their repairs."""
