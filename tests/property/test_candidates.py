"""The search against the brute-force oracle, over random topologies and queries."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement.candidates import backtracking
from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.requirements import Reason, Rejections, compile_request
from placement.candidates.search import AssignmentFinder, search
from placement.candidates.selection import AnswerSize, max_entries, select
from tests.support.candidates.oracle import RP, SHARES, Body, Oracle, Query, assert_candidates
from tests.support.candidates.topologies import (
    MINORS,
    Rows,
    queries,
    request_of,
    thorough,
    tight_topologies,
    topologies,
    with_key,
)


def found(topology: list[RP], query: Query) -> list[Body]:
    rows = Rows(topology)
    return [rows.body(one) for one in search(rows.search_units(), compile_request(request_of(query)), SearchLimits())]


@thorough(2000)
@given(topologies(), queries(MINORS))
def test_the_search_finds_exactly_what_the_oracle_finds(topology: list[RP], query: Query) -> None:
    expected = Oracle(topology).candidates(query)
    event(f'candidates: {min(len(expected), 4)}')
    assert_candidates(found(topology, query), expected)


@thorough(200)
@given(topologies(most=4), queries((28, 29)), st.randoms(use_true_random=False))
def test_order_of_anchors_groups_and_providers_does_not_matter(
    topology: list[RP], query: Query, rng: random.Random
) -> None:
    rows = Rows(topology)
    search_units = rows.search_units()
    rng.shuffle(search_units)
    rng.shuffle(query.groups)
    bodies = [rows.body(one) for one in search(search_units, compile_request(request_of(query)), SearchLimits())]
    assert_candidates(bodies, Oracle(topology).candidates(query))


@thorough(400)
@given(topologies(most=4), queries(MINORS))
def test_trees_of_one_shape_share_a_walk(topology: list[RP], query: Query) -> None:
    topology = [
        *topology,
        *(replace(rp, name=f'{rp.name}-b', parent=rp.parent and f'{rp.parent}-b') for rp in topology),
    ]
    rows, request = Rows(topology), request_of(query)
    search_units = [with_key(unit, request) for unit in rows.search_units()]
    bodies = [rows.body(one) for one in search(search_units, compile_request(request), SearchLimits())]
    assert_candidates(bodies, Oracle(topology).candidates(query))
    event(f'searches spared: {len(search_units) - len({one.equivalence_key for one in search_units})}')
    streams = [stream for _, stream in AssignmentFinder(compile_request(request), SearchLimits()).streams(search_units)]
    assert len(set(streams)) == len({one.equivalence_key for one in search_units})


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
    rows = Rows(topology)
    bodies = [
        rows.body(one)
        for one in search(rows.search_units(), compile_request(request_of(query)), SearchLimits(), rejections)
    ]
    assert_candidates(bodies, Oracle(topology).candidates(query))
    for reason in (Reason.TOO_LITTLE_CAPACITY, Reason.TOO_FEW_PROVIDERS, Reason.TOO_FEW_WITH_CAPACITY):
        if rejections['', reason]:
            event(f'refuted: {reason.name}')
    event('possible' if bodies else 'impossible')


@thorough(200)
@given(topologies(), queries((28, 29)), st.integers(1, 5), st.one_of(st.none(), st.integers()))
def test_limited_answer_is_a_subset_of_the_whole_of_the_right_size(
    topology: list[RP], query: Query, limit: int, seed: int | None
) -> None:
    rows, limits = Rows(topology), SearchLimits()
    query.limit = limit
    request, rng = request_of(query), seed if seed is None else random.Random(seed)
    kept = [
        rows.body(one)
        for one in select(search(rows.search_units(), compile_request(request), limits), request, limits, rng)
    ]
    expected = Oracle(topology).candidates(query)
    assert set(kept) <= expected
    assert len(kept) == len(set(kept)) == min(limit, len(expected))


@thorough(200)
@given(topologies(), queries((29,)))
def test_the_order_of_candidates_is_repeatable(topology: list[RP], query: Query) -> None:
    assert found(topology, query) == found(topology, query)


@thorough(300)
@given(st.one_of(st.tuples(topologies(), queries((28, 29))), tight_topologies()), st.integers(0, 100))
def test_a_bound_that_is_not_reached_changes_nothing(case: tuple[list[RP], Query], percent: int) -> None:
    rows, request = Rows(case[0]), request_of(case[1])
    unbounded = SearchLimits()
    everything = [rows.body(one) for one in search(rows.search_units(), compile_request(request), unbounded)]
    enough = SearchLimits(max_steps=unbounded.steps_taken)
    assert [rows.body(one) for one in search(rows.search_units(), compile_request(request), enough)] == everything
    assert enough.reached == unbounded.reached == set()
    less = SearchLimits(max_steps=unbounded.steps_taken * percent // 100)
    some = [rows.body(one) for one in search(rows.search_units(), compile_request(request), less)]
    assert len(set(some)) == len(some)
    assert set(some) <= set(everything)
    assert less.reached == ({Limit.REQUEST_STEPS} if less.max_steps < unbounded.steps_taken else set())
    event(f'{len(some)} of {len(everything)}' if len(everything) < 4 else 'many')


@thorough(300)
@given(st.one_of(st.tuples(topologies(), queries((28, 29))), tight_topologies()), st.integers(1, 40))
def test_abandoned_trees_lose_only_their_own_candidates(case: tuple[list[RP], Query], steps: int) -> None:
    rows, request = Rows(case[0]), request_of(case[1])
    everything = {rows.body(one) for one in search(rows.search_units(), compile_request(request), SearchLimits())}
    limits = SearchLimits(max_tree_steps=steps)
    some = [rows.body(one) for one in search(rows.search_units(), compile_request(request), limits)]
    assert len(some) == len(set(some))
    assert set(some) == everything if not limits.reached else set(some) <= everything
    event('given up' if limits.reached else 'not given up')


@thorough(200)
@given(topologies(), queries((10, 28, 29, 29)))
def test_the_size_of_an_answer_counts_its_contents(topology: list[RP], query: Query) -> None:
    rows, request = Rows(topology), request_of(query)
    size = AnswerSize(request)
    found = list(search(rows.search_units(), compile_request(request), SearchLimits()))
    for candidate in found:
        size.add(candidate)
    bodies = {rows.body(one) for one in found}
    holds = sum(map(len, bodies)) + len(Oracle(topology).summaries(query, bodies))
    sharing = [rp for rp in topology if SHARES in rp.traits]
    assert size.total == holds or (sharing and query.minor >= 29)
    # The trees of sharing providers are not counted, and those that also serve their own tree count twice.
    assert size.total <= holds + len(sharing)
    assert size.total <= sum(max_entries(request) + candidate.search_unit.tree_size for candidate in found)
    for candidate in found:
        size.remove(candidate)
    assert size.total == 0
