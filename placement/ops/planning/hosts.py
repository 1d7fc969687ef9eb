"""All trees as matrices: a row for each provider, in order of the uuids of the roots, and a column for each class."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from placement import exception, uuid_spelling
from placement.cache import loader
from placement.cache.dictionary_columns import NameSetColumn
from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, Tree
from placement.cache.providers import DISABLED_TRAIT, Provider
from placement.cache.snapshot import Snapshot
from placement.ops.reports.provider_trees import UnknownProvider

#: Amounts by row and class.
Matrix = NDArray[np.int64]

#: The maximum of capacities and usages, so that sums fit 64 bits.
_LARGEST = 2**48


@dataclass(frozen=True, eq=False)
class Hosts:
    """Rows of the same tree are neighbors, the root first."""

    snapshot: Snapshot
    #: The names of the columns, in order of the ids of the classes.
    classes: Sequence[str]
    trees: Sequence[Tree]
    #: The same trees, in the same order. Its positions are the rows.
    partition: Partition
    #: The capacity; 0 without inventory.
    limit: Matrix
    used: Matrix
    min_unit: Matrix
    #: 0 without inventory.
    max_unit: Matrix
    step_size: Matrix
    #: Which rows are no sharing providers.
    is_own: Flags
    #: Which trees may take more: the root is present, shares nothing and has not the trait COMPUTE_STATUS_DISABLED.
    is_destination: Flags
    #: The traits of all providers of each tree.
    traits: NameSetColumn

    @functools.cached_property
    def free(self) -> Matrix:
        """The free capacity; below 0 if over-committed, -1 without inventory."""
        return np.where(self.max_unit > 0, self.limit - self.used, -1)

    @functools.cached_property
    def weights(self) -> NDArray[np.float64]:
        """For each class the inverse of the mean capacity of a provider that has it, which makes amounts comparable."""
        counts = np.maximum((self.limit > 0).sum(axis=0), 1)
        return 1.0 / np.maximum(np.maximum(self.limit, 0).sum(axis=0) / counts, 1e-9)

    @functools.cached_property
    def by_room(self) -> tuple[Integers, Integers]:
        """The rows, and the trees, in order of what is free there."""
        free = np.maximum(self.free, 0)
        # The scarcest class counts most.
        room = free @ (1.0 / np.maximum(free.sum(axis=0), 1))
        return np.argsort(room, kind='stable'), np.argsort(self.by_tree(room), kind='stable')

    @functools.cached_property
    def trivial_amounts(self) -> list[int]:
        """For each class, the largest amount that the units of every inventory allow, if they allow all up to it."""
        smallest = np.where(self.max_unit > 0, self.max_unit, _LARGEST).min(axis=0, initial=_LARGEST)
        trivial = ((self.min_unit <= 1) & (self.step_size == 1)).all(axis=0)
        return np.where(trivial, smallest, 0).tolist()

    @property
    def tree_of(self) -> Integers:
        """The tree of each row."""
        return self.partition.tree_numbers

    def rows(self, tree: int) -> slice:
        """Return the rows of a tree."""
        return slice(int(self.partition.starts[tree]), int(self.partition.starts[tree + 1]))

    def by_tree(self, amounts: Matrix) -> Matrix:
        """Return the sums of amounts by row over the rows of each tree."""
        return np.add.reduceat(amounts, self.partition.starts[:-1])

    def provider(self, row: int) -> Provider:
        """Return the provider of a row."""
        return self.partition.providers[row]

    def root(self, row: int) -> Provider:
        """Return the root of the tree of a row."""
        return self.trees[int(self.tree_of[row])][0]

    def resources(self, role: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Return the amounts above 0 by class instead of by column."""
        return {self.classes[column]: amount for column, amount in role if amount}

    def find_trees(self, identifiers: Iterable[str], aggregate: str | None, with_pools: bool = False) -> list[int]:
        """Return the trees of the providers with these names or uuids, and the hosts in an aggregate.

        :param with_pools: whether sharing providers are selected, too.
        :raises UnknownProvider: there is no such provider.
        :raises BadQuery: no tree is selected, or ``aggregate`` is no uuid.
        """
        selected = set()
        for identifier in identifiers:
            row = self.partition.by_name.get(identifier)
            if row is None:
                row = self.partition.by_uuid.get(uuid_spelling.canonical_uuid(identifier))
            if row is None:
                raise UnknownProvider(identifier=identifier)
            selected.add(int(self.tree_of[row]))
        if aggregate and uuid_spelling.is_uuid(aggregate):
            uuid = uuid_spelling.aggregate_uuid(aggregate)
            selected.update(np.flatnonzero(self.partition.tree_aggregates.where(lambda names: uuid in names)).tolist())
        if not with_pools:
            selected = {tree for tree in selected if self.is_own[self.partition.starts[tree]]}
        if not selected:
            missing = f'No host is in aggregate {aggregate}.' if aggregate else 'Name hosts, or an aggregate.'
            raise exception.BadQuery(missing)
        return sorted(selected)


def read_state(tx: sa.Connection) -> Hosts:
    """Read all providers, in the transaction that also reads the allocations: so both are of one state."""
    return build_hosts(loader.load_snapshot(tx))


def build_hosts(snapshot: Snapshot, class_ids: Collection[int] = ()) -> Hosts:
    """Make the matrices of a snapshot.

    :param class_ids: classes that have a column even if no provider has inventory of them.
    """
    all_trees = (partition.tree(number) for partition in snapshot.partitions for number in range(len(partition.roots)))
    trees = sorted(all_trees, key=lambda tree: tree[0].uuid)
    partition = Partition.build(trees)
    names = {*partition.inventory_columns, *map(snapshot.names.classes.__getitem__, class_ids)}
    classes = sorted(names, key=snapshot.names.class_ids.__getitem__)
    shape = partition.size, len(classes)
    limit, used, max_unit = (np.zeros(shape, np.int64) for _ in range(3))
    min_unit, step_size = (np.ones(shape, np.int64) for _ in range(2))
    for name, inventories in partition.inventory_columns.items():
        place = inventories.positions, classes.index(name)
        limit[place] = np.clip(inventories.capacity_limit, -_LARGEST, _LARGEST)
        used[place] = np.clip(inventories.used, 0, _LARGEST)
        min_unit[place], max_unit[place] = inventories.min_unit, inventories.max_unit
        step_size[place] = inventories.step_size
    is_own = ~partition.has_sharing_trait
    is_open = is_own & partition.traits.where(lambda names: DISABLED_TRAIT not in names)
    return Hosts(
        snapshot=snapshot,
        classes=classes,
        trees=trees,
        partition=partition,
        limit=limit,
        used=used,
        min_unit=min_unit,
        max_unit=max_unit,
        step_size=step_size,
        is_own=is_own,
        is_destination=partition.has_root & is_open[partition.starts[:-1]],
        traits=NameSetColumn.build(frozenset().union(*(provider.traits for provider in tree)) for tree in trees),
    )
