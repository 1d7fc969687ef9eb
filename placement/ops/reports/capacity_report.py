"""Sums over inventories: by resource class, by aggregate and resource class, and a list of trees with their sums.

The commands, the page and the metrics all show these figures.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import Partition
from placement.cache.providers import DISABLED_TRAIT
from placement.cache.snapshot import Snapshot
from placement.ops.reports.tree_filter import ALL_TREES, FULL, TreeFilter, inventory_states

#: The maximum of a capacity or usage in a sum. Larger ones are cut to it, so that sums over a partition fit 64 bits.
_LARGEST = 2**48


@dataclass(frozen=True)
class ClassFigures:
    """The sums over the inventories of one resource class. A provider has at most one.

    ``capacity`` adds up ``(total - reserved) * allocation_ratio`` of each inventory, rounded down and at least 0.
    ``free`` adds up the free capacity of each inventory, and ``over_committed`` the usage beyond each capacity, so that
    ``capacity - used`` is ``free - over_committed``. ``max_allocatable`` is the largest amount that one allocation can
    have. ``full`` counts the providers on which no allocation fits: their ``InventoryState`` is ``fully_allocated``,
    ``reserved`` or ``over_committed``.
    """

    resource_class: str
    providers: int
    total: int
    reserved: int
    capacity: int
    used: int
    free: int
    over_committed: int
    max_allocatable: int
    full: int
    providers_fully_allocated: int
    providers_reserved: int
    providers_over_committed: int


@dataclass(frozen=True)
class Utilization:
    """The capacity and the usage of one inventory, or the sums over several.

    ``over_committed`` is the sum of the usage beyond the capacity of each inventory.
    """

    capacity: int
    used: int
    over_committed: int = 0

    @property
    def share(self) -> float:
        """The used share of the capacity. If the capacity is 0, the share is 1 if anything is used, otherwise 0."""
        return self.used / self.capacity if self.capacity else float(self.used > 0)

    @property
    def free(self) -> int:
        """The sum of the free capacity of each inventory."""
        return self.capacity - self.used + self.over_committed


@dataclass(frozen=True)
class AggregateRow:
    """One aggregate: how many trees have a provider in it, and how full these trees are, by class.

    ``utilizations`` has an entry for each of ``HeatMap.classes``, None if the trees have neither capacity nor usage.
    """

    aggregate: str
    trees: int
    utilizations: Sequence[Utilization | None]


@dataclass(frozen=True)
class HeatMap:
    """The aggregates by resource class. The aggregate with the largest used share of any class is first."""

    classes: Sequence[str]
    rows: Sequence[AggregateRow]


@dataclass(frozen=True)
class Summary:
    """The figures of some trees; ``classes`` are in the order of the class ids."""

    providers: int
    trees: int
    classes: Sequence[ClassFigures]


def summary(snapshot: Snapshot, trees: TreeFilter = ALL_TREES) -> Summary:
    """Count the selected trees and their providers, and sum up their inventories by class.

    :raises ResourceClassNotFound: a class of ``trees`` does not exist.
    :raises TraitNotFound: a trait of ``trees`` does not exist.
    """
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    providers = count = 0
    for partition, included in trees.select(snapshot):
        count += int(included.sum())
        within = included[partition.tree_numbers]
        providers += int(within.sum())
        for name, columns in partition.inventory_columns.items():
            chosen = within[columns.positions]
            if chosen.any():
                _add(sums[name], columns, chosen)
    names = sorted(sums, key=snapshot.names.class_ids.__getitem__)
    return Summary(providers, count, [ClassFigures(name, **sums[name]) for name in names])


def _add(sums: Counter[str], columns: InventoryColumns, chosen: Flags) -> None:
    """Add some of the inventories of a partition to the figures of their class."""
    for name in ('total', 'reserved'):
        sums[name] += int(_bounded(getattr(columns, name)[chosen]).sum())
    for name, values in zip(_SUMMED, _amounts(columns), strict=True):
        sums[name] += int(values[chosen].sum())
    sums['free'] = sums['capacity'] - sums['used'] + sums['over_committed']
    sums['max_allocatable'] = max(sums['max_allocatable'], int(_bounded(columns.max_allocatable[chosen]).max()))
    sums['providers'] += int(chosen.sum())
    for inventory_state, flags in inventory_states(columns).items():
        if inventory_state in FULL:
            full = int(flags[chosen].sum())
            sums['full'] += full
            sums[f'providers_{inventory_state.value}'] += full


#: The names of the results of ``_amounts``.
_SUMMED = ('capacity', 'used', 'over_committed')


def _amounts(columns: InventoryColumns) -> tuple[Integers, Integers, Integers]:
    """Return the capacity, usage, and usage beyond the capacity of each inventory. All reports add up these columns."""
    capacity, used = _bounded(columns.capacity_limit), _bounded(columns.used)
    return capacity, used, np.maximum(used - capacity, 0)


def _bounded(column: Integers) -> Integers:
    return np.clip(column, 0, _LARGEST)


def class_names(snapshot: Snapshot) -> list[str]:
    """Return the classes that have inventories, in the order of their ids."""
    names = {name for partition in snapshot.partitions for name in partition.inventory_columns}
    return sorted(names, key=snapshot.names.class_ids.__getitem__)


def heat_map(snapshot: Snapshot) -> HeatMap:
    """Sum up capacity and usage by aggregate and class. A tree belongs to the aggregates of all its providers."""
    sets = {names for partition in snapshot.partitions for names in partition.tree_aggregates.values}
    uuids = sorted(frozenset().union(*sets))
    numbers = {uuid: number for number, uuid in enumerate(uuids)}
    classes = class_names(snapshot)
    trees = np.zeros(len(uuids), np.int64)
    # By aggregate, class, and amount (``_SUMMED``).
    totals = np.zeros((len(uuids), len(classes), len(_SUMMED)))
    for partition in snapshot.partitions:
        column = partition.tree_aggregates
        counts = np.bincount(column.codes, minlength=len(column.values))
        sums = [_sums(partition, name, column.codes, len(counts)) for name in classes]
        by_set = np.reshape(sums, (len(classes), len(counts), len(_SUMMED)))
        for code, aggregates in enumerate(column.values):
            members = [numbers[uuid] for uuid in aggregates]
            trees[members] += counts[code]
            totals[members] += by_set[:, code]
    rows = []
    fullest = _shares(totals[:, :, 0], totals[:, :, 1]).max(axis=1, initial=0)
    for number in np.argsort(-fullest, kind='stable').tolist():
        utilizations = [Utilization(*map(int, amounts)) for amounts in totals[number].tolist()]
        present = [utilization if utilization.capacity or utilization.used else None for utilization in utilizations]
        rows.append(AggregateRow(uuids[number], int(trees[number]), present))
    return HeatMap(classes, rows)


def _sums(partition: Partition, name: str, groups: NDArray[np.signedinteger[Any]], size: int) -> NDArray[np.float64]:
    """Add up the amounts of one class in groups of trees. Row ``n`` has the sums of group ``n``, as in ``_SUMMED``.

    :param groups: for each tree of the partition, the number of its group.
    :param size: the number of groups.
    """
    columns = partition.inventory_columns.get(name)
    if columns is None:
        return np.zeros((size, len(_SUMMED)))
    numbers = groups[partition.tree_numbers[columns.positions]]
    sums = [np.bincount(numbers, weights=values, minlength=size) for values in _amounts(columns)]
    return np.stack(sums, axis=1).astype(np.float64)


def _shares(capacity: NDArray[np.float64], used: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the used shares of capacities, by the rule of ``Utilization.share``."""
    return np.divide(used, capacity, out=(used > 0).astype(np.float64), where=capacity > 0)


# Trees -----------------------------------------------------------------------------------------------------------

#: The orders of a list of trees: by the used share of the fullest class, or by name.
FULLEST, NAME = 'fullest', 'name'


@dataclass(frozen=True)
class TreeRow:
    """One tree, with name and uuid of its root, and the sums over its providers by resource class.

    ``over_committed`` lists the classes whose usage exceeds the capacity of an inventory, ``reserved`` those without
    capacity and usage. ``disabled`` tells whether the root has the trait ``COMPUTE_STATUS_DISABLED``: there nova places
    nothing.
    """

    uuid: str
    name: str
    providers: int
    utilizations: Mapping[str, Utilization]
    over_committed: Sequence[str]
    reserved: Sequence[str]
    disabled: bool


def list_trees(
    snapshot: Snapshot, trees: TreeFilter = ALL_TREES, order: str = FULLEST, first: int = 0, count: int = 25
) -> tuple[int, list[TreeRow]]:
    """List the selected trees.

    :param order: ``FULLEST``, ``NAME``, or a resource class. With a class, the trees in which most of it is used come
        first, and trees without it come last.
    :param first: how many trees to skip.
    :param count: maximum number of trees to return.
    :returns: the number of the selected trees, and those to return.
    :raises ResourceClassNotFound: a class of ``trees`` does not exist.
    :raises TraitNotFound: a trait of ``trees`` does not exist.
    """
    selections = [(partition, np.flatnonzero(included)) for partition, included in trees.select(snapshot)]
    places = [(partition, number) for partition, numbers in selections for number in numbers.tolist()]

    @functools.cache
    def sums(partition: Partition, name: str) -> NDArray[np.float64]:
        """Return the sums of one class by tree. The order and the rows need the same sums."""
        return _sums(partition, name, np.arange(len(partition.roots)), len(partition.roots))

    if order == NAME:
        places.sort(key=lambda place: place[0].providers[place[0].starts[place[1]]].display_name)
    elif places:
        fullest = np.concatenate(
            [_fullest_shares(partition, order, sums)[numbers] for partition, numbers in selections]
        )
        places = [places[index] for index in np.argsort(-fullest, kind='stable').tolist()]
    shown = places[first : first + count]
    rows = []
    for partition, number in shown:
        tree = partition.tree(number)
        names = {name for provider in tree for name in provider.inventories}
        utilizations = {
            name: Utilization(*map(int, sums(partition, name)[number].tolist()))
            for name in sorted(names, key=snapshot.names.class_ids.__getitem__)
        }
        over_committed = [name for name, utilization in utilizations.items() if utilization.over_committed]
        reserved = [
            name for name, utilization in utilizations.items() if not (utilization.capacity or utilization.used)
        ]
        root, disabled = tree[0], DISABLED_TRAIT in tree[0].traits
        rows.append(TreeRow(root.uuid, root.display_name, len(tree), utilizations, over_committed, reserved, disabled))
    return len(places), rows


def _fullest_shares(
    partition: Partition, order: str, sums_by_tree: Callable[[Partition, str], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return for each tree the used share of its fullest class, or of the class ``order``; -1 if it has none."""
    fullest = np.full(len(partition.roots), -1.0)
    for name, columns in partition.inventory_columns.items():
        if order in (FULLEST, name):
            sums = sums_by_tree(partition, name)
            trees = partition.tree_numbers[columns.positions]
            fullest[trees] = np.maximum(fullest, _shares(sums[:, 0], sums[:, 1]))[trees]
    return fullest
