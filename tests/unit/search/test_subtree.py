"""``same_subtree`` and groups without resources: what is above what, and in how many steps a search finds it."""

from __future__ import annotations

import itertools

import pytest

from placement.search import find_candidates
from placement.search.budget import Limit, SearchBudget
from placement.search.search_units import CandidateSet, SearchUnit
from placement.search.selection import ResponseSize
from placement.search.solver import subtree
from tests.support.search.cached import records_of, snapshot_of
from tests.support.search.oracle import RP, Group, Query, rp
from tests.support.search.topologies import request_of

NUMA = {'HW_NUMA_ROOT'}


def cells(count: int, devices: int, total: int = 1) -> list[RP]:
    """One host of some NUMA cells, each with some devices below it."""
    topology = [rp('host')]
    for cell in range(count):
        topology.append(rp(f'numa{cell}', 'host', traits={*NUMA, f'CUSTOM_{cell}'}))
        topology.extend(rp(f'd{cell}.{n}', f'numa{cell}', VGPU=total) for n in range(devices))
    return topology


def devices_of(amounts: list[int], policy: str, *subtrees: set[str]) -> Query:
    """Groups _0, _1, ... of a device each, and _N without resources; ``subtrees`` are values of ``same_subtree``."""
    groups = [Group(f'_{n}', {'VGPU': amount}) for n, amount in enumerate(amounts)]
    numa = [Group('_N', {}, NUMA)] if subtrees else []
    return Query([*groups, *numa], policy, None, 36, same_subtree=list(subtrees))


def all_of(devices: int) -> set[str]:
    return {'_N', *(f'_{n}' for n in range(devices))}


def find(topology: list[RP], query: Query, budget: SearchBudget | None = None) -> list[CandidateSet]:
    return list(find_candidates(snapshot_of(topology), request_of(query), budget or SearchBudget()).candidate_sets)


def test_positions_above_each_provider_of_a_tree_and_of_sharing_providers() -> None:
    root, a, b, c, store, child = records_of(
        [rp('root'), rp('a', 'root'), rp('b', 'a'), rp('c', 'root'), rp('s'), rp('t', 's')]
    )
    child.ancestors = frozenset({store.id})
    above = subtree.positions_above(SearchUnit((root, a, b, c), (store, child)))
    assert above == [0b1, 0b11, 0b111, 0b1001, 0b10000, 0b110000]


def test_a_loop_of_parents_in_a_damaged_database_ends() -> None:
    root, a, b = records_of([rp('root'), rp('a', 'root'), rp('b', 'a')])
    a.parent_id = b.id
    assert len(subtree.positions_above(SearchUnit((root, a, b), ()))) == 3


def test_mappings_count_for_the_size_of_an_answer() -> None:
    topology = [rp('root'), *(rp(f'd{n}', 'root', VGPU=1) for n in range(6))]
    query = devices_of([1, 1], 'isolate')
    sizes = []
    for count in range(1, 6):
        size = ResponseSize(request_of(query))
        for candidate in itertools.chain(*find(topology, query)[:count]):
            size.add_candidate(candidate)
        sizes.append(size.total)
        budget = SearchBudget(max_size=size.total)
        assert len(find(topology, query, budget)) == count
        assert budget.reached == {Limit.ANSWER_SIZE}
    # A candidate has two amounts of VGPU, and one provider for each of two groups.
    member = '"allocations":{"":{"resources":{"VGPU":1}},"":{"resources":{"VGPU":1}}}'
    length = len(f'{{{member},"mappings":{{"_0":[""],"_1":[""]}}}},') + 4 * 36
    assert all(abs(larger - smaller - length) < 10 for smaller, larger in itertools.pairwise(sizes))


PAIRS = [{f'_{a}', f'_{b}'} for a, b in itertools.combinations(range(20), 2)]
#: The first of two cells has to have six of eight groups, the second also six.
HALVES = devices_of([1] * 8, 'none', {'_N', *(f'_{n}' for n in range(6))}, {'_M', *(f'_{n}' for n in range(2, 8))})
HALVES.groups[8:] = [Group('_N', {}, {'CUSTOM_0'}), Group('_M', {}, {'CUSTOM_1'})]


@pytest.mark.parametrize(
    ('topology', 'query', 'max_steps'),
    [
        # Too few devices in each cell.
        (cells(2, 7), devices_of([1] * 8, 'isolate', all_of(8)), 4_000),
        (cells(16, 1), devices_of([1] * 8, 'isolate', all_of(8)), 32_000),
        # Each cell has room for seven groups of 3, and in all there is room for 14.
        (cells(2, 7, 5), devices_of([3] * 8, 'none', all_of(8)), 4_000),
        (cells(2, 8), HALVES, 4_000),
        (cells(8, 20), devices_of([1] * 20, 'isolate', *PAIRS), 200_000),
        # 79 of 80 units in all, but no distribution over four devices fits: not every order of the groups is tried.
        (
            [rp('root'), *(rp(f'd{n}', 'root', VGPU=20) for n in range(4))],
            devices_of([9, 10, 5, 12, 7, 7, 9, 4, 9, 7], 'none'),
            20_000,
        ),
    ],
)
def test_what_cannot_fit_is_rejected_in_few_steps(topology: list[RP], query: Query, max_steps: int) -> None:
    budget = SearchBudget()
    assert find(topology, query, budget) == []
    assert not budget.reached
    assert budget.steps_taken < max_steps


def test_a_wide_tree_of_possible_tops_takes_no_more_steps_than_a_tree_may() -> None:
    # Every device could be _N and _0; checking the subtree of each with each would take a million steps.
    topology = [rp('host'), *(rp(f'd{n}', 'host', VGPU=1) for n in range(1000))]
    query = devices_of([1, 1], 'isolate', {'_N', '_0', '_1'})
    query.groups[2], query.limit = Group('_N', {}), 1
    budget = SearchBudget()
    assert len(find(topology, query, budget)) == 1
    assert budget.steps_taken < 150_000


def test_search_with_remembered_states_finds_all_candidates() -> None:
    # There are enough dead ends that states are remembered, and a few candidates.
    topology = [rp('root'), *(rp(f'd{n}', 'root', VGPU=11) for n in range(4))]
    amounts = [6, 5, 5, 6, 7, 4, 8, 3]
    expected = {
        choice
        for choice in itertools.product(range(4), repeat=8)
        if all(sum(a for a, device in zip(amounts, choice, strict=True) if device == n) <= 11 for n in range(4))
    }
    candidates = find(topology, devices_of(amounts, 'none'))
    assert {tuple(id_ - 2 for (id_,) in candidate.mappings) for candidate in candidates} == expected
    assert len(candidates) == len(expected) > 0
