"""Sites, where candidates are built, and what is found there: placements, shared by sites of equal shape."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from placement.candidates.providers import Anchor

#: (position, class name, amount) triples.
Amounts = tuple[tuple[int, str, int], ...]

#: The positions of the providers that serve each group, in the order of the request.
Mappings = tuple[tuple[int, ...], ...]


class SearchUnit(Protocol):
    """A place where candidates are built: one tree and the sharing providers that reach it, or a bridge (``Anchor``).

    A *position* is the index of a provider in the tree, root first, followed by the sharing providers.
    """

    @property
    def shape(self) -> Hashable:
        """All that the placements depend on: sites of equal shape have the same ones. None if it is not known.

        It has the number of providers of the tree and of sharing providers, and for each position which parts of the
        request the provider could take, its headroom of every class that more than one part names, which of the traits
        it has that the unsuffixed group requires, and whether it is a sharing provider, be it one of the tree. Below
        1.29 also which sharing providers are in the same tree; with ``same_subtree`` which providers are above which.
        """

    @property
    def ids(self) -> Sequence[int]:
        """The ids of the providers, by position."""

    @property
    def shared_from(self) -> int:
        """The position of the first sharing provider, which is the number of providers of the tree."""

    def anchor(self) -> Anchor:
        """Make the providers that the search works on. It is called for the first site of each shape only."""


class AnchorSite:
    """A site whose anchor exists already. Its shape is not known."""

    __slots__ = ('_anchor', 'ids', 'shared_from')

    shape: Hashable = None

    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self.ids = [one.id for some in anchor for one in some]
        self.shared_from = len(anchor.tree)

    def anchor(self) -> Anchor:
        return self._anchor


class Assignment:
    """What each provider has to give, for every site of a shape.

    ``amounts`` are sorted, each (position, class) once. ``mappings`` is empty for a request without mappings.
    ``sharing_only`` says that all providers in it are sharing ones, of the tree or of others: then other sites may have
    the same candidate.
    """

    __slots__ = ('amounts', 'mappings', 'sharing_only')

    def __init__(self, amounts: Amounts, sharing_only: bool, mappings: Mappings = ()) -> None:
        self.amounts = amounts
        self.mappings = mappings
        self.sharing_only = sharing_only


class Candidate:
    """One answer: a placement at a site."""

    __slots__ = ('placement', 'site')

    def __init__(self, site: SearchUnit, placement: Assignment) -> None:
        self.site = site
        self.placement = placement

    @property
    def amounts(self) -> Amounts:
        """(Provider id, class name, amount), sorted, so that equal candidates of different sites are equal here."""
        ids = self.site.ids
        return tuple(sorted([(ids[position], name, amount) for position, name, amount in self.placement.amounts]))

    @property
    def mappings(self) -> Mappings:
        """The ids of the providers of each group, sorted, in the order of the request; empty without mappings."""
        ids = self.site.ids
        return tuple([tuple(sorted([ids[position] for position in one])) for one in self.placement.mappings])
