"""Adoption: how a database that another service filled becomes one of ours, in place."""
