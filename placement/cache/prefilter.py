"""Finds the trees that could have a candidate, and their shapes, with operations on the columns of partitions.

The rules are those of ``placement.candidates``, applied to all providers of a partition at once. They are necessary
conditions: whether a tree has a candidate shows in the walk. Trees of equal *equivalence_key* have the same placements:
by position, their providers and the sharing providers that reach them can take the same parts, meet the same of the
collective requirements (of the traits that the unsuffixed group requires), and have the same headroom of classes that
several parts name. If there is a ``same_subtree``, they have the same parents, too.

*Bits* and *words*: for each provider or tree there is a row of 64-bit words. Bit i, for i below the number of parts,
says that part i can be taken; the bits after that are for the collective requirements.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.snapshot import Snapshot
from placement.candidates.providers import Anchor, Provider
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.requirements import Requirement, compile_request
from placement.candidates.search import can_serve
from placement.candidates.search_units import AnchorSearchUnit
from placement.candidates.sharing import SharingIndex

#: Bits as above: of the equivalence_key (providers or trees, words).
Words = NDArray[np.uint64]

_Sharing = tuple[Provider, ...]


class TreeSearchUnit:
    """One tree and the sharing providers of other trees that reach it.

    The tree is the one with ``number`` in ``partition``, at the positions from ``first`` to before ``last``.
    """

    __slots__ = ('_ids', '_snapshot', 'equivalence_key', 'first', 'last', 'number', 'partition', 'sharing')

    def __init__(
        self,
        snapshot: Snapshot,
        partition: Partition,
        number: int,
        first: int,
        last: int,
        sharing: _Sharing,
        equivalence_key: Hashable,
    ) -> None:
        self._ids: list[int] | None = None
        self._snapshot = snapshot
        self.partition = partition
        self.number = number
        self.first = first
        self.last = last
        self.sharing = sharing
        self.equivalence_key = equivalence_key

    def anchor(self) -> Anchor:
        """Make the providers that the search works on."""
        return Anchor(tuple(map(self._snapshot.provider, self.partition.rows[self.first : self.last])), self.sharing)

    @property
    def tree_size(self) -> int:
        """The position of the first sharing provider, which is the number of providers of the tree."""
        return self.last - self.first

    @property
    def ids(self) -> Sequence[int]:
        """The ids of the providers by position."""
        if self._ids is None:
            rows = self.partition.rows[self.first : self.last]
            self._ids = [one.id for one in rows] + [one.id for one in self.sharing]
        return self._ids

    def uuids(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the uuids of the providers at some positions."""
        rows, first, last = self.partition.rows, self.first, self.last
        return tuple(
            [rows[first + at].uuid if first + at < last else self.sharing[first + at - last].uuid for at in positions]
        )


class SharedOnlySearchUnit(AnchorSearchUnit):
    """Sharing providers that reach some root together, without a tree (``candidates.providers.Anchor``)."""

    @property
    def sharing(self) -> _Sharing:
        """The sharing providers by position."""
        return self.anchor().sharing

    def uuids(self, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the uuids of the providers at some positions."""
        return tuple([self.sharing[at].uuid for at in positions])


#: Any search_unit of a mirror.
CachedSearchUnit = TreeSearchUnit | SharedOnlySearchUnit


class Prefilter:
    """The search_units of one request over one snapshot.

    :param alike: whether to compute the shapes of trees. If false, every equivalence_key is None.
    """

    def __init__(self, snapshot: Snapshot, request: CandidateRequest, alike: bool = True) -> None:
        self._snapshot = snapshot
        self.request = request
        self._compiled = compile_request(request)
        self._alike = alike
        #: The distinct parts and the collective requirements, in the order of their bits.
        self.requirements = tuple(dict.fromkeys(self._compiled.requirements))
        self.collective = sorted(self._compiled.collective, key=sorted)
        self.nested_aware = self._compiled.nested_aware
        # The number of bits.
        self._bits = len(self.requirements) + len(self.collective)
        self._summed = _summed(self._compiled.requirements)
        self._numbers: dict[Hashable, int] = {}
        #: The sharing providers that could serve a group: those that have inventory of any class of the request.
        self.sharing: SharingIndex[str] = _sharing(snapshot, request)

    def search_units(self, rng: random.Random | None = None) -> Iterator[CachedSearchUnit]:
        """Yield every search_unit that could have a candidate: the trees, then the bridges.

        :param rng: puts the trees in random order; None for the order of their root ids.
        """
        trees = itertools.chain.from_iterable(map(self._of_block, self._blocks()))
        if rng is None:
            yield from trees
        else:
            shuffled = list(trees)
            rng.shuffle(shuffled)
            yield from shuffled
        yield from self._bridges()

    def _blocks(self) -> Iterable[Partition]:
        """Return the partitions that may have an anchor: only one if a group can be served only by one tree."""
        for part in self.requirements:
            if part.root_id is None or (part.use_same_provider and self._shared_from(part.root_id)):
                continue
            try:
                return [self._snapshot.find_tree(part.root_id)[0]]
            except KeyError:
                return []
        return self._snapshot.partitions

    def _shared_from(self, root_id: int) -> bool:
        """Whether a sharing provider of this tree may serve anchors elsewhere."""
        return any(one.root_id == root_id for one in self._snapshot.sharing)

    def _of_block(self, partition: Partition) -> Iterator[TreeSearchUnit]:
        words = self._words(partition)
        reach = _Reach(self, partition)
        alive = partition.has_root & self._alive(partition, words, reach.words)
        numbers: list[int] = np.flatnonzero(alive).tolist()
        if not numbers:
            return
        key, width = self._keys(partition, words)
        starts, snapshot = partition.starts.tolist(), self._snapshot
        for number in numbers:
            first, last = starts[number], starts[number + 1]
            sharing, sharing_number = reach.of(number)
            equivalence_key = (key[first * width : last * width], sharing_number) if self._alike else None
            yield TreeSearchUnit(snapshot, partition, number, first, last, sharing, equivalence_key)

    @functools.cached_property
    def suffixes(self) -> Mapping[Requirement, tuple[str, ...]]:
        """The suffixes of the groups that ask for each distinct part."""
        found: dict[Requirement, tuple[str, ...]] = {}
        for part in self._compiled.requirements:
            found[part] = (*found.get(part, ()), part.group)
        return found

    # Conditions on the providers of a tree ------------------------------------------------------------------

    def _words(self, partition: Partition) -> Words:
        """Return for each provider which parts it can take in its own tree, and which collective traits it has.

        The traits of a provider that can take no part do not count.
        """
        words = np.zeros((len(partition.rows), (self._bits + 63) // 64), np.uint64)
        takes_any = np.zeros(len(partition.rows), np.bool_)
        for number, part in enumerate(self.requirements):
            takes = self.takers(partition, part)
            takes_any |= takes
            words[takes, number // 64] |= np.uint64(1 << number % 64)
        for number, any_of in enumerate(self.collective, start=len(self.requirements)):
            has = partition.traits.where(functools.partial(meets, any_of)) & takes_any
            words[has, number // 64] |= np.uint64(1 << number % 64)
        return words

    def takers(self, partition: Partition, part: Requirement) -> Flags:
        """Return which providers can take ``part`` in their own trees: ``Requirement.rejection`` for a partition."""
        takes = np.ones(len(partition.rows), np.bool_)
        for name, amount in part.resources:
            takes &= partition.with_capacity(self._snapshot.names.class_ids[name], amount)
        if part.required or part.forbidden or part.required_any:
            takes &= partition.with_traits(part.required, part.forbidden, part.required_any)
        if part.member_of:
            takes &= self._members(partition, part)
        if part.forbidden_aggregates:
            takes &= partition.not_in_aggregates(part.forbidden_aggregates)
        if part.root_id is not None:
            takes &= (partition.roots == part.root_id)[partition.tree_numbers]
        return takes

    def _members(self, partition: Partition, part: Requirement) -> Flags:
        own = partition.in_aggregates(part.member_of)
        return own if part.use_same_provider else own | own[partition.root_positions]

    # Conditions on trees ------------------------------------------------------------------------------------

    def served(self, partition: Partition) -> Flags:
        """Return for each tree whether every part and collective trait has a provider, in the tree or reaching it."""
        together = combine_by_tree(partition, self._words(partition)) | _Reach(self, partition).words
        full = _mask(self._bits)
        served: Flags = partition.has_root & self.admitted(partition) & (together & full == full).all(axis=1)
        return served

    def admitted(self, partition: Partition) -> Flags:
        """Return for each tree whether its root may be an anchor: ``CompiledRequest.admits`` for a partition."""
        compiled, roots = self._compiled, partition.starts[:-1]
        flags = np.ones(len(partition.roots), np.bool_)
        if compiled.root_required or compiled.root_forbidden:
            flags &= partition.with_traits(compiled.root_required, compiled.root_forbidden)[roots]
        if compiled.root_forbidden_aggregates:
            flags &= partition.not_in_aggregates(compiled.root_forbidden_aggregates)[roots]
        return flags

    def _alive(self, partition: Partition, words: Words, shared: Words) -> Flags:
        """As ``served``, but also at least one part has a provider in the tree itself.

        :param words: of the providers of the partition.
        :param shared: for each tree, of the sharing providers that reach it.
        """
        trees = combine_by_tree(partition, words)
        full, parts = _mask(self._bits), _mask(len(self.requirements), words.shape[1])
        alive: Flags = ((trees | shared) & full == full).all(axis=1)
        alive &= (trees & parts != 0).any(axis=1)
        if self._compiled.selects_roots:
            alive &= self.admitted(partition)
        if not self._compiled.nested_aware:
            # Below 1.29 one provider of the tree has to take all parts that no sharing provider can take.
            alone = ~shared & parts
            alone = alone[partition.tree_numbers] if len(alone) > 1 else alone
            alive &= combine_by_tree(partition, (words & alone == alone).all(axis=1))
        return alive

    def _keys(self, partition: Partition, words: Words) -> tuple[bytes, int]:
        """Return all that a walk depends on of each provider, as bytes, and the number of bytes of one provider.

        The columns: the words, whether it is a sharing provider, with a ``same_subtree`` its parent, and its headroom
        of each class that several parts name.
        """
        if not self._alike:
            return b'', 0
        takes_any = words.any(axis=1)
        shares = partition.traits.where(functools.partial(holds, SHARING_TRAIT)) & takes_any
        parts = [words.view(np.int64), shares[:, np.newaxis].astype(np.int64)]
        if self._compiled.same_subtree:
            parts.append(partition.parents[:, np.newaxis])
        for name, most in self._summed.items():
            column = np.zeros((len(words), 1), np.int64)
            columns = partition.inventory_columns.get(self._snapshot.names.class_ids[name])
            if columns is not None:
                column[columns.positions, 0] = np.minimum(columns.headroom, most)
                column[~takes_any] = 0
            parts.append(column)
        matrix = np.concatenate(parts, axis=1)
        return matrix.tobytes(), matrix.shape[1] * matrix.itemsize

    # Sharing providers --------------------------------------------------------------------------------------

    def number_of(self, sharing: _Sharing) -> int:
        """Return a number for a group of sharing providers, the same for groups on which a walk depends equally."""
        alike: list[Hashable] = [
            (self._bits_of(one), *(self._room_of(one, name, most) for name, most in self._summed.items()))
            for one in sharing
        ]
        if not self._compiled.nested_aware:
            # Below 1.29 it also matters which of them are in the same tree.
            roots = [one.root_id for one in sharing]
            alike.append(tuple(map(roots.index, roots)))
        if self._compiled.same_subtree:
            alike.append(tuple(tuple(one.id in other.ancestors for one in sharing) for other in sharing))
        return self._numbers.setdefault(tuple(alike), len(self._numbers))

    @staticmethod
    def _room_of(provider: Provider, name: str, most: int) -> int:
        inventory = provider.inventories.get(name)
        return min(inventory.headroom, most) if inventory else 0

    def shared_words(self, sharing: _Sharing) -> Words:
        """Return which parts and collective traits these sharing providers together can supply to other trees.

        One row of words, without the dimension of the trees.
        """
        total = 0
        for provider in sharing:
            total |= self._bits_of(provider)
        return _words_of(total, (self._bits + 63) // 64)

    @functools.cached_property
    def _known_bits(self) -> dict[int, int]:
        return {}

    def _bits_of(self, provider: Provider) -> int:
        bits = self._known_bits.get(provider.id)
        if bits is None:
            bits = sum(
                1 << number for number, part in enumerate(self.requirements) if part.rejection(provider, None) is None
            )
            if bits:
                offset = len(self.requirements)
                bits |= sum(1 << n for n, one in enumerate(self.collective, offset) if meets(one, provider.traits))
            self._known_bits[provider.id] = bits
        return bits

    def _bridges(self) -> Iterator[CachedSearchUnit]:
        """Yield the bridges. There are none unless sharing providers alone could serve the has_root request.

        If not every root may be an anchor, these are groups of sharing providers that reach one that may: the roots of
        the sharing providers themselves, at which candidates of a single aggregate are found otherwise, may not.
        """
        shared = self.sharing.aggregates
        selects_roots = self._compiled.selects_roots
        if len(shared) < 2 - selects_roots or not can_serve(self.request, self.sharing.providers):
            return
        met: set[frozenset[str]] = set()
        for partition in self._snapshot.partitions:
            sets = partition.tree_aggregates
            numbers = (
                np.unique(sets.codes[partition.has_root & self.admitted(partition)])
                if selects_roots
                else range(len(sets.values))
            )
            met.update(sets.values[number] & shared for number in numbers)
        for anchor in self.sharing.shared_only_anchors(sorted(met, key=sorted), least=1 if selects_roots else 2):
            yield SharedOnlySearchUnit(anchor)


class _Reach:
    """The sharing providers that reach each tree of a partition.

    ``words`` has what they can supply: a row for each tree, or a single row if there are no sharing providers.
    """

    def __init__(self, matching: Prefilter, partition: Partition) -> None:
        self._matching = matching
        self._block = partition
        index = matching.sharing
        shared_aggregates = index.aggregates
        if not shared_aggregates:
            self._found: list[tuple[_Sharing, int]] = []
            self.words = matching.shared_words(())[np.newaxis, :]
            return
        sets = partition.tree_aggregates
        reaching = [index.reaching(names & shared_aggregates) for names in sets.values]
        self._found = [(sharing, matching.number_of(sharing)) for sharing in reaching]
        self._of_tree: list[int] = sets.codes.tolist()
        self.words = np.stack([matching.shared_words(sharing) for sharing in reaching])[sets.codes]
        # Trees that have sharing providers themselves, which must not be counted a second time.
        self._own = {int(partition.tree_numbers[row]) for row in partition.sharing}

    def of(self, tree: int) -> tuple[_Sharing, int]:
        """Return the sharing providers of other trees that reach a tree, and their ``Prefilter.number_of``."""
        if not self._found:
            return (), -1
        sharing, number = self._found[self._of_tree[tree]]
        if tree in self._own:
            root_id = self._block.rows[int(self._block.starts[tree])].root_id
            sharing = tuple(one for one in sharing if one.root_id != root_id)
            number = self._matching.number_of(sharing)
        return sharing, number


def _sharing(snapshot: Snapshot, request: CandidateRequest) -> SharingIndex[str]:
    classes = request.classes
    if all(group.resources for group in request.groups):
        carrying = {one: names for one, names in snapshot.sharing.items() if not classes.isdisjoint(one.inventories)}
    else:
        # A group without resources may be served by a sharing provider that has nothing of what is asked for.
        carrying = dict(snapshot.sharing)
    return SharingIndex(carrying)


def _summed(parts: Sequence[Requirement]) -> Mapping[str, int]:
    """The classes that several parts name, each with the sum of their amounts: more headroom makes no difference."""
    times = Counter(name for part in parts for name, _ in part.resources)
    total: Counter[str] = Counter()
    for part in parts:
        total.update(dict(part.resources))
    return {name: min(total[name], 2**62) for name, count in sorted(times.items()) if count > 1}


def meets(any_of: Collection[str], names: Collection[str]) -> bool:
    """Whether one of ``any_of`` is among ``names``."""
    return any(name in names for name in any_of)


def holds(name: str, names: Collection[str]) -> bool:
    """Whether ``name`` is among ``names``."""
    return name in names


def _mask(bits: int, words: int | None = None) -> Words:
    """A row of words in which the lowest ``bits`` bits are set.

    :param words: their number; None for as many as are needed.
    """
    return _words_of((1 << bits) - 1, words or (bits + 63) // 64)


def _words_of(bits: int, words: int) -> Words:
    return np.array([bits >> 64 * number & 2**64 - 1 for number in range(words)], np.uint64)
