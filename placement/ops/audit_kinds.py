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
    #: Whether requests to the service can cause them. Of the others, another program or a mixed backup is the cause.
    caused_by_requests: bool = False


#: The kinds in the order in which an audit checks and repairs them. A check takes into account what the repairs before
#: it change, so that an audit that repairs nothing finds the same.
KINDS: Mapping[str, Kind] = {
    'outdated_class_sequence': Kind('Outdated ids of resource classes'),
    'missing_reference': Kind('References to missing rows'),
    'invalid_tree': Kind('Invalid trees', is_quick=True),
    'orphaned_aggregate': Kind('Aggregates without providers', is_quick=True, caused_by_requests=True),
    'allocation_without_consumer': Kind('Allocations without a consumer'),
    'allocation_owner_mismatch': Kind('Allocations with a wrong owner'),
    'consumer_without_allocations': Kind('Consumers without allocations'),
    'allocation_without_inventory': Kind('Allocations without inventory'),
    'usage_mismatch': Kind('Usage mismatches'),
    'over_committed': Kind('Over-committed inventories', is_quick=True, caused_by_requests=True),
    'invalid_step_size': Kind('Step sizes below 1'),
    'unit_violation': Kind('Unit violations', is_informational=True, caused_by_requests=True),
}
