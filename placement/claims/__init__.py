"""Writes allocations without exceeding any inventory. Begin with ``claim``."""
