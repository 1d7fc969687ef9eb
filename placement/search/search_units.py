"""Search units, their assignments and candidates.

The rules are in api-ref/candidate-search.md#sharing-providers-and-anchors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from placement.cache.providers import Provider

if TYPE_CHECKING:
    # The solver imports this module, and import-linter rejects every chain of imports from the solver to numpy.
    import numpy as np
    from numpy.typing import NDArray

    from placement.cache.partition import Partition

Providers = tuple[Provider, ...]

#: Triples of position, class name and amount.
Amounts = tuple[tuple[int, str, int], ...]

#: The positions of the providers that serve each group, in the order of the request.
Mappings = tuple[tuple[int, ...], ...]


class SharingSet(NamedTuple):
    """Sharing providers of other trees that reach a tree, in order of id.

    ``bits`` has the ``CompiledRequest.bits`` of each, ``all_bits`` those that any of them has. Sets with equal
    ``number`` have equal assignments.
    """

    providers: Providers
    bits: tuple[int, ...]
    all_bits: int
    number: int


#: The set of a tree that no sharing provider reaches, if there are none.
NO_SHARING = SharingSet((), (), 0, 0)


class SearchUnit:
    """The providers of one tree, root first, and the sharing providers of other trees that reach it.

    It may represent several successive trees that are equivalent. ``count`` is their number; ``tree`` and ``sharing``
    belong to the first of them. A slice is a search unit of some of these trees.

    A candidate of a search unit with a tree uses at least one provider of the tree. Therefore there are also
    *shared-only* search units with an empty ``tree``. They have the sharing providers that reach one root, because
    these may serve a request without the tree of this root.

    A *position* is the index of a provider in the tree, followed by the sharing providers.

    Trees with equal ``equivalence_key`` have the same assignments, because the key has all data that these depend on:

    * the number of providers of the tree, and of sharing providers;
    * for each position, the requirements that the provider satisfies, which of the traits of the unsuffixed group it
      has, whether it is a sharing provider, and how much of each class that several requirements name can be added to
      its usage (``max_increase``);
    * below 1.29, which sharing providers are in the same tree;
    * with ``same_subtree``, which providers are above which others.

    A key of None was not computed.
    """

    __slots__ = ('_bits', 'count', 'equivalence_key', 'sharing', 'tree', 'tree_size')

    def __init__(self, tree: Providers, sharing: Providers, bits: Sequence[int] = ()) -> None:
        self.tree = tree
        self.sharing = sharing
        self.equivalence_key: Hashable = None
        self._bits = bits
        #: The number of providers of the tree, and so the position of the first sharing provider.
        self.tree_size = len(tree)
        self.count = 1

    def __getitem__(self, trees: slice) -> SearchUnit:
        return self

    def provider(self, position: int) -> Provider:
        """Return the provider at a position of the first tree."""
        size = self.tree_size
        return self.tree[position] if position < size else self.sharing[position - size]

    def bits(self) -> Sequence[int]:
        """Return ``CompiledRequest.bits`` of the provider at each position of the first tree."""
        return self._bits

    def sharing_of_each(self) -> Sequence[Providers]:
        """Return the sharing providers of each tree."""
        return (self.sharing,)

    def uuids(self, positions: Sequence[int]) -> list[str]:
        """Return the uuids of the providers at ``positions`` of each tree, tree by tree."""
        return [self.provider(position).uuid for position in positions]


class SearchedPartition(NamedTuple):
    """What the search units of the trees of one partition have in common."""

    partition: Partition
    #: For each provider its bits in its own tree, as a row of 64-bit words; 0 if it satisfies no requirement.
    provider_bits: NDArray[np.uint64]
    #: For each tree the index in ``sharing_sets`` of the sharing providers that reach it, which include the tree's own.
    codes: Sequence[int]
    sharing_sets: Sequence[SharingSet]


class TreeSearchUnit(SearchUnit):
    """A search unit of the trees of a partition with these ``numbers``. Their roots are at the positions ``firsts``."""

    __slots__ = ('_searched', '_sharing_set', 'firsts', 'numbers', 'partition')

    def __init__(
        self,
        searched: SearchedPartition,
        sharing_set: SharingSet,
        numbers: list[int],
        firsts: list[int],
        tree_size: int,
        key: Hashable,
    ) -> None:
        # This does not call ``super``, because that takes time, and there may be many thousand units.
        self.partition = searched.partition
        self.tree = self.partition.providers[firsts[0] : firsts[0] + tree_size]
        self.tree_size = tree_size
        self.sharing = sharing_set.providers
        self.equivalence_key = key
        self.numbers = numbers
        self.firsts = firsts
        self.count = len(numbers)
        self._searched = searched
        self._sharing_set = sharing_set

    def __getitem__(self, trees: slice) -> TreeSearchUnit:
        if self.count == 1:
            return self
        numbers, searched = self.numbers[trees], self._searched
        # If several trees are equivalent, none of them contains a sharing provider.
        sharing_set = searched.sharing_sets[searched.codes[numbers[0]]]
        return TreeSearchUnit(searched, sharing_set, numbers, self.firsts[trees], self.tree_size, self.equivalence_key)

    def bits(self) -> Sequence[int]:
        rows = self._searched.provider_bits[self.firsts[0] : self.firsts[0] + self.tree_size].astype('<u8')
        tree = [int.from_bytes(words.tobytes(), 'little') for words in rows]
        return [*tree, *self._sharing_set.bits]

    def sharing_of_each(self) -> Sequence[Providers]:
        if self.count == 1:
            return (self.sharing,)
        sharing_sets, codes = self._searched.sharing_sets, self._searched.codes
        return [sharing_sets[codes[number]].providers for number in self.numbers]

    def uuids(self, positions: Sequence[int]) -> list[str]:
        size, providers = self.tree_size, self.partition.providers
        if max(positions) < size:
            # A request without a limit may have a candidate in each of many thousand trees.
            return [providers[first + position].uuid for first in self.firsts for position in positions]
        return [
            (providers[first + position] if position < size else sharing[position - size]).uuid
            for first, sharing in zip(self.firsts, self.sharing_of_each(), strict=True)
            for position in positions
        ]


class Assignment(NamedTuple):
    """The amounts that each provider supplies, for every search unit of an equivalence class."""

    #: Sorted, with one entry for each position and class.
    amounts: Amounts
    #: Whether all providers are sharing providers, of this tree or of others: then other search units may have the same
    #: candidate.
    sharing_only: bool
    #: Empty for a request without mappings.
    mappings: Mappings = ()


class CandidateSet:
    """Candidates with the same assignment, at the equivalent trees of one search unit.

    Iteration yields sets of one candidate. ``amounts`` and ``mappings`` are for such sets.
    """

    __slots__ = ('assignment', 'search_unit')

    def __init__(self, search_unit: SearchUnit, assignment: Assignment) -> None:
        self.search_unit = search_unit
        self.assignment = assignment

    def __len__(self) -> int:
        return self.search_unit.count

    def __iter__(self) -> Iterator[CandidateSet]:
        return (self[index : index + 1] for index in range(len(self))) if len(self) > 1 else iter((self,))

    def __getitem__(self, candidates: slice) -> CandidateSet:
        return CandidateSet(self.search_unit[candidates], self.assignment)

    @property
    def amounts(self) -> Amounts:
        """Sorted triples of provider id, class name and amount. Equal candidates have equal triples."""
        provider = self.search_unit.provider
        return tuple(sorted([(provider(position).id, name, n) for position, name, n in self.assignment.amounts]))

    @property
    def mappings(self) -> Mappings:
        """The ids of the providers of each group, sorted, in the order of the request; empty without mappings."""
        provider = self.search_unit.provider
        return tuple(
            [tuple(sorted([provider(position).id for position in group])) for group in self.assignment.mappings]
        )
