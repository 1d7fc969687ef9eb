"""All lines of the table."""

from __future__ import annotations

from bench import compute, costs, reads, writes

LINES = [*costs.LINES, *reads.LINES, *writes.LINES, *compute.LINES]
