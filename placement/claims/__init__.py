"""Claims: how allocations are written without exceeding any inventory. Begin with ``claim``."""
