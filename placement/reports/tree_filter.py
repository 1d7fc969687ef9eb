"""Conditions by which provider trees are selected, and the sums over the inventories of trees."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from placement.reports.provider_trees import Node, Stock, Tree


@dataclass(frozen=True)
class TreeFilter:
    """Conditions on a tree. Each must be met by a provider of the tree; these may be different providers.

    ``name`` is a part of the name, or a pattern with ``*`` and ``?``. The tree must have all of ``traits``,
    ``aggregates`` and ``classes``. With ``full`` it must have an inventory, of one of ``classes`` if given, that is
    used up.
    """

    name: str | None = None
    traits: Collection[str] = ()
    aggregates: Collection[str] = ()
    classes: Collection[str] = ()
    full: bool = False

    def __bool__(self) -> bool:
        return self != TreeFilter()

    def allows(self, tree: Tree) -> bool:
        """Whether a tree meets the conditions."""
        nodes = list(tree.root.walk())
        return (
            (self.name is None or any(self._has_name(node) for node in nodes))
            and {name for node in nodes for name in node.traits}.issuperset(self.traits)
            and {uuid for node in nodes for uuid in node.aggregates}.issuperset(map(str.lower, self.aggregates))
            and {stock.resource_class for node in nodes for stock in node.inventories}.issuperset(self.classes)
            and (not self.full or any(self._is_full(stock) for node in nodes for stock in node.inventories))
        )

    def _has_name(self, node: Node) -> bool:
        wanted = (self.name or '').lower()
        pattern = wanted if set('*?[') & set(wanted) else f'*{wanted}*'
        return fnmatch.fnmatchcase(node.name.lower(), pattern)

    def _is_full(self, stock: Stock) -> bool:
        return stock.used >= stock.capacity and (not self.classes or stock.resource_class in self.classes)


@dataclass
class ClassSum:
    """The sums over the inventories of one resource class; ``full`` is how many of them are used up."""

    resource_class: str
    inventories: int = 0
    capacity: int = 0
    used: int = 0
    full: int = 0


@dataclass(frozen=True)
class Summary:
    """The sums over some trees; ``classes`` are in order of name."""

    trees: int
    providers: int
    classes: list[ClassSum]


def summary(trees: Iterable[Tree]) -> Summary:
    """Sum up ``trees``."""
    count = providers = 0
    sums: dict[str, ClassSum] = {}
    for tree in trees:
        count += 1
        for node in tree.root.walk():
            providers += 1
            for stock in node.inventories:
                one = sums.setdefault(stock.resource_class, ClassSum(stock.resource_class))
                one.inventories += 1
                one.capacity += stock.capacity
                one.used += stock.used
                one.full += stock.used >= stock.capacity
    return Summary(count, providers, [sums[name] for name in sorted(sums)])
