"""The search against the brute-force oracle, over random worlds and queries."""

from __future__ import annotations

import random

from hypothesis import event, given
from hypothesis import strategies as st

from placement.candidates.search import chosen, search
from tests.property.candidates_oracle import RP, Body, Oracle, Query
from tests.property.candidates_worlds import Rows, queries, request_of, thorough, worlds

MINORS = (10, 17, 21, 22, 24, 25, 28, 29, 29, 29)


def found(world: list[RP], query: Query) -> list[Body]:
    rows = Rows(world)
    return [rows.body(one) for one in search(rows.anchors(), request_of(query), rows.sharing.ids)]


@thorough(2000)
@given(worlds(), queries(MINORS))
def test_search_finds_exactly_what_the_definitions_say(world: list[RP], query: Query) -> None:
    bodies = found(world, query)
    expected = Oracle(world).candidates(query)
    event(f'candidates: {min(len(expected), 4)}')
    assert set(bodies) == expected
    assert len(bodies) == len(set(bodies))


@thorough(200)
@given(worlds(most=4), queries((28, 29)), st.randoms(use_true_random=False))
def test_order_of_anchors_groups_and_providers_does_not_matter(
    world: list[RP], query: Query, rng: random.Random
) -> None:
    rows = Rows(world)
    anchors = rows.anchors()
    rng.shuffle(anchors)
    rng.shuffle(query.groups)
    bodies = [rows.body(one) for one in search(anchors, request_of(query), rows.sharing.ids)]
    assert set(bodies) == Oracle(world).candidates(query)
    assert len(bodies) == len(set(bodies))


@thorough(200)
@given(worlds(), queries((28, 29)), st.integers(1, 5), st.one_of(st.none(), st.integers()))
def test_limited_answer_is_a_subset_of_the_whole_of_the_right_size(
    world: list[RP], query: Query, limit: int, seed: int | None
) -> None:
    rows = Rows(world)
    candidates = search(rows.anchors(), request_of(query), rows.sharing.ids)
    kept = [rows.body(one) for one in chosen(candidates, limit, seed if seed is None else random.Random(seed))]
    expected = Oracle(world).candidates(query)
    assert set(kept) <= expected
    assert len(kept) == len(set(kept)) == min(limit, len(expected))


@thorough(200)
@given(worlds(), queries((29,)))
def test_order_is_the_same_every_time(world: list[RP], query: Query) -> None:
    assert found(world, query) == found(world, query)
