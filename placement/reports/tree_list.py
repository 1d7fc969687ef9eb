"""Provider trees in a list: those that a search means, the fullest first, some at a time."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.mirror.block import Block, any_of_tree
from placement.mirror.state import State
from placement.mirror.stock import Flags
from placement.reports.capacity import Filling, Scope, of_trees, shares


class Order(enum.Enum):
    """How trees follow one another; the value is the word for it."""

    FULLEST = 'fullest'
    NAME = 'name'


@dataclass(frozen=True)
class ClassFilling:
    """The filling of one resource class in one tree, all its providers together."""

    resource_class: str
    filling: Filling


@dataclass(frozen=True)
class TreeRow:
    """One tree, called by its root. ``found`` names the provider that the search text found, if it is not the root."""

    uuid: str
    name: str
    providers: int
    classes: Sequence[ClassFilling]
    found: str | None = None


@dataclass(frozen=True)
class TreePage:
    """Some of the trees that a search means; ``trees`` is how many it means in all."""

    trees: int
    rows: Sequence[TreeRow] = field(default_factory=list)


def listing(
    state: State,
    text: str = '',
    scope: Scope | None = None,
    order: Order = Order.FULLEST,
    first: int = 0,
    count: int = 25,
) -> TreePage:
    """List the trees in ``scope`` that have a provider called by ``text``.

    :param text: a part of a provider's name, in any case, or the beginning of its uuid; empty for all trees.
    :param order: ``FULLEST`` goes by the fullest class of a tree.
    :raises TraitNotFound: a trait of ``scope`` does not exist.
    """
    scope = scope or Scope()
    state.names.check((), scope.traits)
    found = [_Found(block, text, scope) for block in state.blocks]
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


class _Found:
    """The trees of one block that a search means: their numbers in the block."""

    def __init__(self, block: Block, text: str, scope: Scope) -> None:
        self._block = block
        meant = scope.trees(block)
        self._called = None
        if text:
            self._called = _called(block, text)
            meant &= any_of_tree(block, self._called)
        self.numbers: list[int] = np.flatnonzero(meant).tolist()

    def name(self, number: int) -> str:
        root = self._block.records[self._block.starts[number]]
        return root.name or root.uuid

    def fullest(self) -> NDArray[np.float64]:
        """The share of the fullest class of each tree found."""
        fullest = np.zeros(len(self._block.roots))
        for class_id in self._block.stocks:
            np.maximum(fullest, shares(*of_trees(self._block, class_id)), out=fullest)
        return fullest[self.numbers]

    def row(self, state: State, number: int) -> TreeRow:
        block = self._block
        tree = block.tree(number)
        root = tree[0]
        return TreeRow(
            root.uuid, self.name(number), len(tree), list(_fillings(state, block, number)), self._other(number)
        )

    def _other(self, number: int) -> str | None:
        """The name of the first provider that the text found in a tree, None if that is the root."""
        if self._called is None:
            return None
        first, last = self._block.starts[number : number + 2].tolist()
        row = first + int(np.argmax(self._called[first:last]))
        one = self._block.records[row]
        return None if row == first else one.name or one.uuid


def _called(block: Block, text: str) -> Flags:
    """Which providers a text means."""
    part = text.casefold()
    called = (part in (one.name or '').casefold() or one.uuid.startswith(part) for one in block.records)
    return np.fromiter(called, np.bool_, len(block.records))


def _fillings(state: State, block: Block, number: int) -> Iterator[ClassFilling]:
    capacity: Counter[int] = Counter()
    used: Counter[int] = Counter()
    for record in block.tree(number):
        for class_id, inventory in record.inventories:
            capacity[class_id] += max(inventory.capacity, 0)
            used[class_id] += inventory.used
    return (ClassFilling(state.names.classes[id_], Filling(capacity[id_], used[id_])) for id_ in sorted(capacity))
