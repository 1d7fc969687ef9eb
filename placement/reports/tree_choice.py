"""Which provider trees somebody wants to look at, and what is in them in all."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from placement.reports.forest import Node, Stock, Tree


@dataclass(frozen=True)
class Choice:
    """Conditions on a tree; each must be met by any provider of it, not all by the same one.

    ``name`` is a part of the name or a pattern with ``*`` and ``?``. All ``traits``, ``aggregates`` and ``classes``
    must be there. ``full`` wants an inventory, of one of ``classes`` if given, of which nothing is left.
    """

    name: str | None = None
    traits: Collection[str] = ()
    aggregates: Collection[str] = ()
    classes: Collection[str] = ()
    full: bool = False

    def __bool__(self) -> bool:
        return self != Choice()

    def allows(self, tree: Tree) -> bool:
        """Whether a tree meets the conditions."""
        nodes = list(tree.root.walk())
        return (
            (self.name is None or any(self._is_called(node) for node in nodes))
            and {name for node in nodes for name in node.traits}.issuperset(self.traits)
            and {uuid for node in nodes for uuid in node.aggregates}.issuperset(map(str.lower, self.aggregates))
            and {stock.resource_class for node in nodes for stock in node.inventories}.issuperset(self.classes)
            and (not self.full or any(self._is_full(stock) for node in nodes for stock in node.inventories))
        )

    def _is_called(self, node: Node) -> bool:
        wanted = (self.name or '').lower()
        pattern = wanted if set('*?[') & set(wanted) else f'*{wanted}*'
        return fnmatch.fnmatchcase(node.name.lower(), pattern)

    def _is_full(self, stock: Stock) -> bool:
        return stock.used >= stock.capacity and (not self.classes or stock.resource_class in self.classes)


@dataclass
class ClassSum:
    """All inventories of one resource class; ``full`` is how many of them have nothing left."""

    resource_class: str
    inventories: int = 0
    capacity: int = 0
    used: int = 0
    full: int = 0


@dataclass(frozen=True)
class Summary:
    """What some trees hold together; ``classes`` are in order of name."""

    trees: int
    providers: int
    classes: list[ClassSum]


def summary(trees: Iterable[Tree]) -> Summary:
    """Add up what is in ``trees``."""
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
