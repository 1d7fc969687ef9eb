"""Policy rules of allocation candidates."""

from __future__ import annotations

from placement.policies import base

LIST = 'placement:allocation_candidates:list'

RULES = [
    base.rule(LIST, 'List the allocation candidates for a request.', ('GET', '/allocation_candidates')),
]
