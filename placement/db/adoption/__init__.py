"""Adoption: taking over the database of another Placement service, in place, and giving it back."""
