"""The core of the search, prefilter and solver, against the brute-force oracle, over random topologies and queries."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement.cache.snapshot import Snapshot
from placement.search import assignments, find_candidates
from placement.search.budget import Limit, SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.search_units import CandidateSet
from placement.search.selection import AllocationCandidates, ResponseSize, max_entries
from placement.search.solver import backtracking
from tests.support.search.cached import find, single_trees, snapshot_of
from tests.support.search.oracle import RP, SHARES, Body, Entry, Oracle, Query, assert_candidates
from tests.support.search.random_queries import queries
from tests.support.search.topologies import (
    TRAITS,
    device_trees,
    request_of,
    thorough,
    tight_topologies,
    topologies,
)

CASES = st.tuples(topologies(), queries())


def search(snapshot: Snapshot, query: Query, budget: SearchBudget, alike: bool = True) -> Iterator[CandidateSet]:
    prefilter = Prefilter.for_request(snapshot, request_of(query), budget)
    units = prefilter.search_units() if alike else single_trees(prefilter.search_units())
    return assignments.find_candidate_sets(units, prefilter.compiled, budget)


def entries(snapshot: Snapshot, query: Query, candidate_sets: list[CandidateSet]) -> list[Entry]:
    """Candidates in the form of the oracle."""
    names = {provider.id: provider.name or '' for provider in snapshot.providers()}
    result = []
    for candidate in itertools.chain.from_iterable(candidate_sets):
        body = frozenset((names[id_], name, amount) for id_, name, amount in candidate.amounts)
        mapped = zip(query.groups, candidate.mappings, strict=True) if query.minor >= 34 else ()
        mappings = frozenset((group.number, frozenset(map(names.__getitem__, ids))) for group, ids in mapped)
        result.append(Entry(body, mappings if query.minor >= 34 else None))
    return result


@pytest.mark.parametrize('alike', [True, False])
@thorough(2400)
@given(st.one_of(*[CASES] * 5, device_trees()), st.sampled_from([1, 3, 100]))
def test_the_search_finds_what_the_oracle_finds(alike: bool, case: tuple[list[RP], Query], size: int) -> None:
    topology, query = case
    snapshot, oracle = snapshot_of(topology, size), Oracle(topology)
    candidate_sets = list(search(snapshot, query, SearchBudget(), alike))
    expected = oracle.entries(query)
    event(f'candidates: {min(len(expected), 4)}')
    assert_candidates(entries(snapshot, query, candidate_sets), expected)
    shown = AllocationCandidates(snapshot, request_of(query), candidate_sets).providers()
    summaries = oracle.summaries(query, {entry.body for entry in expected})
    assert {block.providers[row].name for block, rows in shown.items() for row in rows} == set(summaries)


@pytest.mark.parametrize('steps', [500, 0])
@thorough(300)
@given(case=tight_topologies())
def test_requests_that_just_fit_are_not_rejected(
    monkeypatch: pytest.MonkeyPatch, steps: int, case: tuple[list[RP], Query]
) -> None:
    # With 0 every partial assignment is checked as in a long search.
    monkeypatch.setattr(backtracking, '_STEPS_BEFORE_PRUNING', steps)
    topology, query = case
    bodies = find(snapshot_of(topology), query)
    assert_candidates(bodies, Oracle(topology).candidates(query))
    event('possible' if bodies else 'impossible')


@thorough(200)
@given(CASES, st.integers(1, 5), st.one_of(st.none(), st.integers()))
def test_a_limited_response_is_a_subset_of_the_right_size(
    case: tuple[list[RP], Query], limit: int, seed: int | None
) -> None:
    topology, query = case
    snapshot, request = snapshot_of(topology), replace(request_of(query), limit=limit)
    rng = None if seed is None else random.Random(seed)
    selected = entries(snapshot, query, list(find_candidates(snapshot, request, SearchBudget(), rng).candidate_sets))
    expected = Oracle(topology).entries(query)
    assert set(selected) <= expected
    assert len(selected) == len(set(selected)) == min(limit, len(expected))


@thorough(300)
@given(st.one_of(CASES, tight_topologies()), st.integers(0, 100), st.integers(1, 40))
def test_a_bound_that_is_not_reached_changes_nothing(
    case: tuple[list[RP], Query], percent: int, tree_steps: int
) -> None:
    snapshot, query = snapshot_of(case[0]), case[1]

    def candidates(budget: SearchBudget) -> list[Entry]:
        return entries(snapshot, query, list(search(snapshot, query, budget)))

    unbounded = SearchBudget()
    everything = candidates(unbounded)
    enough = SearchBudget(max_steps=unbounded.steps_taken)
    assert candidates(enough) == everything
    assert enough.reached == unbounded.reached == set()
    steps = unbounded.steps_taken * percent // 100
    for budget, limit in (
        (SearchBudget(max_steps=steps), Limit.REQUEST_STEPS),
        (SearchBudget(max_tree_steps=tree_steps), Limit.TREE_STEPS),
    ):
        some_candidates = candidates(budget)
        assert len(some_candidates) == len(set(some_candidates))
        assert set(some_candidates) <= set(everything)
        assert budget.reached <= {limit}
        assert budget.reached or len(some_candidates) == len(everything)
        event(f'{limit.name}: {bool(budget.reached)}')
        assert limit is Limit.TREE_STEPS or bool(budget.reached) == (steps < unbounded.steps_taken)


@thorough(200)
@given(CASES)
def test_the_size_of_a_response_counts_its_contents(case: tuple[list[RP], Query]) -> None:
    topology, query = case
    snapshot, request = snapshot_of(topology), request_of(query)
    candidates = list(itertools.chain.from_iterable(search(snapshot, query, SearchBudget())))
    size = ResponseSize(request)
    for candidate in candidates:
        size.add_candidate(candidate)
    shown = entries(snapshot, query, candidates)
    mapped = sum(len(providers) for entry in shown for _, providers in entry.mappings or ())
    bodies: set[Body] = {entry.body for entry in shown}
    holds = sum(len(entry.body) for entry in shown) + mapped + len(Oracle(topology).summaries(query, bodies))
    sharing = [rp for rp in topology if SHARES in rp.traits]
    assert size.total == holds or (sharing and query.minor >= 29)
    # The trees of sharing providers are not counted, and those that also serve their own tree count twice.
    assert size.total <= holds + len(sharing)
    assert size.total <= sum(max_entries(request) + candidate.search_unit.tree_size for candidate in candidates)


@st.composite
def nearly_equal_trees(draw: st.DrawFn) -> tuple[list[RP], Query]:
    """Some trees, and copies of them, of which one provider differs in one detail."""
    topology, query = draw(st.one_of(st.tuples(topologies(max_providers=4), queries()), CASES, device_trees()))
    # In other aggregates, each copy has its own sharing providers.
    aggregate = draw(st.sampled_from(['{}', '{} copied']))
    copies = [
        replace(
            rp,
            name=f'{rp.name} copied',
            parent=rp.parent and f'{rp.parent} copied',
            aggregates=set(map(aggregate.format, rp.aggregates)),
        )
        for rp in topology
    ]
    number = draw(st.integers(0, len(copies) - 1))
    rp = copies[number]
    details: list[dict[str, Any]] = [{'traits': rp.traits ^ {trait}} for trait in (*TRAITS, SHARES)]
    details += [
        {'inventory': {**rp.inventory, name: {**values, 'used': values['used'] + 1}}}
        for name, values in rp.inventory.items()
    ]
    details += [{'parent': other.name} for other in copies[:number] if rp.parent]
    copies[number] = replace(rp, **draw(st.sampled_from(details)))
    return [*topology, *copies], query


@thorough(500)
@given(nearly_equal_trees())
def test_only_trees_with_the_same_candidates_are_equivalent(case: tuple[list[RP], Query]) -> None:
    topology, query = case
    state = snapshot_of(topology)
    assert find(state, query) == find(state, query, alike=False)
    units = list(Prefilter.for_request(state, request_of(query)).search_units())
    event(f'equivalent: {sum(unit.count for unit in units) - len({unit.equivalence_key for unit in units})}')
