"""Adoption: converts the database of another Placement service in place, and converts it back."""
