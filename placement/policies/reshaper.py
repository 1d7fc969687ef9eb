"""Policy rules of the reshaper."""

from __future__ import annotations

from placement.policies import base

RESHAPE = 'placement:reshaper:reshape'

RULES = [
    base.rule(RESHAPE, 'Replace inventories and allocations in one change.', ('POST', '/reshaper')),
]
