"""Successive snapshots equal those that are loaded from the tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.cache.inventory_columns import Integers, UsageColumns
from placement.cache.snapshot import Changes, Snapshot
from tests.support.cache_equality import assert_consistent, assert_same
from tests.support.search.cached import CLASS_IDS, NAMES, NOW, records_of
from tests.support.search.oracle import RP
from tests.support.search.topologies import thorough, topologies


@thorough(300)
@given(st.lists(topologies(), min_size=2, max_size=5), st.integers(1, 4))
def test_a_state_brought_forward_equals_one_built_from_scratch(history: list[list[RP]], size: int) -> None:
    present = {provider.id: provider for provider in records_of(history[0])}
    state = Snapshot.build(NAMES, present.values(), size)
    for number, topology in enumerate(history[1:], start=1):
        current = {provider.id: provider for provider in records_of(topology, generation=number)}
        state = state.next(Changes({id_: current.get(id_) for id_ in current.keys() | present.keys()}))
        assert_same(state, Snapshot.build(NAMES, current.values()))
        present = current


def rows(values: Iterable[tuple[int, int, int]]) -> Integers:
    """The rows of three columns, also if there are none."""
    return np.array(list(values), np.int64).reshape(-1, 3)


def microseconds(when: dt.datetime | None) -> int:
    """A time as a refresh reads it."""
    return -1 if when is None else (when - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta.resolution


@thorough(300)
@given(topologies(), st.integers(1, 4), st.data())
def test_usage_changes_in_place(topology: list[RP], size: int, data: st.DataObject) -> None:
    before = {provider.id: provider for provider in records_of(topology)}
    state = Snapshot.build(NAMES, before.values(), size)
    # Results that were computed before must be kept or computed again.
    for block in state.partitions:
        assert_consistent(block)
    claimed = data.draw(st.sets(st.sampled_from(sorted(before))))
    used = {id_: {name: data.draw(st.integers(0, 9)) for name in before[id_].inventories} for id_ in claimed}
    later = data.draw(st.sampled_from([None, NOW + dt.timedelta(microseconds=1)]))
    usages = UsageColumns.build(
        rows(data.draw(st.permutations([(id_, 7, microseconds(later)) for id_ in claimed]))),
        rows((id_, CLASS_IDS[name], amount) for id_, by_name in used.items() for name, amount in by_name.items()),
        NAMES.classes,
    )
    after = {
        id_: replace(
            provider,
            generation=7,
            modified=later,
            inventories={name: have._replace(used=used[id_][name]) for name, have in provider.inventories.items()},
        )
        if id_ in claimed
        else provider
        for id_, provider in before.items()
    }
    following = state.next(Changes({}, usages))
    # Reading one of them changes neither: a provider is made when it is first read, and kept.
    for snapshot, providers in ((state, before), (following, after), (state, before)):
        assert_same(snapshot, Snapshot.build(NAMES, providers.values()))
    assert all(
        block.providers[row] is block.providers[row] for block in following.partitions for row in range(block.size)
    )
