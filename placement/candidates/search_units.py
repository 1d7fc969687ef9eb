"""Search units, where candidates are built, and the assignments found there, which equivalent units share."""

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
    def equivalence_key(self) -> Hashable:
        """All that the assignments depend on: search units with equal keys have the same ones. None if unknown.

        It has the number of providers of the tree and of sharing providers, and for each position which parts of the
        request the provider could take, its headroom of every class that more than one part names, which of the traits
        it has that the unsuffixed group requires, and whether it is a sharing provider, be it one of the tree. Below
        1.29 also which sharing providers are in the same tree; with ``same_subtree`` which providers are above which.
        """

    @property
    def ids(self) -> Sequence[int]:
        """The ids of the providers, by position."""

    @property
    def tree_size(self) -> int:
        """The position of the first sharing provider, which is the number of providers of the tree."""

    def anchor(self) -> Anchor:
        """Return the providers to search. Called for the first search unit of each equivalence class only."""


class AnchorSearchUnit:
    """A search_unit whose anchor exists already. Its equivalence_key is not known."""

    __slots__ = ('_anchor', 'ids', 'tree_size')

    equivalence_key: Hashable = None

    def __init__(self, anchor: Anchor) -> None:
        self._anchor = anchor
        self.ids = [one.id for some in anchor for one in some]
        self.tree_size = len(anchor.tree)

    def anchor(self) -> Anchor:
        return self._anchor


class Assignment:
    """What each provider has to give, for every search_unit of a equivalence_key.

    ``amounts`` are sorted, each (position, class) once. ``mappings`` is empty for a request without mappings.
    ``sharing_only`` says that all providers in it are sharing ones, of the tree or of others: then other search_units
    may have the same candidate.
    """

    __slots__ = ('amounts', 'mappings', 'sharing_only')

    def __init__(self, amounts: Amounts, sharing_only: bool, mappings: Mappings = ()) -> None:
        self.amounts = amounts
        self.mappings = mappings
        self.sharing_only = sharing_only


class Candidate:
    """One answer: a assignment at a search_unit."""

    __slots__ = ('assignment', 'search_unit')

    def __init__(self, search_unit: SearchUnit, assignment: Assignment) -> None:
        self.search_unit = search_unit
        self.assignment = assignment

    @property
    def amounts(self) -> Amounts:
        """(Provider id, class name, amount), sorted, so that equal candidates of different search units are equal."""
        ids = self.search_unit.ids
        return tuple(sorted([(ids[position], name, amount) for position, name, amount in self.assignment.amounts]))

    @property
    def mappings(self) -> Mappings:
        """The ids of the providers of each group, sorted, in the order of the request; empty without mappings."""
        ids = self.search_unit.ids
        return tuple([tuple(sorted([ids[position] for position in one])) for one in self.assignment.mappings])
