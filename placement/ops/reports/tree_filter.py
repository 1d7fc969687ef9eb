"""A filter that selects provider trees from a snapshot, and the states of inventories that it can ask for."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from placement import exception, uuid_spelling
from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import Partition, or_by_tree
from placement.cache.snapshot import Snapshot
from placement.search.conditions import AggregateCondition, ResourceCondition, TraitCondition


class InventoryState(enum.Enum):
    """Whether an inventory can allocate anything, and the reason if it cannot. Each inventory is in one state."""

    AVAILABLE = 'available'
    #: The free capacity is smaller than the smallest allocation.
    FULLY_ALLOCATED = 'fully_allocated'
    #: The capacity is 0, usually because the total is reserved, and nothing is used.
    RESERVED = 'reserved'
    #: The usage exceeds the capacity.
    OVER_COMMITTED = 'over_committed'


#: The states in which no allocation fits.
FULL = frozenset(InventoryState) - {InventoryState.AVAILABLE}


def inventory_states(columns: InventoryColumns) -> dict[InventoryState, Flags]:
    """Return for each state which inventories are in it."""
    capacity = np.maximum(columns.capacity_limit, 0)
    over_committed = columns.used > capacity
    reserved = (capacity == 0) & ~over_committed
    fully_allocated = (columns.max_allocatable == 0) & ~over_committed & ~reserved
    return {
        InventoryState.AVAILABLE: ~(over_committed | reserved | fully_allocated),
        InventoryState.FULLY_ALLOCATED: fully_allocated,
        InventoryState.RESERVED: reserved,
        InventoryState.OVER_COMMITTED: over_committed,
    }


class AggregateNotFound(exception.NotFound):
    template = 'No resource provider is in the aggregate {uuid}.'


@dataclass(frozen=True)
class TreeFilter:
    """Conditions on a tree. Different providers of the tree may satisfy different conditions.

    ``name`` is a part of a name, in any case, or the beginning of a uuid. The tree has all of ``aggregates`` (uuids),
    ``traits`` and ``classes``. Its root has all traits of ``root_required`` and none of ``root_forbidden``. If
    ``states`` are given, one of its inventories is in one of these states; if ``classes`` are also given, an inventory
    of one of these classes.

    ``lacking`` has amounts by class. The tree has capacity of each of these classes, except those that some sharing
    provider supplies. For at least one class of which it has capacity, no provider in it can allocate the amount. Even
    a tree that is not selected may be unable to host a consumer with several request groups, because each amount is
    compared alone.
    """

    aggregates: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    name: str = ''
    states: frozenset[InventoryState] = frozenset()
    lacking: Mapping[str, int] = field(default_factory=dict)

    def select(self, snapshot: Snapshot) -> Iterator[tuple[Partition, Flags]]:
        """Yield each partition with a flag for each of its trees.

        :raises ResourceClassNotFound: a class of the conditions does not exist.
        :raises TraitNotFound: a trait of the conditions does not exist.
        """
        snapshot.names.raise_unless_known(
            {*self.classes, *self.lacking}, self.traits | self.root_required | self.root_forbidden
        )
        shared = {name for provider in snapshot.sharing for name in provider.inventories} if self.lacking else set()
        for partition in snapshot.partitions:
            included = np.ones(len(partition.roots), np.bool_)
            for condition in self._conditions(partition):
                included &= or_by_tree(partition, condition)
            if self.root_required or self.root_forbidden:
                roots = partition.traits.where(
                    lambda names: self.root_required <= names and self.root_forbidden.isdisjoint(names)
                )
                included &= roots[partition.starts[:-1]]
            if self.lacking:
                included &= self._trees_lacking_capacity(partition, shared)
            yield partition, included

    def raise_unless_aggregates_exist(self, snapshot: Snapshot) -> None:
        """Raise for an aggregate without providers, which is probably mistyped. ``select`` just selects no tree.

        :raises AggregateNotFound: no provider of ``snapshot`` is in one of ``aggregates``.
        """
        for uuid in sorted(self.aggregates):
            if not TreeFilter(frozenset({uuid})).count(snapshot):
                raise AggregateNotFound(uuid=uuid)

    def count(self, snapshot: Snapshot) -> int:
        """Return the number of the selected trees. Errors are as for ``select``."""
        return sum(int(included.sum()) for _, included in self.select(snapshot))

    def _conditions(self, partition: Partition) -> Iterator[Flags]:
        """Yield, for each condition that any provider of a tree may satisfy, which providers satisfy it."""
        if self.name:
            part = self.name.casefold()
            uuid = uuid_spelling.canonical_uuid(part)
            named = (
                part in (provider.name or '').casefold() or provider.uuid.startswith(uuid)
                for provider in partition.providers
            )
            yield np.fromiter(named, np.bool_, len(partition.providers))
        for aggregate in self.aggregates:
            yield AggregateCondition((frozenset({aggregate}),)).matches(partition)
        for name in self.traits:
            yield TraitCondition((frozenset({name}),)).matches(partition)
        columns = partition.inventory_columns
        for name in self.classes:
            yield _flags(partition, [columns[name].positions] if name in columns else [])
        if self.states:
            names = [name for name in self.classes or columns if name in columns]
            states = {name: inventory_states(columns[name]) for name in names}
            in_any = {name: np.logical_or.reduce([states[name][state] for state in self.states]) for name in names}
            yield _flags(partition, [columns[name].positions[in_any[name]] for name in names])

    def _trees_lacking_capacity(self, partition: Partition, shared: set[str]) -> Flags:
        supplies = np.ones(len(partition.roots), np.bool_)
        lacks = np.zeros(len(partition.roots), np.bool_)
        for name, amount in self.lacking.items():
            columns = partition.inventory_columns.get(name)
            positions = [] if columns is None else [columns.positions[columns.capacity_limit > 0]]
            has = or_by_tree(partition, _flags(partition, positions))
            lacks |= has & ~or_by_tree(partition, ResourceCondition(name, amount).matches(partition))
            if name not in shared:
                supplies &= has
        return supplies & lacks


#: Selects all trees.
ALL_TREES = TreeFilter()


def _flags(partition: Partition, positions: Sequence[Integers]) -> Flags:
    """Return one flag for each provider of a partition: whether it is at any of ``positions``."""
    flags = np.zeros(len(partition.providers), np.bool_)
    for positions_of_class in positions:
        flags[positions_of_class] = True
    return flags
