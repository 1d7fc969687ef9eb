"""Successive states of the mirror equal those that are built from scratch."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from placement.cache.partition import UsageUpdate
from placement.cache.snapshot import Changes, Snapshot, SnapshotBuilder
from tests.support.cache_equality import assert_consistent, assert_same
from tests.support.candidates.cached import NAMES, NOW, records_of
from tests.support.candidates.oracle import RP
from tests.support.candidates.topologies import thorough, worlds


@thorough(300)
@given(st.lists(worlds(), min_size=2, max_size=5), st.integers(1, 4))
def test_a_state_brought_forward_equals_one_built_from_scratch(history: list[list[RP]], size: int) -> None:
    present = {one.id: one for one in records_of(history[0])}
    follow = SnapshotBuilder(Snapshot.of(NAMES, present.values(), size), size)
    for number, world in enumerate(history[1:], start=1):
        wanted = {one.id: one for one in records_of(world, generation=number)}
        state = follow.next(Changes({id_: wanted.get(id_) for id_ in wanted.keys() | present.keys()}, {}))
        assert_same(state, Snapshot.of(NAMES, wanted.values()))
        present = wanted


@thorough(300)
@given(worlds(), st.integers(1, 4), st.data())
def test_usage_changes_in_place(world: list[RP], size: int, data: st.DataObject) -> None:
    before = {one.id: one for one in records_of(world)}
    state = Snapshot.of(NAMES, before.values(), size)
    # Results that were computed before must be kept or computed again.
    for block in state.partitions:
        assert_consistent(block)
    claimed = data.draw(st.sets(st.sampled_from(sorted(before))))
    usages = {
        id_: UsageUpdate(7, NOW, {name: data.draw(st.integers(0, 9)) for name in before[id_].inventories})
        for id_ in claimed
    }
    after = {
        id_: replace(
            one,
            generation=7,
            inventories={name: have._replace(used=usages[id_].used[name]) for name, have in one.inventories.items()},
        )
        if id_ in claimed
        else one
        for id_, one in before.items()
    }
    follow = SnapshotBuilder(state)
    assert_same(follow.next(Changes({}, usages)), Snapshot.of(NAMES, after.values()))
    assert_same(state, Snapshot.of(NAMES, before.values()))


@thorough(100)
@given(worlds(), st.integers(1, 4), st.data())
def test_single_providers_are_added_and_removed(world: list[RP], size: int, data: st.DataObject) -> None:
    everything = {one.id: one for one in records_of(world)}
    follow = SnapshotBuilder(Snapshot.of(NAMES, everything.values(), size), size)
    present = dict(everything)
    for _ in range(data.draw(st.integers(1, 6))):
        id_ = data.draw(st.sampled_from(sorted(everything)))
        record = None if id_ in present else everything[id_]
        if record is None:
            del present[id_]
        else:
            present[id_] = record
        assert_same(follow.next(Changes({id_: record}, {})), Snapshot.of(NAMES, present.values()))
