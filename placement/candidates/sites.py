"""Where a search looks, and what it finds there: placements by position, which places of one shape have in common."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from placement.candidates.providers import Anchor

#: (position, class name, amount) triples.
Amounts = tuple[tuple[int, str, int], ...]


class Site(Protocol):
    """A place where candidates are built: one tree and the sharing providers that reach it, or a bridge.

    A *position* counts the tree, root first, and then the sharing providers.
    """

    @property
    def shape(self) -> Hashable:
        """What the placements depend on; equal shapes have equal ones. None: like no other.

        That is the number of tree members and of sharing providers, and by position: which parts of the request it
        could take, the headroom of every class that more than one part names, the traits that the unnumbered group
        requires, and whether it is a sharing provider (in the tree too). Below 1.29 also which sharing providers are of
        one tree.
        """

    @property
    def ids(self) -> Sequence[int]:
        """The provider ids by position."""

    @property
    def shared_from(self) -> int:
        """The position of the first sharing provider, which is the number of providers of the tree."""

    def anchor(self) -> Anchor:
        """Make the rows. The search asks only the first site of each shape."""


class AnchorSite:
    """A site whose rows are there already. Its shape is that of no other."""

    __slots__ = ('_anchor', 'ids', 'shared_from')

    shape: Hashable = None

    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self.ids = [one.id for some in anchor for one in some]
        self.shared_from = len(anchor.tree)

    def anchor(self) -> Anchor:
        return self._anchor


class Placement:
    """One outcome of a walk, good for every site of the shape.

    ``amounts`` are sorted, each (position, class) once. ``sharing_only`` says that sharing providers alone, be they of
    the tree or not, serve everything: then other sites may have the same candidate.
    """

    __slots__ = ('amounts', 'sharing_only')

    def __init__(self, amounts: Amounts, sharing_only: bool) -> None:
        self.amounts = amounts
        self.sharing_only = sharing_only


class Candidate:
    """One answer: a placement at a site."""

    __slots__ = ('placement', 'site')

    def __init__(self, site: Site, placement: Placement) -> None:
        self.site = site
        self.placement = placement

    @property
    def amounts(self) -> Amounts:
        """(Provider id, class name, amount), sorted: equal for equal candidates of different sites."""
        ids = self.site.ids
        return tuple(sorted([(ids[position], name, amount) for position, name, amount in self.placement.amounts]))
