"""Equivalent trees are searched once, and trees that are not equivalent are not taken for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from placement.cache.snapshot import Snapshot
from placement.search import assignments
from placement.search.budget import SearchBudget
from placement.search.search_units import Assignment, SearchUnit
from tests.support.search.cached import find, prefilter_of, records_of, search, snapshot_of
from tests.support.search.oracle import RP, SHARES, Group, Oracle, Query, assert_candidates, record, rp
from tests.support.search.topologies import request_of

HOSTS = 1000

NODE_AND_MEMORY = Query([Group('', {'VCPU': 2, 'MEMORY_MB': 8})])
ISOLATED_NODES = Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], policy='isolate')
ANY_NODES = Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], policy='none')
NODE_AND_SHARED_DISK = Query([Group('', {'VCPU': 2, 'DISK_GB': 1})])


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


def tree(number: int, used: int = 0) -> list[RP]:
    """A host with memory and two NUMA nodes with VCPUs, in an aggregate with shared disks."""
    host = f'host{number}'
    nodes = [RP(f'{host} node{n}', host, {'VCPU': record(8, used=used)}) for n in range(2)]
    return [RP(host, None, {'MEMORY_MB': record(64, used=used)}, aggregates={'north'}), *nodes]


def cloud(*trees: list[RP]) -> Snapshot:
    disks = RP('disks', None, {'DISK_GB': record(10000)}, {SHARES}, {'north'})
    return snapshot_of([rp for members in trees for rp in members] + [disks])


def count(snapshot: Snapshot, query: Query) -> int:
    """The number of candidates."""
    return sum(map(len, search(snapshot, request_of(query), SearchBudget())))


@pytest.mark.parametrize(
    ('query', 'candidates_per_host'),
    [(NODE_AND_MEMORY, 2), (ISOLATED_NODES, 1), (ANY_NODES, 3), (NODE_AND_SHARED_DISK, 2)],
)
def test_hosts_with_enough_capacity_are_searched_once(
    searched: list[SearchUnit], query: Query, candidates_per_host: int
) -> None:
    hosts = cloud(*(tree(number, used=number % 5) for number in range(HOSTS)))
    assert count(hosts, query) == HOSTS * candidates_per_host
    assert len(searched) == 1


def test_hosts_with_capacity_for_different_sums_are_searched_separately(searched: list[SearchUnit]) -> None:
    """With 5 used a node has room for one of the groups, with up to 4 for both."""
    hosts = cloud(*(tree(number, used=number % 6) for number in range(60)))
    assert count(hosts, ANY_NODES) == 50 * 3 + 10 * 1
    assert len(searched) == 2


@pytest.mark.parametrize(('position', 'trait'), [(0, SHARES), (0, 'CUSTOM_RED'), (1, 'CUSTOM_RED')])
def test_what_the_request_does_not_ask_for_causes_no_extra_search(
    searched: list[SearchUnit], position: int, trait: str
) -> None:
    """Traits, classes that are not requested, and the usage of a provider that has too little capacity anyway."""
    trees = [[*tree(n), RP(f'host{n} small', f'host{n}', {'VCPU': record(1)})] for n in range(HOSTS)]
    for members in trees[::2]:
        members[position].traits.add(trait)
        members[0].inventory['MEMORY_MB']['used'] = 1
        members[3].inventory['VCPU']['used'] = 1
    assert count(cloud(*trees), ANY_NODES) == HOSTS * 3
    assert len(searched) == 1


def test_candidates_of_a_sharing_provider_alone_are_found_in_its_own_tree(searched: list[SearchUnit]) -> None:
    """Not in each tree that it reaches: hosts without disks are not searched, and those with disks use their own."""
    request = Query([Group('', {'DISK_GB': 1})])
    assert count(cloud(*(tree(number) for number in range(HOSTS))), request) == 1
    assert len(searched) == 1
    prefilter = prefilter_of(cloud([rp('host', None, 'north', DISK_GB=8)]), request_of(request))
    units = list(prefilter.search_units())
    found_at = [list(assignments.find_assignments(unit, prefilter.compiled, SearchBudget())) for unit in units]
    assert list(map(len, found_at)) == [1, 1]


# Trees that differ in one thing. Whichever is searched first, the other must not get its assignments.


def disk(name: str, aggregate: str, shares: bool = True, parent: str | None = None, total: int = 100) -> RP:
    return rp(name, parent, aggregate, shares=shares, DISK_GB=total)


def memory(name: str, aggregate: str, parent: str | None = None) -> RP:
    return rp(name, parent, aggregate, shares=True, MEMORY_MB=100)


#: One provider for both groups, or one below the other.
BELOW = Query(
    [Group('_A', {'DISK_GB': 1}), Group('_B', {'MEMORY_MB': 1})], 'none', minor=36, same_subtree=[{'_A', '_B'}]
)


@pytest.mark.parametrize('reverse', [False, True])
@pytest.mark.parametrize(
    ('trees', 'query'),
    [
        (
            # Two sharing providers that together meet the request are found from both, and are one candidate.
            [
                [disk('plain', 'north', shares=False)],
                *([disk(name, 'south' if name else 'north')] for name in ('', 'two', 'three')),
            ],
            Query([Group('1', {'DISK_GB': 1}), Group('2', {'DISK_GB': 1})], policy='none'),
        ),
        (
            # Below 1.29 no candidate has two providers of one tree.
            [
                *([rp(f'host {name}', None, name, VCPU=8)] for name in ('north', 'south')),
                [rp('rack'), disk('disk of rack', 'north', parent='rack'), memory('memory of rack', 'north', 'rack')],
                *([disk('disk', 'south')], [memory('memory', 'south')]),
            ],
            Query([Group('', {'VCPU': 1, 'DISK_GB': 1, 'MEMORY_MB': 1})], minor=28),
        ),
        (
            # Another tree of the same aggregate can use one sharing provider more.
            [
                *(
                    [rp(f'host {name}', None, 'north', VCPU=8), disk(f'disk of {name}', name, parent=f'host {name}')]
                    for name in ('north', '')
                ),
                [disk('disks', 'north')],
            ],
            Query([Group('', {'VCPU': 1, 'DISK_GB': 1})]),
        ),
        (
            # The first disk suffices for one host, the second one for the other.
            [
                *([rp(f'host {name}', None, name, VCPU=1)] for name in ('north', 'south')),
                *([disk(f'{total} of north', 'north', total=total)] for total in (5, 1)),
                *([disk(f'{total} of south', 'south', total=total)] for total in (1, 5)),
            ],
            Query([Group('', {'VCPU': 1, 'DISK_GB': 5})]),
        ),
        (
            # The disk of one host suffices for both groups, that of the other for either.
            [
                *([rp(f'host {name}', None, name, VCPU=1)] for name in ('north', 'south')),
                *([disk(f'disk of {name}', name, total=total)] for name, total in (('north', 15), ('south', 10))),
            ],
            Query([Group('', {'VCPU': 1, 'DISK_GB': 7}), Group('1', {'DISK_GB': 8})]),
        ),
        (
            # The sharing providers of one host are one below the other.
            [
                *([rp(f'host {name}', None, name, VCPU=8)] for name in ('north', 'south')),
                [disk('disk', 'north'), memory('memory', 'north', parent='disk')],
                *([disk('disk 2', 'south')], [memory('memory 2', 'south')]),
            ],
            replace(BELOW, groups=[Group('', {'VCPU': 1}), *BELOW.groups]),
        ),
        (
            [
                [rp('a'), rp('a1', 'a', DISK_GB=1), rp('a2', 'a1', MEMORY_MB=1)],
                [rp('b'), rp('b1', 'b', DISK_GB=1), rp('b2', 'b', MEMORY_MB=1)],
            ],
            BELOW,
        ),
    ],
)
def test_trees_that_differ_in_one_thing_are_searched_separately(
    trees: list[list[RP]], query: Query, reverse: bool
) -> None:
    topology = [rp for members in (trees[::-1] if reverse else trees) for rp in members]
    expected = Oracle(topology).candidates(query)
    assert expected
    assert_candidates(find(snapshot_of(topology), query), expected)


def test_a_provider_whose_root_is_no_root_is_known_and_not_searched() -> None:
    """Only a damaged database has a provider whose root has another root itself."""
    names = snapshot_of([]).names
    host, child, orphan = records_of([rp('host', VCPU=8), rp('child', 'host'), rp('lost', VCPU=8)])
    damaged = Snapshot.build(names, [host, child, replace(orphan, root_id=child.id)])
    assert find(damaged, Query([Group('', {'VCPU': 1})])) == [frozenset({('host', 'VCPU', 1)})]
    assert damaged.find_provider(orphan.uuid) is not None
