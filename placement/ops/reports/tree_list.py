"""Lists the provider trees that a filter selects, page by page."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition
from placement.cache.snapshot import Snapshot
from placement.ops.reports.capacity import Utilization, shares, tree_utilization
from placement.ops.reports.tree_filter import TreeFilter, name_matcher


class Order(enum.Enum):
    """The orders of the list. The values are those of the query parameter."""

    FULLEST = 'fullest'
    NAME = 'name'


@dataclass(frozen=True)
class ClassUtilization:
    """The usage and capacity of one resource class, summed up over the providers of one tree."""

    resource_class: str
    utilization: Utilization


@dataclass(frozen=True)
class TreeRow:
    """One tree, with name and uuid of its root. ``found`` names the provider that matched, if not the root."""

    uuid: str
    name: str
    providers: int
    classes: Sequence[ClassUtilization]
    found: str | None = None


@dataclass(frozen=True)
class TreePage:
    """One page of the selected trees; ``trees`` is the number on all pages."""

    trees: int
    rows: Sequence[TreeRow] = field(default_factory=list)


def listing(
    snapshot: Snapshot,
    trees: TreeFilter | None = None,
    order: Order = Order.FULLEST,
    first: int = 0,
    count: int | None = 25,
    resource_class: str | None = None,
) -> TreePage:
    """List the selected trees.

    :param trees: None for all.
    :param order: ``FULLEST`` sorts trees by the used share of their fullest class.
    :param first: how many trees to skip.
    :param count: maximum number of trees to return; None for all.
    :param resource_class: if given, ``FULLEST`` sorts by the used share of this class. Trees without it come last.
    :raises ResourceClassNotFound: a class of ``trees`` does not exist.
    :raises TraitNotFound: a trait of ``trees`` does not exist.
    """
    trees = trees or TreeFilter()
    selections = [_Selection(partition, included) for partition, included in trees.select(snapshot)]
    numbers = [(selection, number) for selection in selections for number in selection.numbers]
    if order is Order.NAME:
        numbers.sort(key=lambda pair: pair[0].name(pair[1]))
    elif selections:
        fullest = np.concatenate([selection.fullest(resource_class) for selection in selections])
        numbers = [numbers[index] for index in np.argsort(-fullest, kind='stable').tolist()]
    shown = numbers[first : None if count is None else first + count]
    return TreePage(len(numbers), [selection.row(snapshot, number, trees.name) for selection, number in shown])


class _Selection:
    """The selected trees of one partition, by their ``numbers`` in it."""

    def __init__(self, partition: Partition, included: Flags) -> None:
        self._partition = partition
        self.numbers: list[int] = np.flatnonzero(included).tolist()

    def name(self, number: int) -> str:
        return self._partition.providers[self._partition.starts[number]].display_name

    @functools.cached_property
    def _sums(self) -> Mapping[str, NDArray[np.float64]]:
        """For each class, the sums by tree."""
        return {name: tree_utilization(self._partition, name) for name in self._partition.inventory_columns}

    def fullest(self, resource_class: str | None) -> NDArray[np.float64]:
        """Return for each tree the used share of its fullest class, or of ``resource_class``; -1 if it has none."""
        fullest = np.full(len(self._partition.roots), -1.0)
        for name, sums in self._sums.items():
            if resource_class in (None, name):
                present = np.zeros(len(fullest), np.bool_)
                columns = self._partition.inventory_columns[name]
                present[self._partition.tree_numbers[columns.positions]] = True
                fullest = np.where(present, np.maximum(fullest, shares(sums[:, 0], sums[:, 1])), fullest)
        return fullest[self.numbers]

    def row(self, snapshot: Snapshot, number: int, text: str) -> TreeRow:
        """Return one tree. ``found`` is its first provider that matches ``text``, if there is one."""
        tree = self._partition.tree(number)
        root = tree[0]
        names = {name for provider in tree for name in provider.inventories}
        classes = [
            ClassUtilization(name, Utilization(*map(int, self._sums[name][number].tolist())))
            for name in sorted(names, key=snapshot.names.class_ids.__getitem__)
        ]
        match = next(filter(name_matcher(text), tree), root) if text else root
        matching = None if match is root else match.display_name
        return TreeRow(root.uuid, root.display_name, len(tree), classes, matching)
