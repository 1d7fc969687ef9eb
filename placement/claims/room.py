"""The capacity part of the room rule (contract B 1.3) as SQL on a row of ``inventories``."""

from __future__ import annotations

from placement.db import tables

_inv = tables.inventories.c

#: How much may be used in all, as a double and not truncated.
CAPACITY = (_inv.total - _inv.reserved) * _inv.allocation_ratio
