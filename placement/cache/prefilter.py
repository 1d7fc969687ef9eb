"""Finds the trees that could have a candidate, and which of them are equivalent, with operations on columns.

It applies the requirements of ``placement.candidates`` to all providers of a partition at once. These are necessary
conditions; whether a tree has a candidate shows in the search. The passes over one partition, for the requirements
A = ``resources=VCPU:4`` and B = ``resources1=SRIOV_NET_VF:1``, and the trait T that the unsuffixed group requires::

    provider   tree | 1: A B T | 2: tree | 3: reach | 4: kept | 5: key
    host1       0   |    1 0 1 |   1 0 1 |    0 1 0 |   yes   | 101 ... \\ (key of the providers, number of the
    numa1       0   |    0 0 0 |         |          |         | 000 ... /  sharing providers that reach the tree)
    host2       1   |    0 0 0 |   0 0 0 |    0 1 0 |   no    |

1. ``_provider_bits``: which requirements each provider satisfies in its own tree, and which of the collective traits it
   has. Each is one bit; a row has as many 64-bit words as needed.
2. ``combine_by_tree``: the bits that the providers of a tree have together.
3. ``_Reach``: the bits of the sharing providers of other trees that reach each tree.
4. ``_may_have_candidate``: the trees in which 2 and 3 together have all bits, and that pass the rules about trees.
5. ``_provider_keys``: for the trees that are kept, the bytes on which the assignments depend (``SearchUnit``).
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.snapshot import Snapshot
from placement.candidates.providers import Provider
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.requirements import CompiledRequest, Requirement, compile_request
from placement.candidates.search_units import Providers, SearchUnit, SharingIndex

#: Bits as above, with the axes (providers or trees, words).
BitRows = NDArray[np.uint64]


class TreeSearchUnit(SearchUnit):
    """A search unit with a tree: the one with ``number`` in ``partition``, from the position ``first`` on."""

    __slots__ = ('first', 'number', 'partition')

    def __init__(
        self, partition: Partition, number: int, first: int, last: int, sharing: Providers, key: Hashable
    ) -> None:
        # Not through ``super``, as there may be one for each of many thousand trees.
        self.tree = partition.providers[first:last]
        self.tree_size = last - first
        self.sharing = sharing
        self.equivalence_key = key
        self.partition = partition
        self.number = number
        self.first = first


class Prefilter:
    """Finds the search units of one request in one snapshot.

    :param with_keys: whether to compute the equivalence keys of trees. If false, they are None.
    """

    def __init__(self, snapshot: Snapshot, request: CandidateRequest, with_keys: bool = True) -> None:
        self._snapshot = snapshot
        self.compiled: CompiledRequest = compile_request(request, snapshot.root_id_of)
        self._with_keys = with_keys
        #: The distinct requirements, in the order of their bits. The bits of the collective traits come after these.
        self.requirements: tuple[Requirement, ...] = tuple(self.compiled.suffixes)
        self._bit_count = len(self.requirements) + len(self.compiled.collective)
        self._word_count = (self._bit_count + 63) // 64
        self._headroom_limits = _headroom_limits(self.compiled.requirements)
        self._sharing_bits: dict[int, int] = {}
        self._sharing_numbers: dict[Hashable, int] = {}
        classes = request.classes
        # A group without resources may be served by a sharing provider that has nothing of what is asked for.
        any_class = not all(group.resources for group in request.groups)
        #: The sharing providers that could serve a group.
        self.sharing = SharingIndex(
            one for one in snapshot.sharing if any_class or not classes.isdisjoint(one.inventories)
        )

    def search_units(self, rng: random.Random | None = None) -> Iterator[SearchUnit]:
        """Yield every search unit that could have a candidate: the trees, then the shared-only ones.

        :param rng: puts the trees in random order; None for the order of their root ids.
        """
        trees: Iterable[SearchUnit] = (unit for one in self._partitions() for unit in self._tree_units(one))
        if rng is not None:
            trees = list(trees)
            rng.shuffle(trees)
        yield from trees
        yield from self._shared_only_units()

    def _partitions(self) -> Iterable[Partition]:
        """Return the partitions that may have a tree to search: one if only one tree can satisfy a requirement."""
        for tree in [one.tree for one in self.requirements if one.tree is not None]:
            if tree.sharing and any(one.root_id == tree.root_id for one in self._snapshot.sharing):
                continue
            try:
                return [] if tree.root_id is None else [self._snapshot.find_tree(tree.root_id)[0]]
            except KeyError:
                return []
        return self._snapshot.partitions

    def _tree_units(self, partition: Partition) -> Iterator[TreeSearchUnit]:
        bits = self._provider_bits(partition)
        reach = _Reach(self, partition)
        numbers: list[int] = np.flatnonzero(self._may_have_candidate(partition, bits, reach.bits)).tolist()
        if not numbers:
            return
        keys, key_size = self._provider_keys(partition, bits) if self._with_keys else (b'', 0)
        starts = partition.starts.tolist()
        for number in numbers:
            first, last = starts[number], starts[number + 1]
            sharing, sharing_number = reach.of(number)
            key = (keys[first * key_size : last * key_size], sharing_number) if self._with_keys else None
            yield TreeSearchUnit(partition, number, first, last, sharing, key)

    def _provider_bits(self, partition: Partition) -> BitRows:
        """Return for each provider the requirements that it satisfies in its own tree, and its collective traits.

        The traits of a provider that satisfies no requirement do not count.
        """
        bits = np.zeros((len(partition.providers), self._word_count), np.uint64)
        satisfies_any = np.zeros(len(partition.providers), np.bool_)
        for number, requirement in enumerate(self.requirements):
            flags = requirement.matches(partition)
            satisfies_any |= flags
            bits[flags, number // 64] |= np.uint64(1 << number % 64)
        for number, condition in enumerate(self.compiled.collective, start=len(self.requirements)):
            flags = condition.matches(partition) & satisfies_any
            bits[flags, number // 64] |= np.uint64(1 << number % 64)
        return bits

    def _may_have_candidate(self, partition: Partition, bits: BitRows, reached: BitRows) -> Flags:
        """Return which trees may have a candidate: every bit has a provider, and one of the tree has a requirement's.

        :param bits: those of the providers.
        :param reached: those of the sharing providers that reach each tree.
        """
        trees = combine_by_tree(partition, bits)
        every, requirements = self._mask(self._bit_count), self._mask(len(self.requirements))
        kept: Flags = partition.has_root & ((trees | reached) & every == every).all(axis=1)
        kept &= (trees & requirements != 0).any(axis=1)
        if self.compiled.root.conditions:
            kept &= self.accepted_roots(partition)
        if not self.compiled.request.nested_aware:
            # Below 1.29 one provider of the tree has to satisfy all requirements that no sharing provider satisfies.
            alone = ~reached & requirements
            alone = alone[partition.tree_numbers] if len(alone) > 1 else alone
            kept &= combine_by_tree(partition, (bits & alone == alone).all(axis=1))
        return kept

    def _provider_keys(self, partition: Partition, bits: BitRows) -> tuple[bytes, int]:
        """Return for each provider all that the assignments depend on, as bytes, and the number of bytes of each.

        These are the bits, whether it is a sharing provider, with a ``same_subtree`` its parent, and its headroom of
        each class that several requirements name.
        """
        satisfies_any = bits.any(axis=1)
        shares = partition.with_traits(lambda names: SHARING_TRAIT in names) & satisfies_any
        columns = [bits.view(np.int64), shares[:, np.newaxis].astype(np.int64)]
        if self.compiled.request.same_subtree:
            columns.append(partition.parents[:, np.newaxis])
        for name, limit in self._headroom_limits.items():
            column = np.zeros((len(bits), 1), np.int64)
            inventories = partition.inventory_columns.get(name)
            if inventories is not None:
                column[inventories.positions, 0] = np.minimum(inventories.headroom, limit)
                column[~satisfies_any] = 0
            columns.append(column)
        matrix = np.concatenate(columns, axis=1)
        return matrix.tobytes(), matrix.shape[1] * matrix.itemsize

    # Trees, for ``explain`` ---------------------------------------------------------------------------------

    def accepted_roots(self, partition: Partition) -> Flags:
        """Return for each tree whether its root is accepted."""
        flags: Flags = self.compiled.root.matches(partition)[partition.starts[:-1]]
        return flags

    def satisfied(self, partition: Partition) -> Flags:
        """Return for each tree whether its root is accepted and every bit has a provider, own or sharing."""
        together = combine_by_tree(partition, self._provider_bits(partition)) | _Reach(self, partition).bits
        every = self._mask(self._bit_count)
        flags: Flags = partition.has_root & self.accepted_roots(partition) & (together & every == every).all(axis=1)
        return flags

    # Sharing providers --------------------------------------------------------------------------------------

    def bits_of_sharing(self, sharing: Providers) -> BitRows:
        """Return the bits that sharing providers together have for other trees: one row, without the first axis."""
        return self._row(functools.reduce(lambda bits, one: bits | self._bits_of(one), sharing, 0))

    def number_of_sharing(self, sharing: Providers) -> int:
        """Return a number for a group of sharing providers; groups on which assignments depend equally have the same.

        As ``_provider_keys``, but below 1.29 it also depends on which of them are in the same tree.
        """
        key: list[Hashable] = [
            (self._bits_of(one), *(_headroom(one, name, limit) for name, limit in self._headroom_limits.items()))
            for one in sharing
        ]
        if not self.compiled.request.nested_aware:
            roots = [one.root_id for one in sharing]
            key.append(tuple(map(roots.index, roots)))
        if self.compiled.request.same_subtree:
            key.append(tuple(tuple(one.id in other.ancestors for one in sharing) for other in sharing))
        return self._sharing_numbers.setdefault(tuple(key), len(self._sharing_numbers))

    def _bits_of(self, provider: Provider) -> int:
        """Return the bits of one sharing provider for other trees."""
        bits = self._sharing_bits.get(provider.id)
        if bits is None:
            bits = sum(1 << n for n, one in enumerate(self.requirements) if one.rejection(provider, None) is None)
            if bits:
                collective = enumerate(self.compiled.collective, start=len(self.requirements))
                bits |= sum(1 << n for n, one in collective if one.accepts(provider.traits))
            self._sharing_bits[provider.id] = bits
        return bits

    def _shared_only_units(self) -> Iterator[SearchUnit]:
        """Yield the shared-only search units: none unless sharing providers alone could serve the whole request.

        If not every root is accepted, these are groups of sharing providers that reach one that is: the roots of the
        sharing providers themselves, at which candidates of a single aggregate are found otherwise, may be rejected.
        """
        shared = self.sharing.aggregates
        rejects_roots = bool(self.compiled.root.conditions)
        min_aggregates = 1 if rejects_roots else 2
        every = (1 << len(self.requirements)) - 1
        together = functools.reduce(lambda bits, one: bits | self._bits_of(one), self.sharing.providers, 0)
        if len(shared) < min_aggregates or together & every != every:
            return
        reached: set[frozenset[str]] = set()
        for partition in self._snapshot.partitions:
            sets = partition.tree_aggregates
            codes = (
                np.unique(sets.codes[partition.has_root & self.accepted_roots(partition)])
                if rejects_roots
                else range(len(sets.values))
            )
            reached.update(sets.values[code] & shared for code in codes)
        yield from self.sharing.shared_only_units(sorted(reached, key=sorted), min_aggregates)

    # Bits as words ------------------------------------------------------------------------------------------

    def _mask(self, count: int) -> BitRows:
        """Return a row of words in which the lowest ``count`` bits are set."""
        return self._row((1 << count) - 1)

    def _row(self, bits: int) -> BitRows:
        return np.array([bits >> 64 * number & 2**64 - 1 for number in range(self._word_count)], np.uint64)


class _Reach:
    """The sharing providers of other trees that reach each tree of a partition.

    ``bits`` has what they satisfy: a row for each tree, or a single row if there are no sharing providers.
    """

    def __init__(self, prefilter: Prefilter, partition: Partition) -> None:
        self._prefilter = prefilter
        self._partition = partition
        aggregates = prefilter.sharing.aggregates
        self._by_code: list[tuple[Providers, int]] = []
        if not aggregates:
            self.bits = prefilter.bits_of_sharing(())[np.newaxis, :]
            return
        sets = partition.tree_aggregates
        reaching = [prefilter.sharing.reaching(names & aggregates) for names in sets.values]
        self._by_code = [(sharing, prefilter.number_of_sharing(sharing)) for sharing in reaching]
        self._codes: list[int] = sets.codes.tolist()
        self.bits = np.stack([prefilter.bits_of_sharing(sharing) for sharing in reaching])[sets.codes]
        # Trees that have sharing providers themselves, which must not be counted a second time.
        self._own = {int(partition.tree_numbers[position]) for position in partition.sharing}

    def of(self, tree: int) -> tuple[Providers, int]:
        """Return the sharing providers of other trees that reach a tree, and their ``number_of_sharing``."""
        if not self._by_code:
            return (), -1
        sharing, number = self._by_code[self._codes[tree]]
        if tree in self._own:
            root_id = int(self._partition.roots[tree])
            sharing = tuple(one for one in sharing if one.root_id != root_id)
            number = self._prefilter.number_of_sharing(sharing)
        return sharing, number


def _headroom_limits(requirements: Sequence[Requirement]) -> Mapping[str, int]:
    """Return the classes that several requirements name, with the sum of their amounts: more makes no difference."""
    times: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for one in requirements:
        times.update(name for name, _ in one.resources)
        total.update(dict(one.resources))
    return {name: min(total[name], 2**62) for name, count in sorted(times.items()) if count > 1}


def _headroom(provider: Provider, name: str, limit: int) -> int:
    inventory = provider.inventories.get(name)
    return min(inventory.headroom, limit) if inventory else 0
