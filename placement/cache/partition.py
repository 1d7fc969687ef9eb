"""Keeps some thousand resource providers, in whole trees, as columns. A refresh replaces the changed partitions.

A vector of flags or numbers has one item for each provider of a partition or one for each tree, as documented.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.cache.dictionary_column import DictionaryColumn, NameSet
from placement.cache.inventory_columns import (
    Entry,
    Flags,
    Integers,
    InventoryColumns,
    UsageColumns,
    find_sorted,
)
from placement.candidates.providers import Provider
from placement.candidates.request import SHARING_TRAIT

#: The providers of one tree: the root, then the others in order of id.
Tree = tuple[Provider, ...]

_Bits = TypeVar('_Bits', np.uint64, np.bool_)

#: The number of values of ``form`` for which a partition keeps fragments.
_MAX_FORMS = 6


@dataclass(frozen=True, eq=False)
class Partition:
    """Trees in order of their root ids.

    A *position* is the index of a provider in ``providers``, a *number* the index of a tree in ``roots``.

    ``starts`` has the position of the first provider of each tree and, at the end, the number of providers. ``roots``
    has the root id of each tree. ``has_root`` says for each tree whether its first provider is its root. A tree
    without its root, which only a damaged database has, is listed but not searched. ``traits`` and ``aggregates`` have
    an item for each provider. ``inventory_columns`` is by resource class.
    """

    providers: tuple[Provider, ...]
    starts: Integers
    roots: Integers
    has_root: Flags
    traits: DictionaryColumn
    aggregates: DictionaryColumn
    inventory_columns: Mapping[str, InventoryColumns]
    _fragments: dict[Hashable, list[bytes | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Iterable[Tree]) -> Partition:
        """Make a partition of ``trees``, which are in order of their root ids."""
        providers = tuple(itertools.chain.from_iterable(trees))
        return cls(
            providers,
            *_trees(providers),
            DictionaryColumn.build(one.traits for one in providers),
            DictionaryColumn.build(one.aggregates for one in providers),
            {name: InventoryColumns.of(entries) for name, entries in _entries(enumerate(providers)).items()},
        )

    @property
    def first_root_id(self) -> int:
        """The root id of the first tree."""
        return self.providers[0].root_id

    @functools.cached_property
    def tree_numbers(self) -> Integers:
        """For each provider the number of its tree."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @functools.cached_property
    def _by_id(self) -> tuple[Integers, Integers]:
        """The ids of the providers, ascending, and the position of each."""
        ids = np.fromiter((one.id for one in self.providers), np.int64, len(self.providers))
        order = np.argsort(ids)
        return ids[order], order

    @functools.cached_property
    def by_uuid(self) -> Mapping[str, int]:
        """The position of each provider, by uuid."""
        return {one.uuid: position for position, one in enumerate(self.providers)}

    @functools.cached_property
    def by_name(self) -> Mapping[str, int]:
        """The position of each provider that has a name, by name."""
        return {one.name: position for position, one in enumerate(self.providers) if one.name is not None}

    @functools.cached_property
    def sharing(self) -> Sequence[int]:
        """The positions of the sharing providers that are in an aggregate."""
        shares = self.traits.where(lambda names: SHARING_TRAIT in names) & self.aggregates.where(bool)
        positions: list[int] = np.flatnonzero(shares).tolist()
        return positions

    @functools.cached_property
    def tree_aggregates(self) -> DictionaryColumn:
        """For each tree (not provider) the aggregates of all its providers together."""
        sets = [self.aggregates.values[number] for number in self.aggregates.codes.tolist()]
        starts = self.starts.tolist()
        return DictionaryColumn.build(
            sets[first] if last - first == 1 else frozenset().union(*sets[first:last])
            for first, last in itertools.pairwise(starts)
        )

    def tree(self, number: int) -> Tree:
        """Return the tree with this number within the partition."""
        return self.providers[self.starts[number] : self.starts[number + 1]]

    def tree_number(self, root_id: int) -> int | None:
        """Return the number of the tree with this root id, None if it is not in the partition."""
        number = int(np.searchsorted(self.roots, root_id))
        return number if number < len(self.roots) and self.roots[number] == root_id else None

    @functools.cached_property
    def parents(self) -> Integers:
        """For each provider the index of its parent within the tree, -1 if its parent is not in it."""
        found = np.full(len(self.providers), -1, np.int64)
        for first, last in itertools.pairwise(self.starts.tolist()):
            if last - first > 1:
                index_of = {one.id: index for index, one in enumerate(self.providers[first:last])}
                found[first:last] = [index_of.get(one.parent_id or 0, -1) for one in self.providers[first:last]]
        return found

    # The conditions of requirements (``candidates.requirements.ProviderColumns``) -----------------------------

    def all_providers(self) -> Flags:
        """Return true for each provider."""
        return np.ones(len(self.providers), np.bool_)

    def with_capacity(self, resource_class: str, amount: int) -> Flags:
        """Return whether each provider can allocate ``amount`` of a resource class."""
        flags = np.zeros(len(self.providers), np.bool_)
        columns = self.inventory_columns.get(resource_class)
        if columns is not None:
            flags[columns.positions_with_capacity(amount)] = True
        return flags

    def with_traits(self, predicate: Callable[[NameSet], bool]) -> Flags:
        """Return whether the traits of each provider satisfy ``predicate``."""
        return self.traits.where(predicate)

    def with_aggregates(self, predicate: Callable[[NameSet], bool]) -> Flags:
        """Return whether the aggregates of each provider satisfy ``predicate``."""
        return self.aggregates.where(predicate)

    def of_roots(self, flags: Flags) -> Flags:
        """Return for each provider the flag of the first provider of its tree."""
        return flags[self.starts[:-1]][self.tree_numbers]

    def in_tree(self, root_id: int | None) -> Flags:
        """Return whether each provider is in the tree with this root id; None is the id of no tree."""
        number = None if root_id is None else self.tree_number(root_id)
        flags = np.zeros(len(self.providers), np.bool_)
        if number is not None:
            flags[self.starts[number] : self.starts[number + 1]] = True
        return flags

    def fragments(self, form: Hashable, positions: Sequence[int], write: Callable[[Provider], bytes]) -> list[bytes]:
        """Return what ``write`` makes of the providers at some positions; cached until the provider changes.

        :param form: identifies ``write`` and all that its result depends on but the provider.
        """
        cached = self._fragments.get(form)
        if cached is None:
            while len(self._fragments) >= _MAX_FORMS:
                # ``list`` and ``pop`` with a default are safe if other threads do the same.
                self._fragments.pop(list(self._fragments)[0], None)  # noqa: RUF015
            cached = self._fragments[form] = [None] * len(self.providers)
        for position in [position for position in positions if cached[position] is None]:
            cached[position] = write(self.providers[position])
        return [fragment for position in positions if (fragment := cached[position]) is not None]

    # Refreshes ----------------------------------------------------------------------------------------------

    def with_usages(self, usages: UsageColumns) -> Partition:
        """Return the partition with other usage and generations, as they are after claims.

        :raises KeyError: a provider or an inventory is not in the partition.
        """
        sorted_ids, order = self._by_id
        positions = order[find_sorted(sorted_ids, usages.ids)]
        columns = dict(self.inventory_columns)
        for name, (owners, used) in usages.used.items():
            columns[name] = columns[name].with_used(positions[owners], used)
        changed = positions.tolist()
        providers = list(self.providers)
        inventories = [dict(providers[position].inventories) for position in changed]
        for name, (owners, used) in usages.used.items():
            for owner, amount in zip(owners.tolist(), used.tolist(), strict=True):
                present = inventories[owner]
                if (inventory := present[name]).used != amount:
                    present[name] = inventory.with_used(amount)
        for position, generation, modified, present in zip(
            changed, usages.generations.tolist(), usages.modified_times, inventories, strict=True
        ):
            providers[position] = providers[position].with_usage(generation, modified, present)
        copies: dict[Hashable, list[bytes | None]] = {}
        partition = replace(self, providers=tuple(providers), inventory_columns=columns, _fragments=copies)
        for cached in ('_by_id', 'tree_numbers', 'by_uuid', 'by_name', 'sharing', 'tree_aggregates', 'parents'):
            if cached in self.__dict__:
                partition.__dict__[cached] = self.__dict__[cached]
        for form, fragments in list(self._fragments.items()):
            kept = copies[form] = list(fragments)
            for position in changed:
                kept[position] = None
        return partition

    def with_trees(self, trees: Mapping[int, Tree]) -> Partition | None:
        """Return the partition with some trees replaced, added or removed; None if no tree is left.

        :param trees: by root id, in any order; an empty one removes the tree.
        """
        providers: list[Provider] = []
        new_positions = np.full(len(self.providers), -1, np.int64)
        fresh: dict[int, Provider] = {}
        done = 0

        def keep(end: int) -> None:
            new_positions[done:end] = np.arange(len(providers), len(providers) + end - done)
            providers.extend(self.providers[done:end])

        for root_id, tree in sorted(trees.items()):
            number = int(np.searchsorted(self.roots, root_id))
            exists = self.tree_number(root_id) is not None
            keep(int(self.starts[number]))
            done = int(self.starts[number + exists])
            fresh.update(enumerate(tree, start=len(providers)))
            providers.extend(tree)
        keep(len(self.providers))
        return self._rearranged(tuple(providers), new_positions, fresh) if providers else None

    def _rearranged(
        self, providers: tuple[Provider, ...], new_positions: Integers, fresh: Mapping[int, Provider]
    ) -> Partition:
        added = _entries(fresh.items())
        columns = {}
        for name in self.inventory_columns.keys() | added.keys():
            present, entries = self.inventory_columns.get(name), added.get(name, [])
            found = present.rearranged(new_positions, entries) if present else InventoryColumns.of(entries)
            if found is not None:
                columns[name] = found
        size = len(providers)
        return Partition(
            providers,
            *_trees(providers),
            self.traits.rearranged(new_positions, size, {at: one.traits for at, one in fresh.items()}),
            self.aggregates.rearranged(new_positions, size, {at: one.aggregates for at, one in fresh.items()}),
            columns,
        )


def combine_by_tree(partition: Partition, of_providers: NDArray[_Bits]) -> NDArray[_Bits]:
    """Combine the values of the providers of each tree with a bitwise or.

    :param of_providers: an item (or a row of items) for each provider of ``partition``.
    :returns: an item (or a row) for each tree.
    """
    if len(partition.starts) == len(of_providers) + 1:
        return of_providers
    combined: NDArray[_Bits] = np.bitwise_or.reduceat(of_providers, partition.starts[:-1], axis=0)
    return combined


def partition_trees(trees: Sequence[Tree], size: int) -> Iterator[Partition]:
    """Yield partitions of about ``size`` providers, made of ``trees``, which are in order of their root ids."""
    waiting: list[Tree] = []
    count = 0
    for tree in trees:
        waiting.append(tree)
        count += len(tree)
        if count >= size:
            yield Partition.of(waiting)
            waiting, count = [], 0
    if waiting:
        yield Partition.of(waiting)


def _trees(providers: Sequence[Provider]) -> tuple[Integers, Integers, Flags]:
    """Return ``starts``, ``roots`` and ``has_root`` of a partition."""
    roots = np.fromiter((one.root_id for one in providers), np.int64, len(providers))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(roots)) + 1, [len(providers)]]).astype(np.int64)
    ids = np.fromiter((providers[start].id for start in starts[:-1].tolist()), np.int64, len(starts) - 1)
    own = roots[starts[:-1]]
    return starts, own, ids == own


def _entries(providers: Iterable[tuple[int, Provider]]) -> dict[str, list[Entry]]:
    """Return the entries of the inventory columns, by resource class.

    :param providers: pairs of position and provider, in order of position.
    """
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for position, provider in providers:
        for name, inventory in provider.inventories.items():
            found[name].append((position, inventory))
    return found
