"""Answers of clouds with many equal hosts: the sets of the search against single trees and the oracle, in order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import event, given
from hypothesis import strategies as st

from placement.cache.snapshot import Snapshot
from placement.handlers import allocation_candidate as handler
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest
from placement.search.search_units import CandidateSet
from placement.search.selection import AllocationCandidates, select
from tests.support.search.cached import single_trees, snapshot_of
from tests.support.search.oracle import RP, SHARES, Oracle, Query, assert_candidates
from tests.support.search.random_queries import queries
from tests.support.search.topologies import request_of, root_of, thorough, topologies


@st.composite
def clouds(draw: st.DrawFn) -> list[RP]:
    """Hosts in a random order: many copies of a few trees, in some copies with full providers."""
    trees: dict[str, list[RP]] = {}
    kinds = draw(topologies(max_providers=4))
    parents = {rp.name: rp.parent for rp in kinds}
    for rp in kinds:
        trees.setdefault(root_of(rp.name, parents), []).append(rp)
    cloud = []
    order = draw(st.lists(st.tuples(st.sampled_from(sorted(trees)), st.integers(1, 4)), min_size=1, max_size=5))
    for number, kind in enumerate(itertools.chain.from_iterable([kind] * times for kind, times in order)):
        for rp in trees[kind]:
            full = draw(st.integers(0, 5)) == 0
            inventory = {
                name: inventory | {'used': inventory['total']} if full else dict(inventory)
                for name, inventory in rp.inventory.items()
            }
            parent = rp.parent and f'{rp.parent} {number}'
            cloud.append(replace(rp, name=f'{rp.name} {number}', parent=parent, inventory=inventory))
    return cloud


def answer(state: Snapshot, request: CandidateRequest, budget: SearchBudget, alike: bool = True) -> list[CandidateSet]:
    prefilter = Prefilter.for_request(state, request)
    units = prefilter.search_units() if alike else single_trees(prefilter.search_units())
    return select(find_candidate_sets(units, prefilter.compiled, budget), request, budget)


def model(request: CandidateRequest, candidates: Sequence[CandidateSet]) -> list[Any]:
    """The members of the answer, one candidate after the other."""
    written = []
    for candidate in itertools.chain.from_iterable(candidates):
        provider = candidate.search_unit.provider
        allocations: dict[str, Any] = {}
        for position, name, amount in candidate.assignment.amounts:
            allocations.setdefault(provider(position).uuid, {'resources': {}})['resources'][name] = amount
        written.append({'allocations': allocations})
        if request.with_mappings:
            mapped = zip(request.groups, candidate.assignment.mappings, strict=True)
            written[-1]['mappings'] = {
                group.suffix: [provider(position).uuid for position in positions] for group, positions in mapped
            }
    return written


@thorough(1500)
@given(clouds(), queries(), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 40)), st.data())
def test_candidate_sets_are_answered_like_single_trees(
    topology: list[RP], query: Query, size: int, limit: int | None, data: st.DataObject
) -> None:
    state, request = snapshot_of(topology, size * 3), replace(request_of(query), limit=limit)
    budget = data.draw(st.sampled_from([SearchBudget(), SearchBudget(max_candidates=5), SearchBudget(max_size=30)]))
    budget, of_single = replace(budget, reached=set()), replace(budget, reached=set())
    candidate_sets, single = answer(state, request, budget), answer(state, request, of_single, alike=False)
    assert all(len(candidate_set) == 1 for candidate_set in single)
    candidates = AllocationCandidates(state, request, candidate_sets)
    written = orjson.loads(b'[%b]' % b','.join(handler._allocation_requests(candidates, as_list=False)))
    expected = model(request, single)
    assert written == expected
    assert [list(candidate['allocations']) for candidate in written] == [
        list(candidate['allocations']) for candidate in expected
    ]
    assert budget.reached == of_single.reached
    assert candidates.providers() == AllocationCandidates(state, request, single).providers()
    event(f'candidates: {min(len(expected), 9)}, largest set: {min(max(map(len, candidate_sets), default=0), 5)}')


@thorough(800)
@given(clouds(), queries((10, 24, 28, 29, 32)), st.one_of(st.none(), st.integers(1, 30)))
def test_trees_take_turns_in_the_order_of_their_ids(topology: list[RP], query: Query, limit: int | None) -> None:
    """Without sharing providers the order of the trees follows from the number of candidates of each."""
    topology = [replace(rp, traits=rp.traits - {SHARES}) for rp in topology]
    expected = Oracle(topology).candidates(query)
    parents = {rp.name: rp.parent for rp in topology}
    names = {number: rp.name for number, rp in enumerate(topology, start=1)}
    counts = Counter(root_of(next(iter(body))[0], parents) for body in expected)
    roots = [rp.name for rp in topology if rp.parent is None]
    turns = [root for turn in range(max(counts.values(), default=0)) for root in roots if counts[root] > turn]
    state, request = snapshot_of(topology), replace(request_of(query), limit=limit)
    candidates = itertools.chain.from_iterable(answer(state, request, SearchBudget()))
    bodies = [
        frozenset((names[id_], name, amount) for id_, name, amount in candidate.amounts) for candidate in candidates
    ]
    assert [root_of(next(iter(body))[0], parents) for body in bodies] == turns[:limit]
    if limit is None:
        assert_candidates(bodies, expected)
    assert len(set(bodies)) == len(bodies)
    assert set(bodies) <= expected
