"""Unit tests: they start no process and no application."""
