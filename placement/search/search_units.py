"""Search units, where candidates are built, the assignments found there, and which sharing providers reach which tree.

The rules are in api-ref/candidate-search.md#sharing-providers-and-anchors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from placement.cache.providers import Provider

Providers = tuple[Provider, ...]

#: (position, class name, amount) triples.
Amounts = tuple[tuple[int, str, int], ...]

#: The positions of the providers that serve each group, in the order of the request.
Mappings = tuple[tuple[int, ...], ...]


class SearchUnit:
    """The providers of one tree, root first, and the sharing providers of other trees that reach it.

    It may represent several equivalent trees that follow one another: ``count`` is their number, and ``tree`` and
    ``sharing`` are those of the first. A slice is a search unit of some of the trees.

    A candidate of a search unit with a tree uses at least one provider of the tree. So there are also search units
    with an empty ``tree``, *shared-only* ones: sharing providers which together reach some root, though they are in
    different aggregates, and so may serve a request without that root's tree.

    A *position* is the index of a provider in the tree, followed by the sharing providers.

    ``equivalence_key`` has all that the assignments depend on: trees with equal keys have the same assignments. None
    means that it was not computed. It has the number of providers of the tree and of sharing providers. For each
    position it has which requirements the provider satisfies, its headroom of every class that more than one
    requirement names, which of the traits it has that the unsuffixed group requires, and whether it is a sharing
    provider. Below 1.29 it also has which sharing providers are in the same tree; with ``same_subtree``, which
    providers are above which.
    """

    __slots__ = ('count', 'equivalence_key', 'sharing', 'tree', 'tree_size')

    def __init__(self, tree: Providers, sharing: Providers, equivalence_key: Hashable = None) -> None:
        self.tree = tree
        self.sharing = sharing
        self.equivalence_key = equivalence_key
        #: The number of providers of the tree, which is the position of the first sharing provider.
        self.tree_size = len(tree)
        self.count = 1

    def __getitem__(self, trees: slice) -> SearchUnit:
        return self

    def provider(self, position: int) -> Provider:
        """Return the provider at a position of the first tree."""
        size = self.tree_size
        return self.tree[position] if position < size else self.sharing[position - size]

    def sharing_of_each(self) -> Sequence[Providers]:
        """Return the sharing providers that reach each of the trees."""
        return (self.sharing,)

    def uuids(self, positions: Sequence[int]) -> list[str]:
        """Return the uuids of the providers at ``positions`` of each tree, tree by tree."""
        return [self.provider(position).uuid for position in positions]


class Assignment:
    """The amounts that each provider supplies, for every search unit of an equivalence class.

    ``amounts`` are sorted, each (position, class) once. ``mappings`` is empty for a request without mappings.
    ``sharing_only`` is true if all its providers are sharing ones, of this or other trees: then other search units may
    have the same candidate.
    """

    __slots__ = ('amounts', 'mappings', 'sharing_only')

    def __init__(self, amounts: Amounts, sharing_only: bool, mappings: Mappings = ()) -> None:
        self.amounts = amounts
        self.mappings = mappings
        self.sharing_only = sharing_only


class CandidateSet:
    """Candidates with the same assignment, at the equivalent trees of one search unit.

    Iteration yields each as a set of one candidate, whose ``amounts`` and ``mappings`` are those of the candidate.
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
        """(Provider id, class name, amount), sorted, so that equal candidates of different search units are equal."""
        provider = self.search_unit.provider
        return tuple(sorted([(provider(position).id, name, n) for position, name, n in self.assignment.amounts]))

    @property
    def mappings(self) -> Mappings:
        """The ids of the providers of each group, sorted, in the order of the request; empty without mappings."""
        provider = self.search_unit.provider
        return tuple(
            [tuple(sorted([provider(position).id for position in group])) for group in self.assignment.mappings]
        )


class SharingIndex:
    """Finds the sharing providers that reach a tree, by the aggregates of the tree.

    :param providers: the sharing providers. One without aggregates reaches no other tree.
    """

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._members: dict[str, list[Provider]] = {}
        for provider in sorted(providers, key=lambda provider: provider.id):
            for aggregate in provider.aggregates:
                self._members.setdefault(aggregate, []).append(provider)
        self._cached: dict[frozenset[str], Providers] = {}

    @property
    def aggregates(self) -> frozenset[str]:
        """The aggregates that have a sharing provider."""
        return frozenset(self._members)

    @property
    def providers(self) -> Providers:
        """Every sharing provider that has an aggregate, in id order."""
        return self.reaching(self.aggregates)

    def reaching(self, aggregates: frozenset[str]) -> Providers:
        """Return the sharing providers that are in at least one of ``aggregates``, in id order."""
        reaching = self._cached.get(aggregates)
        if reaching is None:
            members = {provider.id: provider for name in aggregates for provider in self._members.get(name, ())}
            reaching = self._cached[aggregates] = tuple(members[id_] for id_ in sorted(members))
        return reaching

    def shared_only_units(self, reached: Iterable[frozenset[str]]) -> Iterator[SearchUnit]:
        """Yield a search unit without a tree for each distinct group of sharing providers that reach one root.

        :param reached: for each root, the aggregates of its tree.
        """
        for group in dict.fromkeys(map(self.reaching, reached)):
            if group:
                yield SearchUnit((), group)
