"""How often a search walks: once for each shape of tree, however many trees there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement.candidates.budget import Budget
from placement.candidates.rows import Anchor
from placement.candidates.search import Finder, search
from placement.candidates.sites import Placement
from placement.mirror.matching import Matching
from placement.mirror.state import State
from tests.property.candidates_oracle import RP, SHARES, Group, Query, record
from tests.property.candidates_worlds import request_of
from tests.property.test_mirror_search import NAMES
from tests.property.test_mirror_state import records_of

HOSTS = 1000

NODE_AND_MEMORY = Query([Group('', {'VCPU': 2, 'MEMORY_MB': 8})])
TWO_OF_TWO_NODES = Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], policy='isolate')
ANYWHERE_TWICE = Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], policy='none')
FROM_SHARED_DISKS = Query([Group('', {'VCPU': 2, 'DISK_GB': 1})])


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[Anchor]:
    """The anchors that were walked."""
    walked: list[Anchor] = []
    placements = Finder.placements

    def noted(self: Finder, anchor: Anchor) -> Iterator[Placement | None]:
        walked.append(anchor)
        return placements(self, anchor)

    monkeypatch.setattr(Finder, 'placements', noted)
    return walked


def tree(number: int, used: int = 0, traits: frozenset[str] = frozenset()) -> list[RP]:
    """A host with memory and two NUMA nodes with VCPUs, on shared disks."""
    host = f'host{number}'
    nodes = [RP(f'{host} node{one}', host, {'VCPU': record(8, used=used)}, set(traits)) for one in range(2)]
    return [RP(host, None, {'MEMORY_MB': record(64, used=used)}, aggregates={'north'}), *nodes]


def state(*trees: list[RP]) -> State:
    disks = RP('disks', None, {'DISK_GB': record(10000)}, {SHARES}, {'north'})
    return State.of(NAMES, records_of([rp for one in trees for rp in one] + [disks]))


def count(of: State, query: Query) -> int:
    """How many candidates there are."""
    request = request_of(query)
    return sum(1 for _ in search(Matching(of, request).sites(), request, Budget()))


@pytest.mark.parametrize(
    ('query', 'each'), [(NODE_AND_MEMORY, 2), (TWO_OF_TWO_NODES, 1), (ANYWHERE_TWICE, 3), (FROM_SHARED_DISKS, 2)]
)
def test_hosts_that_are_alike_take_one_walk(walks: list[Anchor], query: Query, each: int) -> None:
    assert count(state(*(tree(number) for number in range(HOSTS))), query) == HOSTS * each
    assert len(walks) == 1


@pytest.mark.parametrize(('query', 'each'), [(NODE_AND_MEMORY, 2), (FROM_SHARED_DISKS, 2)])
def test_usage_that_leaves_room_makes_no_difference(walks: list[Anchor], query: Query, each: int) -> None:
    assert count(state(*(tree(number, used=number % 5) for number in range(HOSTS))), query) == HOSTS * each
    assert len(walks) == 1


def test_room_for_sums_does(walks: list[Anchor]) -> None:
    """With 5 used one node takes one of the groups, with up to 4 both."""
    mixed = state(*(tree(number, used=number % 6) for number in range(60)))
    assert count(mixed, ANYWHERE_TWICE) == 50 * 3 + 10 * 1
    assert 2 <= len(walks) <= 6


def test_what_the_request_does_not_name_makes_no_difference(walks: list[Anchor]) -> None:
    names = (frozenset[str](), frozenset(['CUSTOM_RED']))
    several = state(*(tree(number, traits=names[number % 2]) for number in range(HOSTS)))
    assert count(several, NODE_AND_MEMORY) == HOSTS * 2
    assert len(walks) == 1
    walks.clear()
    red = Query([Group('', {'VCPU': 2}, required={'CUSTOM_RED'})])
    assert count(several, red) == HOSTS
    assert len(walks) == 1


def test_hosts_without_room_are_not_walked(walks: list[Anchor]) -> None:
    full = state(*(tree(number, used=8) for number in range(HOSTS)))
    assert count(full, NODE_AND_MEMORY) == 0
    assert walks == []
