"""A list of provider trees, in pages: those that match a search."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.snapshot import Snapshot
from placement.reports.capacity import Filling, Scope, of_trees, shares


class Order(enum.Enum):
    """The orders of the list; the value is that of the query parameter."""

    FULLEST = 'fullest'
    NAME = 'name'


@dataclass(frozen=True)
class ClassFilling:
    """How full one resource class is in one tree, summed up over its providers."""

    resource_class: str
    filling: Filling


@dataclass(frozen=True)
class TreeRow:
    """One tree, with name and uuid of its root. ``found`` names the provider that matches, if it is not the root."""

    uuid: str
    name: str
    providers: int
    classes: Sequence[ClassFilling]
    found: str | None = None


@dataclass(frozen=True)
class TreePage:
    """Some of the trees that match a search; ``trees`` is the number of all."""

    trees: int
    rows: Sequence[TreeRow] = field(default_factory=list)


def listing(
    state: Snapshot,
    text: str = '',
    scope: Scope | None = None,
    order: Order = Order.FULLEST,
    first: int = 0,
    count: int = 25,
) -> TreePage:
    """List the trees in ``scope`` that have a provider that matches ``text``.

    :param text: a part of a provider's name, in any case, or the beginning of its uuid; empty for all trees.
    :param order: ``FULLEST`` sorts by the used share of the fullest class of a tree.
    :param first: how many trees to skip.
    :param count: most trees to return.
    :raises TraitNotFound: a trait of ``scope`` does not exist.
    """
    scope = scope or Scope()
    state.names.check((), scope.names)
    found = [_Matches(block, text, scope) for block in state.partitions]
    places = [(block, number) for block in found for number in block.numbers]
    if order is Order.NAME:
        places.sort(key=lambda place: place[0].name(place[1]))
    else:
        fullest = np.concatenate([block.fullest() for block in found]) if found else np.zeros(0)
        places = [places[at] for at in np.argsort(-fullest, kind='stable')[first : first + count].tolist()]
        first = 0
    return TreePage(
        sum(len(block.numbers) for block in found),
        [block.row(state, number) for block, number in places[first : first + count]],
    )


class _Matches:
    """The trees of one block that match a search; ``numbers`` are their positions in the block."""

    def __init__(self, block: Partition, text: str, scope: Scope) -> None:
        self._block = block
        included = scope.trees(block)
        self._matching = None
        if text:
            self._matching = _matching(block, text)
            included &= combine_by_tree(block, self._matching)
        self.numbers: list[int] = np.flatnonzero(included).tolist()

    def name(self, number: int) -> str:
        root = self._block.providers[self._block.starts[number]]
        return root.name or root.uuid

    def fullest(self) -> NDArray[np.float64]:
        """For each of these trees the used share of its fullest class."""
        fullest = np.zeros(len(self._block.roots))
        for resource_class in self._block.inventory_columns:
            np.maximum(fullest, shares(*of_trees(self._block, resource_class)), out=fullest)
        return fullest[self.numbers]

    def row(self, state: Snapshot, number: int) -> TreeRow:
        block = self._block
        tree = block.tree(number)
        root = tree[0]
        return TreeRow(
            root.uuid, self.name(number), len(tree), list(_fillings(state, block, number)), self._other(number)
        )

    def _other(self, number: int) -> str | None:
        """The name of the first provider of a tree that matches the text; None if that is the root."""
        if self._matching is None:
            return None
        first, last = self._block.starts[number : number + 2].tolist()
        row = first + int(np.argmax(self._matching[first:last]))
        one = self._block.providers[row]
        return None if row == first else one.name or one.uuid


def _matching(block: Partition, text: str) -> Flags:
    """Which providers have a name that contains the text, or a uuid that begins with it."""
    part = text.casefold()
    matching = (part in (one.name or '').casefold() or one.uuid.startswith(part) for one in block.providers)
    return np.fromiter(matching, np.bool_, len(block.providers))


def _fillings(state: Snapshot, block: Partition, number: int) -> Iterator[ClassFilling]:
    capacity: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for record in block.tree(number):
        for name, inventory in record.inventories.items():
            capacity[name] += max(inventory.capacity, 0)
            used[name] += inventory.used
    names = sorted(capacity, key=state.names.class_ids.__getitem__)
    return (ClassFilling(name, Filling(capacity[name], used[name])) for name in names)
