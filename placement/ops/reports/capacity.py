"""Sums over inventories: by resource class, by aggregate and resource class, and by tree.

The commands, the page and the metrics all show these figures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import Partition
from placement.cache.snapshot import Snapshot
from placement.ops.reports.tree_filter import FULL, TreeFilter, inventory_states

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
    classes: Sequence[ClassFigures] = field(default_factory=list)


def summary(snapshot: Snapshot, trees: TreeFilter | None = None) -> Summary:
    """Count the selected trees and their providers, and sum up their inventories by class.

    :param trees: None for all.
    :raises ResourceClassNotFound: a class of ``trees`` does not exist.
    :raises TraitNotFound: a trait of ``trees`` does not exist.
    """
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    providers = count = 0
    for partition, included in (trees or TreeFilter()).select(snapshot):
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


def heat_map(snapshot: Snapshot) -> HeatMap:
    """Sum up capacity and usage by aggregate and class. A tree belongs to the aggregates of all its providers."""
    sets = {names for partition in snapshot.partitions for names in partition.tree_aggregates.values}
    uuids = sorted(frozenset().union(*sets))
    numbers = {uuid: number for number, uuid in enumerate(uuids)}
    names = {name for partition in snapshot.partitions for name in partition.inventory_columns}
    classes = sorted(names, key=snapshot.names.class_ids.__getitem__)
    trees = np.zeros(len(uuids), np.int64)
    # By aggregate, class, and amount (``_SUMMED``).
    totals = np.zeros((len(uuids), len(classes), len(_SUMMED)))
    for partition in snapshot.partitions:
        column = partition.tree_aggregates
        counts = np.bincount(column.codes, minlength=len(column.values))
        sums = np.reshape([_by_set(partition, name) for name in classes], (len(classes), len(counts), len(_SUMMED)))
        for code, aggregates in enumerate(column.values):
            members = [numbers[uuid] for uuid in aggregates]
            trees[members] += counts[code]
            totals[members] += sums[:, code]
    rows = []
    fullest = shares(totals[:, :, 0], totals[:, :, 1]).max(axis=1, initial=0)
    for number in np.argsort(-fullest, kind='stable').tolist():
        utilizations = [Utilization(*map(int, amounts)) for amounts in totals[number].tolist()]
        present = [utilization if utilization.capacity or utilization.used else None for utilization in utilizations]
        rows.append(AggregateRow(uuids[number], int(trees[number]), present))
    return HeatMap(classes, rows)


def _by_set(partition: Partition, name: str) -> NDArray[np.float64]:
    """Return the sums over one class for each set of aggregates that trees of the partition have."""
    size = len(partition.tree_aggregates.values)
    columns = partition.inventory_columns.get(name)
    if columns is None:
        return np.zeros((size, len(_SUMMED)))
    sets = partition.tree_aggregates.codes[partition.tree_numbers[columns.positions]]
    return _grouped(sets, columns, size)


def tree_utilization(partition: Partition, name: str) -> NDArray[np.float64]:
    """Return the capacity, usage and over-commitment of one class for each tree of a partition.

    :param name: a class that a provider of the partition has.
    """
    columns = partition.inventory_columns[name]
    return _grouped(partition.tree_numbers[columns.positions], columns, len(partition.roots))


def _grouped(numbers: NDArray[np.signedinteger[Any]], columns: InventoryColumns, size: int) -> NDArray[np.float64]:
    """Add up the amounts of the inventories that have the same number. Row ``n`` has the sums of number ``n``."""
    sums = [np.bincount(numbers, weights=values, minlength=size) for values in _amounts(columns)]
    return np.stack(sums, axis=1).astype(np.float64)


def shares(capacity: NDArray[np.float64], used: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the used shares of capacities, by the rule of ``Utilization.share``."""
    return np.divide(used, capacity, out=(used > 0).astype(np.float64), where=capacity > 0)
