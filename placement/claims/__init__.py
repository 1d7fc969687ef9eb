"""Writes allocations and prevents that they exceed an inventory. Begin with ``claim``."""
