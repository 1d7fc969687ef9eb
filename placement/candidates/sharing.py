"""Which sharing providers reach which anchors (api-ref/candidate-search.md#sharing-providers-and-anchors)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from placement.candidates.providers import Anchor, Provider

#: What identifies an aggregate: a uuid, or anything else that is hashable.
Aggregate = TypeVar('Aggregate')


class SharingIndex(Generic[Aggregate]):
    """Sharing providers by aggregate.

    :param aggregates_of: the aggregates of each sharing provider. One without aggregates reaches no other tree.
    """

    #: For how many sets of aggregates ``reaching`` remembers its result.
    REMEMBERED = 1000

    def __init__(self, aggregates_of: Mapping[Provider, Iterable[Aggregate]]) -> None:
        self._members: dict[Aggregate, list[Provider]] = {}
        for provider, aggregates in sorted(aggregates_of.items(), key=lambda item: item[0].id):
            for aggregate in aggregates:
                self._members.setdefault(aggregate, []).append(provider)
        self._known: dict[frozenset[Aggregate], tuple[Provider, ...]] = {}
        #: The ids of all sharing providers, also of those without aggregates.
        self.ids = frozenset(provider.id for provider in aggregates_of)

    @property
    def aggregates(self) -> frozenset[Aggregate]:
        """The aggregates that have a sharing provider."""
        return frozenset(self._members)

    @property
    def providers(self) -> tuple[Provider, ...]:
        """Every sharing provider that has an aggregate, in id order."""
        return self.reaching(self.aggregates)

    def anchor(self, tree: tuple[Provider, ...], aggregates: frozenset[Aggregate]) -> Anchor:
        """Return the anchor of ``tree``.

        :param aggregates: all aggregates of any provider of the tree.
        """
        sharing = self.reaching(aggregates) if aggregates else ()
        root_id = tree[0].id
        if any(provider.root_id == root_id for provider in sharing):
            sharing = tuple(provider for provider in sharing if provider.root_id != root_id)
        return Anchor(tree, sharing)

    def shared_only_anchors(self, met: Iterable[frozenset[Aggregate]], least: int = 2) -> Iterator[Anchor]:
        """Yield an anchor without a tree for each distinct group of sharing providers that reach one root.

        :param met: for each tree, those aggregates of its providers that have a sharing provider. A set of one
            aggregate needs no bridge: its sharing providers also reach the root of each of them, and are found there,
            unless these roots may not be anchors.
        :param least: how many aggregates a set must have to be looked at.
        """
        seen = set()
        for aggregates in met:
            sharing = self.reaching(aggregates) if len(aggregates) >= least else ()
            if sharing and sharing not in seen:
                seen.add(sharing)
                yield Anchor((), sharing)

    def reaching(self, aggregates: frozenset[Aggregate]) -> tuple[Provider, ...]:
        """Return the sharing providers that are in at least one of ``aggregates``, in order of id."""
        found = self._known.get(aggregates)
        if found is None:
            if len(self._known) >= self.REMEMBERED:
                self._known.clear()
            members = {one.id: one for name in aggregates for one in self._members.get(name, ())}
            found = tuple(members[key] for key in sorted(members))
            self._known[aggregates] = found
        return found
