"""The search against the brute-force oracle, over random topologies and queries."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement.search.assignments import with_streams
from placement.search.budget import Limit, SearchBudget
from placement.search.requirements import compile_request
from placement.search.selection import ResponseSize, max_entries, select
from placement.search.solver import backtracking
from placement.search.solver.variables import Reason, Rejections
from tests.support.search.oracle import RP, SHARES, Oracle, Query, assert_candidates
from tests.support.search.topologies import (
    MINORS,
    Rows,
    queries,
    request_of,
    search,
    thorough,
    tight_topologies,
    topologies,
    with_bits,
    with_key,
)


@thorough(200)
@given(topologies(max_providers=4), queries((28, 29)), st.randoms(use_true_random=False))
def test_order_of_anchors_groups_and_providers_does_not_matter(
    topology: list[RP], query: Query, rng: random.Random
) -> None:
    rows = Rows(topology)
    search_units = rows.search_units()
    rng.shuffle(search_units)
    rng.shuffle(query.groups)
    candidates = search(search_units, compile_request(request_of(query)), SearchBudget())
    assert_candidates(rows.bodies(candidates), Oracle(topology).candidates(query))


@thorough(400)
@given(topologies(max_providers=4), queries(MINORS))
def test_trees_of_one_shape_share_a_stream(topology: list[RP], query: Query) -> None:
    topology = [
        *topology,
        *(replace(rp, name=f'{rp.name}-b', parent=rp.parent and f'{rp.parent}-b') for rp in topology),
    ]
    rows, request = Rows(topology), request_of(query)
    search_units = [with_key(unit, request) for unit in rows.search_units()]
    compiled = compile_request(request)
    candidates = search(search_units, compiled, SearchBudget())
    assert_candidates(rows.bodies(candidates), Oracle(topology).candidates(query))
    event(f'searches spared: {len(search_units) - len({unit.equivalence_key for unit in search_units})}')
    searched = list(with_bits(search_units, compiled))
    streams = {stream for _, stream in with_streams(searched, compiled, SearchBudget())}
    assert len(streams) == len({unit.equivalence_key for unit in searched})


@pytest.mark.parametrize('steps', [500, 0])
@thorough(300)
@given(tight_topologies())
def test_requests_that_just_fit_are_not_rejected(
    monkeypatch: pytest.MonkeyPatch, steps: int, case: tuple[list[RP], Query]
) -> None:
    # With 0 every partial assignment is checked as in a long search.
    monkeypatch.setattr(backtracking, '_STEPS_BEFORE_PRUNING', steps)
    topology, query = case
    rejections: Rejections = Counter()
    bodies = Rows(topology).search(request_of(query), rejections=rejections)
    assert_candidates(bodies, Oracle(topology).candidates(query))
    for reason in (Reason.TOO_LITTLE_CAPACITY, Reason.TOO_FEW_PROVIDERS, Reason.TOO_FEW_WITH_CAPACITY):
        if rejections[reason]:
            event(f'refuted: {reason.name}')
    event('possible' if bodies else 'impossible')


@thorough(200)
@given(topologies(), queries((28, 29)), st.integers(1, 5), st.one_of(st.none(), st.integers()))
def test_limited_answer_is_a_subset_of_the_whole_of_the_right_size(
    topology: list[RP], query: Query, limit: int, seed: int | None
) -> None:
    rows, budget = Rows(topology), SearchBudget()
    query.limit = limit
    request, rng = request_of(query), seed if seed is None else random.Random(seed)
    bodies = rows.bodies(select(search(rows.search_units(), compile_request(request), budget), request, budget, rng))
    expected = Oracle(topology).candidates(query)
    assert set(bodies) <= expected
    assert len(bodies) == len(set(bodies)) == min(limit, len(expected))


@thorough(200)
@given(topologies(), queries((29,)))
def test_the_order_of_candidates_is_repeatable(topology: list[RP], query: Query) -> None:
    assert Rows(topology).search(request_of(query)) == Rows(topology).search(request_of(query))


@thorough(300)
@given(st.one_of(st.tuples(topologies(), queries((28, 29))), tight_topologies()), st.integers(0, 100))
def test_a_bound_that_is_not_reached_changes_nothing(case: tuple[list[RP], Query], percent: int) -> None:
    rows, request = Rows(case[0]), request_of(case[1])
    unbounded = SearchBudget()
    everything = rows.search(request, unbounded)
    enough = SearchBudget(max_steps=unbounded.steps_taken)
    assert rows.search(request, enough) == everything
    assert enough.reached == unbounded.reached == set()
    less = SearchBudget(max_steps=unbounded.steps_taken * percent // 100)
    bodies = rows.search(request, less)
    assert len(set(bodies)) == len(bodies)
    assert set(bodies) <= set(everything)
    assert less.reached == ({Limit.REQUEST_STEPS} if less.max_steps < unbounded.steps_taken else set())
    event(f'{len(bodies)} of {len(everything)}' if len(everything) < 4 else 'many')


@thorough(300)
@given(st.one_of(st.tuples(topologies(), queries((28, 29))), tight_topologies()), st.integers(1, 40))
def test_abandoned_trees_lose_only_their_own_candidates(case: tuple[list[RP], Query], steps: int) -> None:
    rows, request = Rows(case[0]), request_of(case[1])
    everything = set(rows.search(request))
    budget = SearchBudget(max_tree_steps=steps)
    bodies = rows.search(request, budget)
    assert len(bodies) == len(set(bodies))
    assert set(bodies) == everything if not budget.reached else set(bodies) <= everything
    event('given up' if budget.reached else 'not given up')


@thorough(200)
@given(topologies(), queries((10, 28, 29, 29)))
def test_the_size_of_an_answer_counts_its_contents(topology: list[RP], query: Query) -> None:
    rows, request = Rows(topology), request_of(query)
    size = ResponseSize(request)
    candidates = list(search(rows.search_units(), compile_request(request), SearchBudget()))
    for candidate in candidates:
        size.add_candidate(candidate)
    bodies = set(rows.bodies(candidates))
    holds = sum(map(len, bodies)) + len(Oracle(topology).summaries(query, bodies))
    sharing = [rp for rp in topology if SHARES in rp.traits]
    assert size.total == holds or (sharing and query.minor >= 29)
    # The trees of sharing providers are not counted, and those that also serve their own tree count twice.
    assert size.total <= holds + len(sharing)
    assert size.total <= sum(max_entries(request) + candidate.search_unit.tree_size for candidate in candidates)
