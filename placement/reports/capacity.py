"""How full the cloud is: by resource class, and by aggregate and resource class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.snapshot import Snapshot
from placement.candidates.requirements import TraitCondition

#: Larger capacities and usages count as this, so that the sums over a block fit 64 bits.
_LARGEST = 2**48


@dataclass(frozen=True)
class Scope:
    """The provider trees to include: those with a provider in ``aggregate``, and for each of ``traits`` one with it.

    Their roots have all traits of ``root_required`` and none of ``root_forbidden``.
    """

    aggregate: str | None = None
    traits: frozenset[str] = frozenset()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Every trait that is named."""
        return self.traits | self.root_required | self.root_forbidden

    def trees(self, block: Partition) -> Flags:
        """Return which trees of a block are included."""
        included = np.ones(len(block.roots), np.bool_)
        if self.aggregate is not None:
            included &= combine_by_tree(block, block.aggregates.where(lambda names: self.aggregate in names))
        for name in self.traits:
            included &= combine_by_tree(block, TraitCondition(frozenset({name})).matches(block))
        if self.root_required or self.root_forbidden:
            roots = block.with_traits(
                lambda names: self.root_required <= names and self.root_forbidden.isdisjoint(names)
            )
            included &= roots[block.starts[:-1]]
        return included


@dataclass(frozen=True)
class ClassFigures:
    """The sums over the inventories of one resource class.

    ``free`` is the sum of the free capacity of each inventory; an over-committed one counts as 0. ``max_allocatable``
    is the largest amount that one allocation can have. ``full`` counts the providers on which no allocation fits.
    """

    resource_class: str
    providers: int
    capacity: int
    used: int
    free: int
    max_allocatable: int
    full: int


@dataclass(frozen=True)
class Filling:
    """A capacity and the part of it that is used."""

    capacity: int
    used: int

    @property
    def share(self) -> float:
        """The used share of the capacity; without any capacity 1 if anything is used, else 0."""
        return self.used / self.capacity if self.capacity else float(self.used > 0)


@dataclass(frozen=True)
class AggregateRow:
    """One aggregate: how many trees have a provider in it, and how full these trees are, by class.

    ``fillings`` has an entry for each of ``HeatMap.classes``, None for a class that the trees do not have.
    """

    aggregate: str
    trees: int
    fillings: Sequence[Filling | None]


@dataclass(frozen=True)
class HeatMap:
    """Some of the aggregates, the fullest first, by resource class. ``aggregates`` is the number of all."""

    classes: Sequence[str]
    aggregates: int
    rows: Sequence[AggregateRow]


def by_class(state: Snapshot, scope: Scope) -> list[ClassFigures]:
    """The figures of each class of which a tree in ``scope`` has inventory, in the order of the class ids.

    :raises TraitNotFound: a trait of ``scope`` does not exist.
    """
    state.names.check((), scope.names)
    parts: defaultdict[str, list[_BlockSums]] = defaultdict(list)
    for block in state.partitions:
        included = scope.trees(block)[block.tree_numbers]
        for name, stock in block.inventory_columns.items():
            within = included[stock.positions]
            if within.any():
                parts[name].append(_BlockSums(stock, within))
    return [_figures(name, parts[name]) for name in sorted(parts, key=state.names.class_ids.__getitem__)]


class _BlockSums:
    """The sums over some inventories of one block."""

    def __init__(self, stock: InventoryColumns, within: Flags) -> None:
        capacity, used = _bounded(stock.capacity_limit[within]), _bounded(stock.used[within])
        amounts = _max_allocatable(stock)[within]
        self.providers = len(capacity)
        self.capacity = int(capacity.sum())
        self.used = int(used.sum())
        self.free = int(np.maximum(capacity - used, 0).sum())
        self.largest = int(amounts.max())
        self.full = int((amounts == 0).sum())


def _figures(name: str, parts: Sequence[_BlockSums]) -> ClassFigures:
    return ClassFigures(
        name,
        providers=sum(one.providers for one in parts),
        capacity=sum(one.capacity for one in parts),
        used=sum(one.used for one in parts),
        free=sum(one.free for one in parts),
        max_allocatable=max(one.largest for one in parts),
        full=sum(one.full for one in parts),
    )


def _max_allocatable(stock: InventoryColumns) -> Integers:
    """The largest amount that one allocation can take of each inventory, by ``placement.capacity``; 0 if none fits."""
    return _bounded(stock.max_allocatable)


def _bounded(column: Integers) -> Integers:
    return np.clip(column, 0, _LARGEST)


def heat_map(state: Snapshot, first: int = 0, count: int | None = None) -> HeatMap:
    """Sum up capacity and usage by aggregate and class. A tree belongs to the aggregates of all its providers.

    :param first: how many of the fullest aggregates to skip.
    :param count: most rows to return; None for all.
    """
    sums = _AggregateSums(state)
    order = np.argsort(-sums.fullest(), kind='stable')
    chosen = order[first : None if count is None else first + count].tolist()
    return HeatMap(sums.class_names, len(sums.uuids), [sums.row(number) for number in chosen])


class _AggregateSums:
    """Capacity and usage by aggregate and class. ``totals`` has the axes aggregate (by uuid), class, and these two."""

    def __init__(self, state: Snapshot) -> None:
        sets = {names for block in state.partitions for names in block.tree_aggregates.values}
        self.uuids = sorted(frozenset().union(*sets))
        self._numbers = {uuid: number for number, uuid in enumerate(self.uuids)}
        names = {name for block in state.partitions for name in block.inventory_columns}
        self.class_names = sorted(names, key=state.names.class_ids.__getitem__)
        self.trees = np.zeros(len(self.uuids), np.int64)
        self.totals = np.zeros((len(self.uuids), len(self.class_names), 2))
        for block in state.partitions:
            self._add(block)

    def _add(self, block: Partition) -> None:
        sets = block.tree_aggregates
        trees = np.bincount(sets.codes, minlength=len(sets.values))
        by_set = np.stack([_by_set(block, name) for name in self.class_names], axis=1) if self.class_names else None
        for number, names in enumerate(sets.values):
            for uuid in names:
                self.trees[self._numbers[uuid]] += trees[number]
                if by_set is not None:
                    self.totals[self._numbers[uuid]] += by_set[number]

    def fullest(self) -> NDArray[np.float64]:
        """For each aggregate the used share of its fullest class."""
        capacity, used = self.totals[:, :, 0], self.totals[:, :, 1]
        return shares(capacity, used).max(axis=1, initial=0)

    def row(self, number: int) -> AggregateRow:
        """The figures of one aggregate."""
        fillings = [Filling(int(capacity), int(used)) for capacity, used in self.totals[number].tolist()]
        present = [one if one.capacity or one.used else None for one in fillings]
        return AggregateRow(self.uuids[number], int(self.trees[number]), present)


def _by_set(block: Partition, name: str) -> NDArray[np.float64]:
    """Capacity and usage of one class, summed up over the trees of the block that have the same set of aggregates."""
    size = len(block.tree_aggregates.values)
    stock = block.inventory_columns.get(name)
    if stock is None:
        return np.zeros((size, 2))
    sets = block.tree_aggregates.codes[block.tree_numbers[stock.positions]]
    return np.stack(list(_sums(sets, stock, size)), axis=1)


def of_trees(block: Partition, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Capacity and usage of one class, which the block has inventory of, for each tree of the block."""
    stock = block.inventory_columns[name]
    capacity, used = _sums(block.tree_numbers[stock.positions], stock, len(block.roots))
    return capacity, used


def _sums(numbers: NDArray[np.signedinteger[Any]], stock: InventoryColumns, size: int) -> Iterator[NDArray[np.float64]]:
    for column in (stock.capacity_limit, stock.used):
        summed = np.bincount(numbers, weights=_bounded(column), minlength=size)
        yield summed.astype(np.float64)


def shares(capacity: NDArray[np.float64], used: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the used shares of some capacities, by the rule of ``Filling.share``."""
    return np.divide(used, capacity, out=(used > 0).astype(np.float64), where=capacity > 0)


@dataclass(frozen=True)
class Summary:
    """The figures of the trees in a scope."""

    providers: int
    trees: int
    classes: Sequence[ClassFigures] = field(default_factory=list)


def summary(state: Snapshot, scope: Scope) -> Summary:
    """Count the trees and providers in ``scope``, and sum up the inventories of each class.

    :raises TraitNotFound: a trait of ``scope`` does not exist.
    """
    classes = by_class(state, scope)
    included = [(block, scope.trees(block)) for block in state.partitions]
    providers = sum(int(flags[block.tree_numbers].sum()) for block, flags in included)
    return Summary(providers, sum(int(flags.sum()) for _, flags in included), classes)
