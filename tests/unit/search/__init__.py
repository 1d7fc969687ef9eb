"""Tests of the candidate search without application and database."""
