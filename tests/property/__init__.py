"""Tests on generated input."""
