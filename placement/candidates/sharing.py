"""Which sharing providers reach which anchors (api-ref/candidate-search.md#sharing-providers-and-anchors)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from placement.candidates.providers import Anchor, Provider

#: However the source names aggregates.
Aggregate = TypeVar('Aggregate')


class SharingIndex(Generic[Aggregate]):
    """The sharing providers that could take part, by aggregate.

    ``aggregates_of`` maps each sharing provider to its aggregates. One without any reaches nothing: outside its own
    tree it never appears.
    """

    #: Distinct sets of aggregates to remember the members of.
    REMEMBERED = 1000

    def __init__(self, aggregates_of: Mapping[Provider, Iterable[Aggregate]]) -> None:
        self._members: dict[Aggregate, list[Provider]] = {}
        for provider, aggregates in sorted(aggregates_of.items(), key=lambda item: item[0].id):
            for aggregate in aggregates:
                self._members.setdefault(aggregate, []).append(provider)
        self._known: dict[frozenset[Aggregate], tuple[Provider, ...]] = {}
        #: Ids of all sharing providers given.
        self.ids = frozenset(provider.id for provider in aggregates_of)

    @property
    def aggregates(self) -> frozenset[Aggregate]:
        """The aggregates that carry anything shared."""
        return frozenset(self._members)

    @property
    def providers(self) -> tuple[Provider, ...]:
        """Every sharing provider that has an aggregate, in id order."""
        return self.reaching(self.aggregates)

    def anchor(self, tree: tuple[Provider, ...], aggregates: frozenset[Aggregate]) -> Anchor:
        """Return the anchor of ``tree``, whose providers together are in ``aggregates``."""
        sharing = self.reaching(aggregates) if aggregates else ()
        root_id = tree[0].id
        if any(provider.root_id == root_id for provider in sharing):
            sharing = tuple(provider for provider in sharing if provider.root_id != root_id)
        return Anchor(tree, sharing)

    def bridges(self, met: Iterable[frozenset[Aggregate]]) -> Iterator[Anchor]:
        """Yield an anchor without tree for each distinct meeting of sharing providers.

        ``met`` are the sets of sharing aggregates that roots touch, in any number and order. A set of one adds nothing:
        the roots of its own sharing providers touch it too.
        """
        seen = set()
        for aggregates in met:
            sharing = self.reaching(aggregates) if len(aggregates) > 1 else ()
            if sharing and sharing not in seen:
                seen.add(sharing)
                yield Anchor((), sharing)

    def reaching(self, aggregates: frozenset[Aggregate]) -> tuple[Provider, ...]:
        """Return the sharing providers that are in any of ``aggregates``, in id order."""
        found = self._known.get(aggregates)
        if found is None:
            if len(self._known) >= self.REMEMBERED:
                self._known.clear()
            members = {one.id: one for name in aggregates for one in self._members.get(name, ())}
            found = tuple(members[key] for key in sorted(members))
            self._known[aggregates] = found
        return found
