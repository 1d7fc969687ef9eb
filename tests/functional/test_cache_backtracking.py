"""The number of trees that a search tries: one of each shape, however many trees there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from placement.cache.snapshot import Snapshot
from placement.search import assignments
from placement.search.assignments import search
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.search_units import Assignment, SearchUnit
from tests.support.search.cached import NAMES, find, records_of
from tests.support.search.oracle import RP, SHARES, Group, Query, record
from tests.support.search.topologies import request_of

HOSTS = 1000

NODE_AND_MEMORY = Query([Group('', {'VCPU': 2, 'MEMORY_MB': 8})])
TWO_OF_TWO_NODES = Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], policy='isolate')
ANYWHERE_TWICE = Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], policy='none')
FROM_SHARED_DISKS = Query([Group('', {'VCPU': 2, 'DISK_GB': 1})])


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[SearchUnit]:
    """The search units whose assignments were computed."""
    units: list[SearchUnit] = []
    find_assignments = assignments.find_assignments

    def noted(search_unit: SearchUnit, *arguments: Any) -> Iterator[Assignment | None]:
        units.append(search_unit)
        return find_assignments(search_unit, *arguments)

    monkeypatch.setattr(assignments, 'find_assignments', noted)
    return units


def tree(number: int, used: int = 0, traits: frozenset[str] = frozenset()) -> list[RP]:
    """A host with memory and two NUMA nodes with VCPUs, in an aggregate with shared disks."""
    host = f'host{number}'
    nodes = [RP(f'{host} node{n}', host, {'VCPU': record(8, used=used)}, set(traits)) for n in range(2)]
    return [RP(host, None, {'MEMORY_MB': record(64, used=used)}, aggregates={'north'}), *nodes]


def state(*trees: list[RP]) -> Snapshot:
    disks = RP('disks', None, {'DISK_GB': record(10000)}, {SHARES}, {'north'})
    return Snapshot.build(NAMES, records_of([rp for members in trees for rp in members] + [disks]))


def count(of: Snapshot, query: Query) -> int:
    """The number of candidates."""
    prefilter = Prefilter(of, request_of(query))
    return sum(map(len, search(prefilter.search_units(), prefilter.compiled, SearchBudget())))


@pytest.mark.parametrize(
    ('query', 'candidates_per_host'),
    [(NODE_AND_MEMORY, 2), (TWO_OF_TWO_NODES, 1), (ANYWHERE_TWICE, 3), (FROM_SHARED_DISKS, 2)],
)
def test_hosts_of_one_shape_are_searched_once(
    searched: list[SearchUnit], query: Query, candidates_per_host: int
) -> None:
    assert count(state(*(tree(number) for number in range(HOSTS))), query) == HOSTS * candidates_per_host
    assert len(searched) == 1


@pytest.mark.parametrize(('query', 'candidates_per_host'), [(NODE_AND_MEMORY, 2), (FROM_SHARED_DISKS, 2)])
def test_hosts_with_different_usage_that_leaves_room_are_searched_once(
    searched: list[SearchUnit], query: Query, candidates_per_host: int
) -> None:
    assert (
        count(state(*(tree(number, used=number % 5) for number in range(HOSTS))), query) == HOSTS * candidates_per_host
    )
    assert len(searched) == 1


def test_hosts_with_room_for_different_sums_are_searched_several_times(searched: list[SearchUnit]) -> None:
    """With 5 used a node has room for one of the groups, with up to 4 for both."""
    mixed = state(*(tree(number, used=number % 6) for number in range(60)))
    assert count(mixed, ANYWHERE_TWICE) == 50 * 3 + 10 * 1
    assert 2 <= len(searched) <= 6


def test_a_provider_whose_root_is_no_root_is_known_and_not_searched() -> None:
    """Only a damaged database has a provider whose root has another root itself."""
    vcpu = {'VCPU': record(8)}
    host, child, orphan = records_of([RP('host', None, vcpu), RP('child', 'host'), RP('lost', None, vcpu)])
    damaged = Snapshot.build(NAMES, [host, child, replace(orphan, root_id=child.id)])
    assert find(damaged, Query([Group('', {'VCPU': 1})])) == [frozenset({('host', 'VCPU', 1)})]
    assert damaged.find_provider(orphan.uuid) is not None
