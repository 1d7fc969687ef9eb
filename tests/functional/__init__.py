"""Tests that drive the whole application through its WSGI door."""
