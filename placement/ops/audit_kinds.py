"""The kinds of findings of an audit, without their checks, so that the command line need not import these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """What all findings of a check have in common."""

    #: Their heading on the page.
    heading: str
    #: Whether the page runs the check by default: those of the tree, of capacity, and of what is cheap.
    is_quick: bool = False
    #: Whether they are for information, so that nobody has to act.
    is_informational: bool = False


#: The kinds in the order of ``audit.CHECKS``.
KINDS: Mapping[str, Kind] = {
    'outdated_class_sequence': Kind('Outdated ids of resource classes'),
    'missing_reference': Kind('References to missing rows'),
    'invalid_tree': Kind('Invalid trees', is_quick=True),
    'orphaned_aggregate': Kind('Aggregates without providers', is_quick=True),
    'allocation_without_consumer': Kind('Allocations without a consumer'),
    'allocation_owner_mismatch': Kind('Allocations with a wrong owner'),
    'consumer_without_allocations': Kind('Consumers without allocations'),
    'allocation_without_inventory': Kind('Allocations without inventory'),
    'usage_mismatch': Kind('Usage mismatches'),
    'over_committed': Kind('Over-committed inventories', is_quick=True),
    'invalid_step_size': Kind('Step sizes below 1'),
    'unit_violation': Kind('Unit violations', is_informational=True),
}
