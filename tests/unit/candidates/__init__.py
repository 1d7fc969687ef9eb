"""Tests of the candidate search alone."""
