"""Tests that send requests to the whole WSGI application."""
