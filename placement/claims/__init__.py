"""Writes allocations and keeps them from exceeding an inventory. Begin with ``claim``."""
