"""Stores a few thousand resource providers, in whole trees, as columns. A refresh replaces the changed partitions.

A vector of flags or numbers has one item per provider of a partition or, where documented, one item per tree.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.cache.dictionary_columns import NameSetColumn
from placement.cache.inventory_columns import Flags, Integers, InventoryColumns, PositionedInventory
from placement.cache.providers import SHARING_TRAIT, Provider, Usage, summary_size

#: The providers of one tree: the root, then the others in order of id.
Tree = tuple[Provider, ...]

_Bits = TypeVar('_Bits', np.uint64, np.bool_)

#: The number of values of ``cache_key`` for which a partition keeps fragments.
_MAX_CACHE_KEYS = 6


@dataclass(frozen=True, eq=False)
class Partition:
    """Trees in order of their root ids.

    A *position* is the index of a provider in ``providers``, a *number* the index of a tree in ``roots``.

    ``with_usages`` keeps all cached properties, so none of them may depend on usages and generations. A column that
    does is a field, which it replaces, as it replaces ``providers`` and ``inventory_columns``.
    """

    providers: tuple[Provider, ...]
    #: The position of the first provider of each tree and, at the end, the number of providers.
    starts: Integers
    #: The root id of each tree.
    roots: Integers
    #: For each tree whether its first provider is its root. Only a damaged database has trees without a root; they are
    #: listed but not searched.
    has_root: Flags
    # For each provider its traits, and its aggregates.
    traits: NameSetColumn
    aggregates: NameSetColumn
    #: By resource class.
    inventory_columns: Mapping[str, InventoryColumns]
    #: By ``cache_key`` of ``fragments``, the result for each provider; empty bytes if there is none.
    _fragments: dict[Hashable, list[bytes]] = field(default_factory=dict)

    @classmethod
    def build(cls, trees: Iterable[Tree]) -> Partition:
        """Make a partition of ``trees``.

        They are in order of their root ids. If not, ``tree_number`` and ``with_trees`` do not work.
        """
        providers = tuple(itertools.chain.from_iterable(trees))
        return cls(
            providers,
            *_trees(providers),
            NameSetColumn.build(provider.traits for provider in providers),
            NameSetColumn.build(provider.aggregates for provider in providers),
            {name: InventoryColumns.build(entries) for name, entries in _entries(enumerate(providers)).items()},
        )

    @classmethod
    def concatenated(cls, partitions: Sequence[Partition]) -> Partition:
        """Return some partitions as one, in this order, to read all their columns at once."""
        if len(partitions) == 1:
            return partitions[0]
        firsts = list(itertools.accumulate((partition.size for partition in partitions), initial=0))
        parts: defaultdict[str, list[InventoryColumns]] = defaultdict(list)
        for partition, first in zip(partitions, firsts, strict=False):
            for name, columns in partition.inventory_columns.items():
                parts[name].append(replace(columns, positions=columns.positions + first))
        inventory_columns = {name: InventoryColumns.concatenated(columns) for name, columns in parts.items()}
        starts = [partition.starts[:-1] + first for partition, first in zip(partitions, firsts, strict=False)]
        combined = cls(
            tuple(itertools.chain.from_iterable(partition.providers for partition in partitions)),
            np.concatenate([*starts, firsts[-1:]]),
            np.concatenate([partition.roots for partition in partitions]),
            np.concatenate([partition.has_root for partition in partitions]),
            NameSetColumn.concatenated([partition.traits for partition in partitions]),
            NameSetColumn.concatenated([partition.aggregates for partition in partitions]),
            inventory_columns,
        )
        # Partitions keep this after claims, and making it takes a union for each tree.
        of_trees = [partition.tree_aggregates for partition in partitions]
        vars(combined)['tree_aggregates'] = NameSetColumn.concatenated(of_trees)
        return combined

    @functools.cached_property
    def size(self) -> int:
        """The number of providers."""
        return len(self.providers)

    @functools.cached_property
    def tree_numbers(self) -> Integers:
        """For each provider the number of its tree."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @functools.cached_property
    def distinct_sets(self) -> int:
        """The number of distinct sets of traits or of aggregates, whichever is larger."""
        return max(len(self.traits.values), len(self.aggregates.values))

    @functools.cached_property
    def by_id(self) -> Mapping[int, int]:
        """The position of each provider, by id."""
        return {provider.id: position for position, provider in enumerate(self.providers)}

    @functools.cached_property
    def by_uuid(self) -> Mapping[str, int]:
        """The position of each provider, by uuid."""
        return {provider.uuid: position for position, provider in enumerate(self.providers)}

    @functools.cached_property
    def by_name(self) -> Mapping[str, int]:
        """The position of each provider that has a name, by name."""
        return {
            provider.name: position for position, provider in enumerate(self.providers) if provider.name is not None
        }

    @functools.cached_property
    def max_summary_size(self) -> int:
        """An upper bound of ``summary_size`` of a provider: with all classes, and the longest set of traits."""
        return max(summary_size(self.inventory_columns, traits) for traits in self.traits.values)

    @functools.cached_property
    def has_sharing_trait(self) -> Flags:
        """For each provider whether it is a sharing provider, with or without aggregates."""
        return self.traits.where(lambda names: SHARING_TRAIT in names)

    @functools.cached_property
    def sharing(self) -> Sequence[int]:
        """The positions of the sharing providers that are in an aggregate."""
        return np.flatnonzero(self.has_sharing_trait & self.aggregates.where(bool)).tolist()

    @functools.cached_property
    def tree_aggregates(self) -> NameSetColumn:
        """For each tree, the aggregates of all its providers together."""
        sets = [self.aggregates.values[number] for number in self.aggregates.codes.tolist()]
        starts = self.starts.tolist()
        return NameSetColumn.build(
            sets[first] if last - first == 1 else frozenset().union(*sets[first:last])
            for first, last in itertools.pairwise(starts)
        )

    def reached_by(self, provider: Provider) -> Flags:
        """Return for each tree whether a provider of another tree has an aggregate in common with it."""
        reached = self.tree_aggregates.where(lambda names: not names.isdisjoint(provider.aggregates))
        return reached & (self.roots != provider.root_id)

    def tree(self, number: int) -> Tree:
        return self.providers[self.starts[number] : self.starts[number + 1]]

    def tree_number(self, root_id: int) -> int | None:
        """Return the number of the tree with this root id; None if it is not in the partition."""
        number = int(np.searchsorted(self.roots, root_id))
        return number if number < len(self.roots) and self.roots[number] == root_id else None

    @functools.cached_property
    def parents(self) -> Integers:
        """For each provider, the index of its parent within the tree; -1 if the tree does not have its parent."""
        indexes = np.full(self.size, -1, np.int64)
        for first, last in itertools.pairwise(self.starts.tolist()):
            if last - first > 1:
                index_of = {provider.id: index for index, provider in enumerate(self.providers[first:last])}
                indexes[first:last] = [
                    index_of.get(provider.parent_id or 0, -1) for provider in self.providers[first:last]
                ]
        return indexes

    # The conditions of requirements --------------------------------------------------------------------------

    def all_providers(self) -> Flags:
        """Return true for each provider."""
        return np.ones(self.size, np.bool_)

    def only(self, position: int | None) -> Flags:
        """Return true for the provider at ``position``; for none if it is None."""
        flags = np.zeros(self.size, np.bool_)
        if position is not None:
            flags[position] = True
        return flags

    def of_root(self, flags: Flags) -> Flags:
        """Return for each provider the flag of its root: of the first provider of its tree."""
        return flags[self.starts[:-1]][self.tree_numbers]

    def in_tree(self, root_id: int | None) -> Flags:
        """Return for each provider whether it is in the tree with this root id. No tree has the id None."""
        return (self.roots == (-1 if root_id is None else root_id))[self.tree_numbers]

    def fragments(
        self, cache_key: Hashable, positions: Sequence[int], encode: Callable[[Provider], bytes]
    ) -> list[bytes]:
        """Return the results of ``encode`` for the providers at ``positions``. Cache each until the provider changes.

        :param cache_key: identifies ``encode``, and everything except the provider that its result depends on.
        :param encode: its results are not empty. The cache has empty bytes for providers that it was not called for.
        """
        cached = self._fragments.get(cache_key)
        if cached is None:
            while len(self._fragments) >= _MAX_CACHE_KEYS:
                # ``list`` and ``pop`` with a default are safe even if other threads do the same.
                self._fragments.pop(list(self._fragments)[0], None)  # noqa: RUF015
            cached = self._fragments[cache_key] = [b''] * self.size
        # A list with many thousand providers usually has all of them, and then makes no call for each.
        if not all(fragments := [cached[position] for position in positions]):
            for position in positions:
                cached[position] = cached[position] or encode(self.providers[position])
            fragments = [cached[position] for position in positions]
        return fragments

    # Refreshes ----------------------------------------------------------------------------------------------

    def with_usages(self, usages: Mapping[int, Usage]) -> Partition:
        """Return the partition after claims.

        :param usages: by id of the provider.
        :raises KeyError: a provider or an inventory is not in the partition.
        """
        providers, positions = list(self.providers), [self.by_id[id_] for id_ in usages]
        used: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for position, usage in zip(positions, usages.values(), strict=True):
            providers[position] = providers[position].with_usage(usage)
            for name, amount in usage.used.items():
                used[name][position] = amount
        columns = dict(self.inventory_columns)
        for name, used_at in used.items():
            columns[name] = columns[name].with_used(used_at)
        copies: dict[Hashable, list[bytes]] = {}
        partition = replace(self, providers=tuple(providers), inventory_columns=columns, _fragments=copies)
        # All cached properties, and the fields that have not changed.
        vars(partition).update(vars(self) | vars(partition))
        for cache_key, fragments in list(self._fragments.items()):
            copy = copies[cache_key] = list(fragments)
            for position in positions:
                copy[position] = b''
        return partition

    def with_trees(self, trees: Mapping[int, Tree]) -> Partition | None:
        """Return the partition with some trees replaced, added or removed; None if no tree is left.

        :param trees: by root id, in any order. An empty tree removes the tree.
        """
        providers: list[Provider] = []
        new_positions = np.full(self.size, -1, np.int64)
        fresh: dict[int, Provider] = {}
        present = dict(self._fragments)
        fragments: dict[Hashable, list[bytes]] = {cache_key: [] for cache_key in present}
        done = 0

        def keep(end: int) -> None:
            new_positions[done:end] = np.arange(len(providers), len(providers) + end - done)
            providers.extend(self.providers[done:end])
            for cache_key, cached in fragments.items():
                cached.extend(present[cache_key][done:end])

        for root_id, tree in sorted(trees.items()):
            number = int(np.searchsorted(self.roots, root_id))
            exists = self.tree_number(root_id) is not None
            keep(int(self.starts[number]))
            done = int(self.starts[number + exists])
            fresh.update(enumerate(tree, start=len(providers)))
            providers.extend(tree)
            for cached in fragments.values():
                cached.extend([b''] * len(tree))
        keep(self.size)
        return self._rearranged(providers, new_positions, fresh, fragments) if providers else None

    def _rearranged(
        self,
        providers: Sequence[Provider],
        new_positions: Integers,
        fresh: Mapping[int, Provider],
        fragments: dict[Hashable, list[bytes]],
    ) -> Partition:
        added = _entries(fresh.items())
        columns = {}
        for name in self.inventory_columns.keys() | added.keys():
            present, entries = self.inventory_columns.get(name), added.get(name, [])
            column = present.rearranged(new_positions, entries) if present else InventoryColumns.build(entries)
            if column is not None:
                columns[name] = column
        size = len(providers)
        return Partition(
            tuple(providers),
            *_trees(providers),
            self.traits.rearranged(
                new_positions, size, {position: provider.traits for position, provider in fresh.items()}
            ),
            self.aggregates.rearranged(
                new_positions, size, {position: provider.aggregates for position, provider in fresh.items()}
            ),
            columns,
            fragments,
        )


def or_by_tree(partition: Partition, of_providers: NDArray[_Bits]) -> NDArray[_Bits]:
    """Combine the values of the providers of each tree with a bitwise or.

    :param of_providers: one item, or one row of items, for each provider of ``partition``.
    :returns: one item, or one row, for each tree.
    """
    if len(partition.starts) == len(of_providers) + 1:
        return of_providers
    return np.bitwise_or.reduceat(of_providers, partition.starts[:-1], axis=0)


def partition_trees(trees: Sequence[Tree], size: int) -> Iterator[Partition]:
    """Divide ``trees``, which are in order of their root ids, into partitions of about ``size`` providers."""
    waiting: list[Tree] = []
    count = 0
    for tree in trees:
        waiting.append(tree)
        count += len(tree)
        if count >= size:
            yield Partition.build(waiting)
            waiting, count = [], 0
    if waiting:
        yield Partition.build(waiting)


def _trees(providers: Sequence[Provider]) -> tuple[Integers, Integers, Flags]:
    """Return ``starts``, ``roots`` and ``has_root`` of a partition."""
    roots = np.fromiter(map(operator.attrgetter('root_id'), providers), np.int64, len(providers))
    starts = np.append(np.flatnonzero(np.diff(roots, prepend=0)), len(providers))
    ids = np.fromiter(map(operator.attrgetter('id'), providers), np.int64, len(providers))
    firsts = starts[:-1]
    return starts, roots[firsts], ids[firsts] == roots[firsts]


def _entries(providers: Iterable[tuple[int, Provider]]) -> dict[str, list[PositionedInventory]]:
    """Return the entries of the inventory columns, by resource class.

    :param providers: pairs of position and provider, in order of position.
    """
    entries: defaultdict[str, list[PositionedInventory]] = defaultdict(list)
    for position, provider in providers:
        for name, inventory in provider.inventories.items():
            entries[name].append((position, inventory))
    return entries
