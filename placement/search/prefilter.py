"""Finds the trees that could have a candidate, and which of them are equivalent, with operations on columns.

It applies the requirements of a request to all providers of a partition at once. A tree that satisfies them may have a
candidate; only the solver shows whether it has one. The example shows the passes over one partition, for the
requirements A = ``resources=VCPU:4`` and B = ``resources1=SRIOV_NET_VF:1``, and the trait T of the unsuffixed group.
Its last line has the sizes for p providers (about 4,000) in t trees, and w words (usually 1)::

    provider   tree | 1: A B T | 2: tree | 3: reach | 4: kept | 5: key
    host1       0   |    1 0 1 |   1 0 1 |    0 1 0 |   yes   | 101 ... } key of the providers, and number of the
    numa1       0   |    0 0 0 |         |          |         | 000 ... } set of sharing providers that reach it
    host2       1   |    0 0 0 |   0 0 0 |    0 1 0 |   no    |
    p           t   |    p x w |   t x w |    t x w |   t     | p for each column

1. ``provider_bits``: which requirements each provider satisfies in its own tree, and which collective traits it has.
   Each is one bit (``CompiledRequest.bits``). For one provider a set of bits is an integer; in columns it is a row of
   64-bit words.
2. ``or_by_tree``: the bits that the providers of a tree have together.
3. ``_reach``: the bits of the sharing providers of other trees that reach each tree (``SharingSet``).
4. ``_may_have_candidate``: the trees in which 2 and 3 together have all bits, and that pass the rules about trees.
5. ``_key_columns``: for the kept trees, the bytes that the assignments depend on (``SearchUnit``).

A ``Prefilter`` belongs to one request. It makes a ``_PartitionFilter``, which has these arrays, for each partition in
turn. This yields the search units: each ``TreeSearchUnit`` looks up what it needs in the same arrays.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, or_by_tree
from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.search.budget import SearchBudget, StepCounter, StepLimitReached
from placement.search.conditions import PROVIDERS_PER_STEP, ProviderCondition, Requirement, TreeCondition
from placement.search.request import CompiledRequest
from placement.search.search_units import (
    NO_SHARING,
    Providers,
    SearchedPartition,
    SearchUnit,
    SharingSet,
    TreeSearchUnit,
)

#: How many trees in a column of keys count as one step.
_TREES_PER_STEP = 4
#: Bits as explained above. The axes are (providers or trees, words).
BitRows = NDArray[np.uint64]


class Prefilter:
    """Finds the search units of one request in one snapshot.

    :param compiled: the request, compiled for this snapshot or for one with the same trees.
    :param budget: limits the search; None for no limits.
    """

    def __init__(self, snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget | None = None) -> None:
        self.snapshot = snapshot
        self.compiled = compiled
        self.counter = StepCounter(budget or SearchBudget())
        #: The distinct requirements.
        self.requirements: tuple[Requirement, ...] = tuple(compiled.distinct)
        bit_count = len(self.requirements) + len(compiled.collective.sets)
        self.word_count = (bit_count + 63) // 64
        #: The row with all bits.
        self.all_bits = self.rows([(1 << bit_count) - 1])
        #: The sharing providers that could serve a group.
        self.sharing = SharingIndex(snapshot.sharing, compiled, self.counter)

    def search_units(self, rng: random.Random | None = None) -> Iterator[SearchUnit]:
        """Yield every search unit that could have a candidate: the trees, then the shared-only ones.

        Stop early if the steps of the request are used up.

        :param rng: puts the trees in random order; None keeps the order of their root ids.
        """
        with contextlib.suppress(StepLimitReached):
            shuffled: list[SearchUnit] = []
            for partition in self._partitions():
                units = _PartitionFilter(self, partition).search_units()
                if rng is None:
                    yield from units
                else:
                    shuffled += [unit[index : index + 1] for unit in units for index in range(unit.count)]
            if rng is not None:
                rng.shuffle(shuffled)
                yield from shuffled
            yield from self._shared_only_units()

    def _partitions(self) -> Iterable[Partition]:
        """Return the partitions to search. If ``in_tree`` leaves only one tree, this is at most one partition."""
        for requirement in self.requirements:
            for condition in requirement.conditions:
                if not isinstance(condition, TreeCondition):
                    continue
                root_id = condition.root_id
                if condition.may_be_shared and any(provider.root_id == root_id for provider in self.snapshot.sharing):
                    continue
                return [] if root_id is None else [self.snapshot.find_tree(root_id)[0]]
        return self.snapshot.partitions

    def _shared_only_units(self) -> Iterator[SearchUnit]:
        """Yield the shared-only search units. There are none unless sharing providers could serve the whole request."""
        bits = functools.reduce(operator.or_, map(self.sharing.bits_of, self.sharing.providers), 0)
        if ~bits & (1 << len(self.requirements)) - 1:
            return
        shared = self.sharing.aggregates
        reached: set[frozenset[str]] = set()
        for partition in self.snapshot.partitions:
            sets = partition.tree_aggregates
            codes = np.unique(sets.codes[partition.has_root & self.accepted_roots(partition)])
            reached.update(sets.values[code] & shared for code in codes.tolist())
        if not self.compiled.root.conditions:
            # Candidates from the sharing providers of one aggregate are found in the trees of these providers.
            reached = {aggregates for aggregates in reached if len(aggregates) > 1}
        for sharing in dict.fromkeys(map(self.sharing.sharing_set_in, sorted(reached, key=sorted))):
            if sharing.providers:
                yield SearchUnit((), sharing.providers, sharing.bits)

    def accepted_roots(self, partition: Partition) -> Flags:
        """Return for each tree whether its root is accepted.

        This counts no steps: the number of conditions on roots does not grow with the groups of a request, and each
        condition takes no longer than one on providers.
        """
        flags: Flags = self.compiled.root.matches(partition)[partition.starts[:-1]]
        return flags

    def rows(self, bits: Iterable[int]) -> BitRows:
        """Return sets of bits as rows of words."""
        size = 8 * self.word_count
        words = np.frombuffer(b''.join([row.to_bytes(size, 'little') for row in bits]), '<u8')
        return words.astype(np.uint64).reshape(-1, self.word_count)


class SharingIndex:
    """Finds the sharing providers that reach a tree, by the aggregates of the tree.

    The rules are in api-ref/candidate-search.md#sharing-providers-and-anchors.

    :param sharing: all sharing providers that are in an aggregate.
    :param counter: counts the steps of making sets.
    """

    def __init__(self, sharing: Iterable[Provider], compiled: CompiledRequest, counter: StepCounter) -> None:
        self._compiled = compiled
        self._counter = counter
        classes = frozenset(compiled.request.requested_classes)
        # A sharing provider without the requested resources may serve a group without resources.
        any_class = not all(group.resources for group in compiled.request.groups)
        useful = [provider for provider in sharing if any_class or not classes.isdisjoint(provider.inventories)]
        #: The sharing providers that could serve a group, in order of id.
        self.providers: Providers = tuple(sorted(useful, key=operator.attrgetter('id')))
        self._members: defaultdict[str, list[Provider]] = defaultdict(list)
        for provider in self.providers:
            for aggregate in provider.aggregates:
                self._members[aggregate].append(provider)
        #: The aggregates with at least one of these providers.
        self.aggregates = frozenset(self._members)
        self._bits: dict[Provider, int] = {}
        self._sets: dict[frozenset[str], SharingSet] = {}
        self._numbers: dict[Hashable, int] = {}

    def sharing_set_in(self, aggregates: frozenset[str]) -> SharingSet:
        """Return the providers that are in at least one of ``aggregates``."""
        aggregates &= self.aggregates
        sharing = self._sets.get(aggregates)
        if sharing is None:
            members = {provider.id: provider for name in aggregates for provider in self._members[name]}
            sharing = self._sets[aggregates] = self.sharing_set_of(tuple(members[id_] for id_ in sorted(members)))
        return sharing

    def sharing_set_of(self, providers: Providers) -> SharingSet:
        """Return ``providers``, which are in order of id, as a set.

        Its number stands for the same data that ``_key_columns`` has of the providers of trees. Below 1.29 it also
        depends on which of the providers are in the same tree.
        """
        request, limits = self._compiled.request, self._compiled.requested_sums.items()
        self._counter.count_setup(len(providers) * (1 + len(limits)))
        bits = tuple(map(self.bits_of, providers))
        key: list[Hashable] = [bits]
        for name, limit in limits:
            inventories = [provider.inventories.get(name) for provider in providers]
            key += [min(inventory.max_increase, limit) if inventory else 0 for inventory in inventories]
        if not request.nested_aware:
            numbers: dict[int, int] = {}
            key += [numbers.setdefault(provider.root_id, len(numbers)) for provider in providers]
        if request.same_subtree:
            self._counter.count_setup(sum(len(provider.ancestors) for provider in providers))
            indexes = {provider.id: index for index, provider in enumerate(providers)}
            key += [
                tuple(sorted([indexes[id_] for id_ in provider.ancestors if id_ in indexes])) for provider in providers
            ]
        number = self._numbers.setdefault(tuple(key), len(self._numbers))
        return SharingSet(providers, bits, functools.reduce(operator.or_, bits, 0), number)

    def bits_of(self, provider: Provider) -> int:
        """Return the bits of a sharing provider in other trees; 0 if it satisfies no requirement."""
        bits = self._bits.get(provider)
        if bits is None:
            self._counter.count_setup(sum(len(requirement.conditions) for requirement in self._compiled.distinct))
            bits = self._bits[provider] = self._compiled.bits(provider, None)
        return bits


class _PartitionFilter:
    """Applies the requirements of a request to all trees of a partition.

    ``provider_bits``, ``codes`` and ``sharing_sets`` are those of ``SearchedPartition``. ``_reach`` has the bits of the
    sharing providers that reach each tree: one row for each tree, or only one row if there are no sharing providers.
    """

    def __init__(self, prefilter: Prefilter, partition: Partition) -> None:
        self.partition = partition
        self.prefilter = prefilter
        self._counter = prefilter.counter
        self.provider_bits, self._satisfies_any = self._bits_of_providers()
        #: The trees that contain sharing providers. These must not be counted a second time.
        self._sharing_trees: frozenset[int] = frozenset()
        self.codes = [0] * len(partition.roots)
        self.sharing_sets = [NO_SHARING]
        self._reach = np.zeros((1, prefilter.word_count), np.uint64)
        if prefilter.sharing.aggregates:
            sets = partition.tree_aggregates
            self._counter.count_setup(len(sets.values))
            self.codes = sets.codes.tolist()
            self.sharing_sets = list(map(prefilter.sharing.sharing_set_in, sets.values))
            self._reach = prefilter.rows(sharing.all_bits for sharing in self.sharing_sets)[sets.codes]
            self._sharing_trees = frozenset(partition.tree_numbers[partition.sharing].tolist())

    def _bits_of_providers(self) -> tuple[BitRows, Flags]:
        """Return the bits of each provider, and which providers satisfy any requirement."""
        prefilter, partition = self.prefilter, self.partition
        requirements, words = prefilter.requirements, prefilter.word_count
        collective = prefilter.compiled.collective
        conditions: set[ProviderCondition] = {collective} if collective.sets else set()
        for requirement in requirements:
            conditions.update(requirement.conditions)
        for condition in conditions:
            self._counter.count_setup(condition.steps(partition))
        other_columns = words + len(requirements) + len(prefilter.compiled.requested_sums)
        self._counter.count_setup(other_columns * (1 + partition.size // PROVIDERS_PER_STEP))
        rows = np.zeros((partition.size, words), np.uint64)
        satisfies_any = np.zeros(partition.size, np.bool_)
        # The requirements of the unsuffixed group differ only in their amounts.
        evaluated: dict[ProviderCondition, Flags] = {}
        for number, requirement in enumerate(requirements):
            flags = requirement.matches(partition, evaluated)
            satisfies_any |= flags
            rows[flags, number // 64] |= np.uint64(1 << number % 64)
        if collective.sets:
            traits = [collective.satisfied_sets(names) << len(requirements) for names in partition.traits.values]
            rows[satisfies_any] |= prefilter.rows(traits)[partition.traits.codes[satisfies_any]]
        return rows, satisfies_any

    def search_units(self) -> Iterator[TreeSearchUnit]:
        """Yield the trees that may have a candidate. Successive equivalent trees are one search unit."""
        partition = self.partition
        numbers = np.flatnonzero(self._may_have_candidate())
        if not len(numbers):
            return
        firsts, sizes = partition.starts[numbers], np.diff(partition.starts)[numbers]
        columns = self._key_columns()
        self._counter.count_setup(len(columns) * len(numbers) // _TREES_PER_STEP)
        begins = np.ones(len(numbers), np.bool_)
        begins[1:] = ~_equal_to_previous(columns, firsts, sizes)
        if self.prefilter.sharing.aggregates:
            # A tree with sharing providers has a set of its own, whose number is not in ``of_trees``.
            set_numbers = np.array([sharing.number for sharing in self.sharing_sets])
            of_trees = set_numbers[partition.tree_aggregates.codes[numbers]]
            shares = np.isin(numbers, list(self._sharing_trees))
            begins[1:] |= (of_trees[1:] != of_trees[:-1]) | shares[1:] | shares[:-1]
        searched = SearchedPartition(partition, self.provider_bits, self.codes, self.sharing_sets)
        all_numbers, all_firsts = numbers.tolist(), firsts.tolist()
        for start, end in itertools.pairwise([*np.flatnonzero(begins).tolist(), len(numbers)]):
            first, size, sharing = all_firsts[start], int(sizes[start]), self.sharing_of(all_numbers[start])
            key = (*[column[first : first + size].tobytes() for column in columns], sharing.number)
            yield TreeSearchUnit(searched, sharing, all_numbers[start:end], all_firsts[start:end], size, key)

    def _may_have_candidate(self) -> Flags:
        """Return which trees may have a candidate: each bit is set for an own or a sharing provider.

        The root has to be accepted, and at least one of the tree's own providers has to satisfy a requirement.
        """
        bits = or_by_tree(self.partition, self.provider_bits) | self._reach
        flags: Flags = self.partition.has_root & (self.prefilter.all_bits & ~bits == 0).all(axis=1)
        if self.prefilter.compiled.root.conditions:
            flags &= self.prefilter.accepted_roots(self.partition)
        flags &= or_by_tree(self.partition, self._satisfies_any)
        return flags

    def _key_columns(self) -> list[NDArray[Any]]:
        """Return columns with the data of each provider that the assignments depend on.

        These are its bits, whether it is a sharing provider, its parent (only with ``same_subtree``), and the possible
        increase of its usage of each class that several requirements name. What is added here must also be added to
        ``SharingIndex.sharing_set_of``, which has the same data of the sharing providers of other trees.
        """
        partition, limits = self.partition, self.prefilter.compiled.requested_sums
        columns: list[NDArray[Any]] = [*self.provider_bits.T, partition.has_sharing_trait & self._satisfies_any]
        if self.prefilter.compiled.request.same_subtree:
            columns.append(partition.parents)
        for name, limit in limits.items():
            column = np.zeros(partition.size, np.int64)
            inventories = partition.inventory_columns.get(name)
            if inventories is not None:
                column[inventories.positions] = np.minimum(inventories.max_increase, limit)
                column[~self._satisfies_any] = 0
            columns.append(column)
        return columns

    def sharing_of(self, tree: int) -> SharingSet:
        """Return the sharing providers of other trees that reach a tree."""
        sharing = self.sharing_sets[self.codes[tree]]
        if tree in self._sharing_trees:
            root_id = int(self.partition.roots[tree])
            of_other_trees = tuple(provider for provider in sharing.providers if provider.root_id != root_id)
            sharing = self.prefilter.sharing.sharing_set_of(of_other_trees)
        return sharing


def _equal_to_previous(columns: Sequence[NDArray[Any]], firsts: Integers, sizes: Integers) -> Flags:
    """Return for each tree except the first whether the columns of its providers equal those of the previous tree.

    :param columns: columns with one item for each provider.
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
