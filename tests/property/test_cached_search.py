"""Searches of the provider cache against the brute-force oracle, over random topologies and queries."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from tests.support.candidates.cached import NAMES, found, records_of
from tests.support.candidates.oracle import RP, Oracle, Query, assert_candidates
from tests.support.candidates.topologies import MINORS, queries, request_of, thorough, topologies


@thorough(2000)
@given(topologies(), queries(MINORS), st.integers(1, 5))
def test_searches_of_the_cache_find_exactly_what_the_oracle_finds(topology: list[RP], query: Query, size: int) -> None:
    state = Snapshot.of(NAMES, records_of(topology), size)
    expected = Oracle(topology).candidates(query)
    event(f'candidates: {min(len(expected), 4)}')
    assert_candidates(found(state, query), expected)


@thorough(500)
@given(topologies(most=3), queries((24, 29)), st.integers(2, 4))
def test_trees_of_one_shape_have_the_same_candidates(topology: list[RP], query: Query, copies: int) -> None:
    many = [
        RP(
            name=f'{rp.name} of {number}',
            parent=rp.parent and f'{rp.parent} of {number}',
            inventory=rp.inventory,
            traits=rp.traits,
            aggregates={f'{name}' for name in rp.aggregates},
        )
        for number in range(copies)
        for rp in topology
    ]
    state = Snapshot.of(NAMES, records_of(many))
    bodies = found(state, query)
    assert bodies == found(state, query, alike=False)
    shapes = {search_unit.equivalence_key for search_unit in Prefilter(state, request_of(query)).search_units()}
    event(f'shapes: {len(shapes)}')
