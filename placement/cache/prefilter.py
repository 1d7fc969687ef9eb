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
import itertools
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.snapshot import Snapshot
from placement.candidates.providers import Provider
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.requirements import CompiledRequest, Requirement, compile_request
from placement.candidates.search_units import Providers, SearchUnit, SharingIndex

#: Bits as above, with the axes (providers or trees, words).
BitRows = NDArray[np.uint64]


class TreeSearchUnit(SearchUnit):
    """A search unit with trees of a partition: those with ``numbers``, whose roots are at the positions ``firsts``."""

    __slots__ = ('_reach', 'firsts', 'numbers', 'partition')

    def __init__(self, reach: _Reach, numbers: list[int], firsts: list[int], tree_size: int, key: Hashable) -> None:
        # Not through ``super``, as there may be one for each of many thousand trees.
        self.partition = reach.partition
        self.tree = self.partition.providers[firsts[0] : firsts[0] + tree_size]
        self.tree_size = tree_size
        self.sharing = reach.of(numbers[0])
        self.equivalence_key = key
        self.numbers = numbers
        self.firsts = firsts
        self.count = len(numbers)
        self._reach = reach

    def __getitem__(self, trees: slice) -> TreeSearchUnit:
        return TreeSearchUnit(
            self._reach, self.numbers[trees], self.firsts[trees], self.tree_size, self.equivalence_key
        )

    def sharing_of_each(self) -> Sequence[Providers]:
        return (self.sharing,) if self.count == 1 else self._reach.of_equivalent(self.numbers)

    def uuids(self, positions: Sequence[int]) -> list[str]:
        size, providers = self.tree_size, self.partition.providers
        return [
            (providers[first + at] if at < size else sharing[at - size]).uuid
            for first, sharing in zip(self.firsts, self.sharing_of_each(), strict=True)
            for at in positions
        ]


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
        # A group without resources may be served by a sharing provider that has none of the requested resources.
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
            trees = [unit[at : at + 1] for unit in trees for at in range(unit.count)]
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
        """Yield the trees that may have a candidate. Equivalent ones that follow one another are one search unit."""
        bits = self._provider_bits(partition)
        reach = _Reach(self, partition)
        numbers = np.flatnonzero(self._may_have_candidate(partition, bits, reach.bits))
        if not len(numbers):
            return
        firsts, sizes = partition.starts[numbers], np.diff(partition.starts)[numbers]
        columns = self._key_columns(partition, bits) if self._with_keys else []
        begins = np.ones(len(numbers), np.bool_)
        if self._with_keys:
            begins[1:] = ~(_equal_to_previous(columns, firsts, sizes) & reach.equal_to_previous(numbers))
        all_numbers, all_firsts = numbers.tolist(), firsts.tolist()
        for start, end in itertools.pairwise([*np.flatnonzero(begins).tolist(), len(numbers)]):
            first, size, key = all_firsts[start], int(sizes[start]), None
            if self._with_keys:
                key = (*[one[first : first + size].tobytes() for one in columns], reach.number(all_numbers[start]))
            yield TreeSearchUnit(reach, all_numbers[start:end], all_firsts[start:end], size, key)

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
        """Return which trees may have a candidate: every bit has a provider, and the tree has one for a requirement.

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

    def _key_columns(self, partition: Partition, bits: BitRows) -> list[NDArray[Any]]:
        """Return columns with all of each provider that the assignments depend on.

        These are the bits, whether it is a sharing provider, with a ``same_subtree`` its parent, and its headroom of
        each class that several requirements name.
        """
        satisfies_any = bits.any(axis=1)
        shares = partition.with_traits(lambda names: SHARING_TRAIT in names) & satisfies_any
        columns: list[NDArray[Any]] = [*bits.T, shares]
        if self.compiled.request.same_subtree:
            columns.append(partition.parents)
        for name, limit in self._headroom_limits.items():
            column = np.zeros(len(bits), np.int64)
            inventories = partition.inventory_columns.get(name)
            if inventories is not None:
                column[inventories.positions] = np.minimum(inventories.headroom, limit)
                column[~satisfies_any] = 0
            columns.append(column)
        return columns

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
        """Return the number of a group of sharing providers. Groups that allow the same assignments have one number.

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

        With conditions on roots, these are groups of sharing providers that reach an accepted root, also those of a
        single aggregate. Otherwise candidates of a single aggregate are found at the roots of the sharing providers.
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
        self.partition = partition
        self._prefilter = prefilter
        self._own: frozenset[int] = frozenset()
        aggregates = prefilter.sharing.aggregates
        self._codes: list[int] = []
        if not aggregates:
            self.bits = prefilter.bits_of_sharing(())[np.newaxis, :]
            return
        sets = partition.tree_aggregates
        self._codes = sets.codes.tolist()
        self._groups = [prefilter.sharing.reaching(names & aggregates) for names in sets.values]
        self._numbers = list(map(prefilter.number_of_sharing, self._groups))
        self.bits = np.stack(list(map(prefilter.bits_of_sharing, self._groups)))[sets.codes]
        # Trees that have sharing providers themselves, which must not be counted a second time.
        self._own = frozenset(partition.tree_numbers[partition.sharing].tolist())

    def of(self, tree: int) -> Providers:
        """Return the sharing providers of other trees that reach a tree."""
        if not self._codes:
            return ()
        sharing = self._groups[self._codes[tree]]
        if tree in self._own:
            root_id = int(self.partition.roots[tree])
            sharing = tuple(one for one in sharing if one.root_id != root_id)
        return sharing

    def of_equivalent(self, trees: Sequence[int]) -> list[Providers]:
        """Return the sharing providers that reach each of several equivalent trees, none of which has any itself."""
        return [self._groups[self._codes[tree]] for tree in trees] if self._codes else [()] * len(trees)

    def number(self, tree: int) -> int:
        """Return the ``number_of_sharing`` of the sharing providers of other trees that reach a tree."""
        if not self._codes:
            return -1
        if tree in self._own:
            return self._prefilter.number_of_sharing(self.of(tree))
        return self._numbers[self._codes[tree]]

    def equal_to_previous(self, trees: Integers) -> Flags:
        """Return for each of ``trees`` but the first whether its ``number`` is known to be that of the tree before."""
        if not self._codes:
            return np.ones(len(trees) - 1, np.bool_)
        numbers = np.array(self._numbers)[self.partition.tree_aggregates.codes[trees]]
        own = np.isin(trees, list(self._own))
        equal: Flags = (numbers[1:] == numbers[:-1]) & ~(own[1:] | own[:-1])
        return equal


def _equal_to_previous(columns: Sequence[NDArray[Any]], firsts: Integers, sizes: Integers) -> Flags:
    """Return for each of some trees but the first whether the columns of its providers equal those of the one before.

    :param columns: an item for each provider.
    :param firsts: the position of the root of each tree.
    :param sizes: the number of providers of each tree.
    """
    equal: Flags = sizes[1:] == sizes[:-1]
    varying = [column for column in columns if (column != column[0]).any()]
    if varying and len(equal):
        sizes = sizes[1:]
        begins = np.cumsum(sizes) - sizes
        offsets = np.arange(sizes.sum()) - np.repeat(begins, sizes)
        current, previous = np.repeat(firsts[1:], sizes) + offsets, np.repeat(firsts[:-1], sizes) + offsets
        for column in varying:
            equal &= np.logical_and.reduceat(column[current] == column[previous], begins)
    return equal


def _headroom_limits(requirements: Sequence[Requirement]) -> Mapping[str, int]:
    """Return the classes that several requirements name, with the sums of their amounts, which limit headroom."""
    times: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for one in requirements:
        times.update(name for name, _ in one.resources)
        total.update(dict(one.resources))
    return {name: min(total[name], 2**62) for name, count in sorted(times.items()) if count > 1}


def _headroom(provider: Provider, name: str, limit: int) -> int:
    inventory = provider.inventories.get(name)
    return min(inventory.headroom, limit) if inventory else 0
