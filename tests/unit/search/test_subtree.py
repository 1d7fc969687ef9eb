"""``same_subtree``, groups without resources and mappings: what is found, and in how many steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest

from placement.search.budget import Limit, SearchBudget, StepCounter
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.requirements import compile_request
from placement.search.search_units import CandidateSet, SearchUnit
from placement.search.selection import select
from placement.search.solver import subtree
from tests.support.search.oracle import RP, rp
from tests.support.search.topologies import Rows, search

NUMA = frozenset({'HW_NUMA_ROOT'})


def cells(count: int, devices: int, total: int = 1) -> list[RP]:
    """One host of some NUMA cells, each with some devices below it."""
    topology = [rp('host')]
    for cell in range(count):
        topology.append(rp(f'numa{cell}', 'host', traits=NUMA, VCPU=8))
        topology.extend(rp(f'd{cell}.{n}', f'numa{cell}', VGPU=total) for n in range(devices))
    return topology


def request(devices: int, policy: str = 'none', *subtrees: str, amount: int = 1) -> CandidateRequest:
    """Groups _0, _1, ... of one device each, and _N without resources; ``subtrees`` are values of ``same_subtree``."""
    groups = [RequestGroup(f'_{n}', True, {'VGPU': amount}) for n in range(devices)]
    if subtrees:
        groups.append(RequestGroup('_N', True, {}, required=NUMA))
    conditions = tuple(frozenset(subtree.split(',')) for subtree in subtrees)
    return CandidateRequest(tuple(groups), policy, same_subtree=conditions, with_mappings=True)


def all_of(devices: int) -> str:
    return ','.join(['_N', *(f'_{n}' for n in range(devices))])


def find(topology: Iterable[RP], query: CandidateRequest, budget: SearchBudget) -> list[CandidateSet]:
    return select(search(Rows(list(topology)).search_units(), compile_request(query), budget), query, budget)


def mapped(topology: list[RP], candidate: CandidateSet) -> list[tuple[str, ...]]:
    return [tuple(topology[id_ - 1].name for id_ in ids) for ids in candidate.mappings]


# What is above what ---------------------------------------------------------------------------------------------


def test_positions_above_each_provider_of_a_tree_and_of_sharing_providers() -> None:
    rows = Rows([rp('root'), rp('a', 'root'), rp('b', 'a'), rp('c', 'root'), rp('s'), rp('t', 's')])
    tree = [rows.providers[name] for name in ('root', 'a', 'b', 'c')]
    store, child = rows.providers['s'], rows.providers['t']
    child.ancestors = frozenset({store.id})
    assert subtree.positions_above(SearchUnit(tuple(tree), (store, child))) == [
        0b1,
        0b11,
        0b111,
        0b1001,
        0b10000,
        0b110000,
    ]


def test_a_loop_of_parents_in_a_damaged_database_ends() -> None:
    rows = Rows([rp('root'), rp('a', 'root'), rp('b', 'a')])
    rows.providers['a'].parent_id = rows.providers['b'].id
    assert len(subtree.positions_above(SearchUnit(tuple(rows.providers.values()), ()))) == 3


def test_options_outside_of_every_subtree_are_removed() -> None:
    # 0 is the root of 1 and 2; 3 is below 1.
    above = [0b1, 0b11, 0b101, 0b1011]
    meter = StepCounter(SearchBudget())
    domains: list[tuple[int, ...]] = [(1, 2), (3,)]
    [condition] = subtree.narrow([[0, 1]], domains, above, meter) or []
    assert (domains, condition.tops) == ([(1,), (3,)], 0b10)
    assert subtree.narrow([[0, 1]], [(2,), (3,)], above, meter) is None
    # What one condition removes, another one has to do without.
    assert subtree.narrow([[0, 1], [1, 2]], [(1,), (2, 3), (2,)], above, meter) is None


# What is found --------------------------------------------------------------------------------------------------


def test_a_group_without_resources_is_mapped_and_supplies_nothing() -> None:
    topology = cells(2, 1)
    query = request(1, 'none', '_N,_0')
    candidates = find(topology, query, SearchBudget())
    assert [mapped(topology, candidate) for candidate in candidates] == [
        [('d0.0',), ('numa0',)],
        [('d1.0',), ('numa1',)],
    ]
    assert all(len(candidate.amounts) == 1 for candidate in candidates)


def test_a_common_ancestor_that_serves_no_group_is_not_enough() -> None:
    query = request(2, 'isolate', '_N', '_0,_1')
    assert find(cells(1, 2), query, SearchBudget()) == []


def test_isolated_groups_without_resources_have_providers_of_their_own() -> None:
    topology = cells(2, 1)
    query = request(1, 'isolate', '_N,_0')
    two = replace(query, groups=(*query.groups, RequestGroup('_M', True, {}, required=NUMA)))
    assert len(find(topology, replace(two, same_subtree=(*two.same_subtree, frozenset({'_M'}))), SearchBudget())) == 2
    assert len(find(topology, replace(two, group_policy='none'), SearchBudget())) == 4


def test_without_mappings_exchanged_groups_are_one_candidate() -> None:
    query = request(2)
    assert len(find(cells(1, 3), query, SearchBudget())) == 6
    assert len(find(cells(1, 3), replace(query, with_mappings=False), SearchBudget())) == 3


def test_mappings_count_for_the_size_of_an_answer() -> None:
    # The summaries of 7 providers, and 2 amounts and 2 mappings for each candidate.
    query = request(2, 'isolate')
    topology = [rp('root'), *(rp(f'd{n}', 'root', VGPU=1) for n in range(6))]
    budget = SearchBudget(max_size=7 + 4 * 5)
    assert len(find(topology, query, budget)) == 5
    assert budget.reached == {Limit.RESPONSE_SIZE}


# In how many steps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize('policy', ['none', 'isolate'])
def test_as_many_assignments_are_tried_as_the_limit_takes(policy: str) -> None:
    budget = SearchBudget()
    topology = [rp('root'), *(rp(f'd{n}', 'root', VGPU=8) for n in range(16))]
    candidates = find(topology, replace(request(8, policy), limit=1000), budget)
    assert len({(candidate.amounts, candidate.mappings) for candidate in candidates}) == len(candidates) == 1000
    assert budget.steps_taken < 25_000


@pytest.mark.parametrize(('count', 'devices'), [(2, 7), (4, 4), (16, 1)])
def test_a_subtree_with_too_few_devices_is_rejected_at_once(count: int, devices: int) -> None:
    budget = SearchBudget()
    assert find(cells(count, devices), request(8, 'isolate', all_of(8)), budget) == []
    assert budget.steps_taken < 2_000 * count
    assert find(cells(count, 8), request(8, 'isolate', all_of(8)), SearchBudget(max_candidates=1))


def test_a_subtree_with_too_little_room_is_rejected_at_once() -> None:
    # Each cell has room for seven groups of 3, and in all there is room for 14.
    budget = SearchBudget()
    assert find(cells(2, 7, 5), request(8, 'none', all_of(8), amount=3), budget) == []
    assert budget.steps_taken < 4_000


def test_subtrees_that_exclude_one_another_are_rejected_at_once() -> None:
    # Two cells of eight devices, of which four groups have to be in both.
    topology = cells(2, 8)
    groups = [*request(8).groups, *(RequestGroup(f'_N{n}', True, {}, NUMA | {f'CUSTOM_{n}'}) for n in range(2))]
    for cell in range(2):
        topology[1 + 9 * cell].traits.add(f'CUSTOM_{cell}')
    halves = (','.join(['_N0', *(f'_{n}' for n in range(6))]), ','.join(['_N1', *(f'_{n}' for n in range(2, 8))]))
    conditions = tuple(frozenset(half.split(',')) for half in halves)
    budget = SearchBudget()
    query = CandidateRequest(tuple(groups), 'none', same_subtree=conditions, with_mappings=True)
    assert find(topology, query, budget) == []
    assert budget.steps_taken < 2_000


def test_a_wide_tree_of_possible_tops_takes_no_more_steps_than_a_tree_may() -> None:
    # Every device could be _N and _0; checking the subtree of each with each would take a million steps.
    topology = [rp('host'), *(rp(f'd{n}', 'host', VGPU=1) for n in range(1000))]
    query = request(2, 'isolate', '_N,_0,_1')
    query = replace(query, groups=(*query.groups[:2], RequestGroup('_N', True, {})), limit=1)
    budget = SearchBudget()
    assert len(find(topology, query, budget)) == 1
    assert budget.steps_taken < 150_000


def test_many_conditions_that_exclude_one_another_are_rejected_at_once() -> None:
    pairs = [f'_{a},_{b}' for a, b in itertools.combinations(range(20), 2)]
    budget = SearchBudget()
    assert find(cells(8, 20), request(20, 'isolate', *pairs), budget) == []
    assert len(pairs) * 160 < budget.steps_taken < 200_000


def test_states_that_lead_to_nothing_are_not_tried_in_every_order() -> None:
    # 79 of 80 units in all, but no distribution over four devices fits, which no check of the whole tree shows.
    topology = [rp('root'), *(rp(f'd{n}', 'root', VGPU=20) for n in range(4))]
    amounts = [9, 10, 5, 12, 7, 7, 9, 4, 9, 7]
    groups = [RequestGroup(f'_{n}', True, {'VGPU': amount}) for n, amount in enumerate(amounts)]
    budget = SearchBudget()
    assert find(topology, CandidateRequest(tuple(groups), 'none', with_mappings=True), budget) == []
    assert not budget.reached
    assert budget.steps_taken < 20_000


def test_search_with_remembered_states_finds_all_candidates() -> None:
    # There are enough dead ends that states are remembered, and a few candidates.
    topology = [rp('root'), *(rp(f'd{n}', 'root', VGPU=11) for n in range(4))]
    amounts = [6, 5, 5, 6, 7, 4, 8, 3]
    groups = [RequestGroup(f'_{n}', True, {'VGPU': amount}) for n, amount in enumerate(amounts)]
    query = CandidateRequest(tuple(groups), 'none', with_mappings=True)
    expected = {
        choice
        for choice in itertools.product(range(4), repeat=8)
        if all(sum(a for a, device in zip(amounts, choice, strict=True) if device == n) <= 11 for n in range(4))
    }
    candidates = find(topology, query, SearchBudget())
    assert {tuple(id_ - 2 for (id_,) in candidate.mappings) for candidate in candidates} == expected
    assert len(candidates) == len(expected) > 0
