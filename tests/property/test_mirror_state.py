"""States of the mirror that follow one another are those that are built from scratch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from placement.candidates.rows import Inventory
from placement.mirror.records import Record, Usage
from placement.mirror.state import Changes, Names, State, Successor
from tests.property.candidates_oracle import RP
from tests.property.candidates_worlds import CLASSES, TRAITS, thorough, worlds
from tests.property.mirror_equality import assert_consistent, assert_same

CLASS_IDS = {name: number for number, name in enumerate(CLASSES)}
NAMES = Names({number: name for name, number in CLASS_IDS.items()}, frozenset(TRAITS))
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def records_of(world: list[RP], generation: int = 0, class_ids: Mapping[str, int] = CLASS_IDS) -> list[Record]:
    """The records of a world; the provider at place n has the id n + 1."""
    ids = {rp.name: number for number, rp in enumerate(world, start=1)}
    parents = {rp.name: rp.parent for rp in world}
    return [
        Record(
            id=ids[rp.name],
            uuid=f'uuid of {rp.name}',
            name=rp.name,
            generation=generation,
            parent_id=ids[rp.parent] if rp.parent else None,
            root_id=ids[top(rp.name, parents)],
            parent_provider_uuid=f'uuid of {rp.parent}' if rp.parent else None,
            root_provider_uuid=f'uuid of {top(rp.name, parents)}',
            modified=NOW,
            inventories=tuple(sorted((class_ids[name], Inventory(**values)) for name, values in rp.inventory.items())),
            traits=frozenset(rp.traits),
            aggregates=frozenset(rp.aggregates),
        )
        for rp in world
    ]


def top(name: str, parents: dict[str, str | None]) -> str:
    parent = parents[name]
    return name if parent is None else top(parent, parents)


@thorough(300)
@given(st.lists(worlds(), min_size=2, max_size=5), st.integers(1, 4))
def test_a_state_brought_forward_is_the_one_built_from_scratch(history: list[list[RP]], size: int) -> None:
    present = {one.id: one for one in records_of(history[0])}
    follow = Successor(State.of(NAMES, present.values(), size), size)
    for number, world in enumerate(history[1:], start=1):
        wanted = {one.id: one for one in records_of(world, generation=number)}
        state = follow(Changes({id_: wanted.get(id_) for id_ in wanted.keys() | present.keys()}, {}))
        assert_same(state, State.of(NAMES, wanted.values()))
        present = wanted


@thorough(300)
@given(worlds(), st.integers(1, 4), st.data())
def test_usage_changes_in_place(world: list[RP], size: int, data: st.DataObject) -> None:
    before = {one.id: one for one in records_of(world)}
    state = State.of(NAMES, before.values(), size)
    # What was worked out before must be handed on or made anew.
    for block in state.blocks:
        assert_consistent(block)
    claimed = data.draw(st.sets(st.sampled_from(sorted(before))))
    usages = {
        id_: Usage(7, NOW, {class_id: data.draw(st.integers(0, 9)) for class_id, _ in before[id_].inventories})
        for id_ in claimed
    }
    after = {
        id_: one._replace(
            generation=7,
            inventories=tuple((key, have._replace(used=usages[id_].used[key])) for key, have in one.inventories),
        )
        if id_ in claimed
        else one
        for id_, one in before.items()
    }
    follow = Successor(state)
    assert_same(follow(Changes({}, usages)), State.of(NAMES, after.values()))
    assert_same(state, State.of(NAMES, before.values()))


@thorough(100)
@given(worlds(), st.integers(1, 4), st.data())
def test_single_providers_come_and_go(world: list[RP], size: int, data: st.DataObject) -> None:
    everything = {one.id: one for one in records_of(world)}
    follow = Successor(State.of(NAMES, everything.values(), size), size)
    present = dict(everything)
    for _ in range(data.draw(st.integers(1, 6))):
        id_ = data.draw(st.sampled_from(sorted(everything)))
        record = None if id_ in present else everything[id_]
        if record is None:
            del present[id_]
        else:
            present[id_] = record
        assert_same(follow(Changes({id_: record}, {})), State.of(NAMES, present.values()))
