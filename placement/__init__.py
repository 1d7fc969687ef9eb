"""Placement: what a cloud has, who uses it, and who could host more."""
