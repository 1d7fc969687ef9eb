"""The kinds of findings of an audit, and what becomes of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """What all findings of a check have in common."""

    #: Their heading on the page.
    heading: str
    #: Whether the page runs the check by default: what operators look at most, on trees and capacity.
    runs_by_default: bool = False
    #: Whether findings are for the information of operators: nobody has to change anything, and ``placement-manage
    #: audit`` exits with 0. With findings of other kinds, it exits with 3 or 4.
    for_information: bool = False
    #: Whether requests to the service can cause them. Of the others, another program or a mixed backup is the cause.
    requests_can_cause: bool = False


#: The kinds in the order in which an audit checks, repairs and prints them. A check comes after the repairs that change
#: what it finds, and takes them into account, so that an audit that repairs nothing finds the same.
KINDS: Mapping[str, Kind] = {
    'outdated_class_sequence': Kind('Outdated ids of resource classes'),
    'missing_reference': Kind('References to missing rows'),
    'invalid_tree': Kind('Invalid trees', runs_by_default=True),
    'orphaned_aggregate': Kind('Aggregates without providers', runs_by_default=True, requests_can_cause=True),
    'allocation_without_consumer': Kind('Allocations without a consumer'),
    'allocation_owner_mismatch': Kind('Allocations with a wrong owner'),
    'consumer_without_allocations': Kind('Consumers without allocations'),
    'allocation_without_inventory': Kind('Allocations without inventory'),
    'usage_mismatch': Kind('Usage mismatches'),
    'over_committed': Kind('Over-committed inventories', runs_by_default=True, requests_can_cause=True),
    'invalid_inventory': Kind('Inventories that no request can store'),
    'unit_violation': Kind('Unit violations', for_information=True, requests_can_cause=True),
}


class Outcome(enum.Enum):
    """What became of a finding, in the words of the command."""

    #: No repair was tried, or an operator has to decide.
    UNCHANGED = 'not repaired'
    REPAIRED = 'repaired'
    #: Concurrent writes made all attempts to repair it fail.
    FAILED = 'not repaired because of concurrent writes: run it again'
    #: The database rejected the repair.
    REJECTED = 'not repaired because it refers to a missing row: run it again'
    #: Right before the repair, the data had become consistent.
    VANISHED = 'no longer found when it was to be repaired'
