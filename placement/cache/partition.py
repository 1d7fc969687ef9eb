"""Keeps some thousand resource providers, in whole trees, as columns. A refresh replaces the changed partitions.

A vector of flags or numbers has one item for each provider of a partition or one for each tree, as the docstrings say.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.cache.dictionary_column import DictionaryColumn
from placement.cache.inventory_columns import Entry, Flags, Integers, InventoryColumns
from placement.cache.rows import ProviderRow, UsageRow, with_usage
from placement.candidates.request import SHARING_TRAIT

#: The rows of one tree: the root, then the others in order of id.
Tree = tuple[ProviderRow, ...]

_Bits = TypeVar('_Bits', np.uint64, np.bool_)

#: For how many values of ``form`` a partition keeps fragments.
_FORMS = 6


@dataclass(frozen=True, eq=False)
class Partition:
    """Trees in order of their root ids.

    A *position* is the index of a provider in ``rows``, a *number* the index of a tree in ``roots``.

    ``starts`` has the position of the first row of each tree and, at the end, the number of rows. ``roots`` has
    the root id of each tree. ``has_root`` tells for each tree whether its first row is its root. A tree without its
    root, which only a damaged database has, is listed but not searched. ``traits`` and ``aggregates`` have an item for
    each provider. ``inventory_columns`` is by resource class id.
    """

    rows: tuple[ProviderRow, ...]
    starts: Integers
    roots: Integers
    has_root: Flags
    traits: DictionaryColumn
    aggregates: DictionaryColumn
    inventory_columns: Mapping[int, InventoryColumns]
    _fragments: dict[Hashable, list[bytes | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Iterable[Tree]) -> Partition:
        """Make a partition of ``trees``, which are in order of their root ids."""
        rows = tuple(itertools.chain.from_iterable(trees))
        return cls(
            rows,
            *_trees(rows),
            DictionaryColumn.build(one.traits for one in rows),
            DictionaryColumn.build(one.aggregates for one in rows),
            {class_id: InventoryColumns.of(entries) for class_id, entries in _entries(enumerate(rows)).items()},
        )

    @property
    def first_root_id(self) -> int:
        """The root id of the first tree."""
        return self.rows[0].root_id

    @functools.cached_property
    def tree_numbers(self) -> Integers:
        """For each provider the number of its tree."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @functools.cached_property
    def root_positions(self) -> Integers:
        """For each provider the position of its root."""
        return self.starts[:-1][self.tree_numbers]

    @functools.cached_property
    def by_uuid(self) -> Mapping[str, int]:
        """The position of each provider, by uuid."""
        return {one.uuid: row for row, one in enumerate(self.rows)}

    @functools.cached_property
    def by_name(self) -> Mapping[str, int]:
        """The position of each provider that has a name, by name."""
        return {one.name: row for row, one in enumerate(self.rows) if one.name is not None}

    @functools.cached_property
    def sharing(self) -> Sequence[int]:
        """The positions of the sharing providers that are in an aggregate."""
        shares = self.traits.where(lambda names: SHARING_TRAIT in names) & self.aggregates.where(bool)
        rows: list[int] = np.flatnonzero(shares).tolist()
        return rows

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
        return self.rows[self.starts[number] : self.starts[number + 1]]

    def tree_number(self, root_id: int) -> int | None:
        """Return the number of the tree with this root id, None if it is not in the partition."""
        number = int(np.searchsorted(self.roots, root_id))
        return number if number < len(self.roots) and self.roots[number] == root_id else None

    # Conditions on all providers at once --------------------------------------------------------------------

    def with_capacity(self, class_id: int, amount: int) -> Flags:
        """Return for each provider whether it has room for ``amount`` of a resource class."""
        fits = np.zeros(len(self.rows), np.bool_)
        columns = self.inventory_columns.get(class_id)
        if columns is not None:
            fits[columns.positions_with_capacity(amount)] = True
        return fits

    @functools.cached_property
    def parents(self) -> Integers:
        """For each provider the index of its parent within the tree, -1 if its parent is not in it."""
        found = np.full(len(self.rows), -1, np.int64)
        for first, last in itertools.pairwise(self.starts.tolist()):
            if last - first > 1:
                index_of = {one.id: index for index, one in enumerate(self.rows[first:last])}
                found[first:last] = [index_of.get(one.parent_id or 0, -1) for one in self.rows[first:last]]
        return found

    def with_traits(
        self, required: frozenset[str], forbidden: frozenset[str], any_of: Collection[frozenset[str]] = ()
    ) -> Flags:
        """Return for each provider whether its traits are as wanted.

        :param required: it has all of these.
        :param forbidden: it has none of these.
        :param any_of: it has at least one of each set.
        """
        return self.traits.where(
            lambda names: (
                required <= names and forbidden.isdisjoint(names) and not any(one.isdisjoint(names) for one in any_of)
            )
        )

    def in_aggregates(self, member_of: Sequence[frozenset[str]]) -> Flags:
        """Return for each provider whether it is in at least one aggregate of each set of ``member_of``."""
        return self.aggregates.where(lambda names: all(not any_of.isdisjoint(names) for any_of in member_of))

    def not_in_aggregates(self, forbidden: frozenset[str]) -> Flags:
        """Return for each provider whether it is in none of the ``forbidden`` aggregates."""
        return self.aggregates.where(forbidden.isdisjoint)

    def fragments(self, form: Hashable, rows: Iterable[int], write: Callable[[ProviderRow], bytes]) -> Iterator[bytes]:
        """Yield what ``write`` makes of the rows at the positions ``rows``; kept until the row changes.

        :param form: identifies ``write`` and all that its result depends on but the row.
        """
        kept = self._fragments.get(form)
        if kept is None:
            while len(self._fragments) >= _FORMS:
                # ``list`` and ``pop`` with a default are safe if other threads do the same.
                self._fragments.pop(list(self._fragments)[0], None)  # noqa: RUF015
            kept = self._fragments[form] = [None] * len(self.rows)
        for row in rows:
            fragment = kept[row]
            if fragment is None:
                fragment = kept[row] = write(self.rows[row])
            yield fragment

    def without_fragments(self) -> Partition:
        """Return the same partition with no fragments kept."""
        return replace(self, _fragments={})

    # Other partitions made of this one ---------------------------------------------------------------------------

    def with_usages(self, usages: Mapping[int, UsageRow]) -> Partition:
        """Return the partition with other usage and generations, as they are after claims.

        :param usages: by position.
        """
        rows = list(self.rows)
        used: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for row, usage in usages.items():
            rows[row] = with_usage(rows[row], usage)
            for class_id, one in rows[row].inventories:
                used[class_id][row] = one.used
        inventory_columns = {
            **self.inventory_columns,
            **{class_id: self.inventory_columns[class_id].with_used(by) for class_id, by in used.items()},
        }
        partition = Partition(
            tuple(rows), self.starts, self.roots, self.has_root, self.traits, self.aggregates, inventory_columns
        )
        self._hand_on(partition, usages)
        return partition

    def with_trees(self, trees: Mapping[int, Tree]) -> Partition | None:
        """Return the partition with some trees replaced, added or removed; None if no tree is left.

        :param trees: by root id, in any order; an empty one removes the tree.
        """
        rows: list[ProviderRow] = []
        position = np.full(len(self.rows), -1, np.int64)
        fresh: dict[int, ProviderRow] = {}
        done = 0

        def keep(end: int) -> None:
            position[done:end] = np.arange(len(rows), len(rows) + end - done)
            rows.extend(self.rows[done:end])

        for root_id, tree in sorted(trees.items()):
            first, last = self._place(root_id)
            keep(first)
            done = last
            fresh.update(enumerate(tree, start=len(rows)))
            rows.extend(tree)
        keep(len(self.rows))
        return self._moved(tuple(rows), position, fresh) if rows else None

    def _place(self, root_id: int) -> tuple[int, int]:
        """The first position of the tree with this root id, and the one after its last.

        If it is not in the partition, twice the position where it belongs.
        """
        number = int(np.searchsorted(self.roots, root_id))
        exists = number < len(self.roots) and self.roots[number] == root_id
        return int(self.starts[number]), int(self.starts[number + exists])

    def _moved(self, rows: tuple[ProviderRow, ...], position: Integers, fresh: Mapping[int, ProviderRow]) -> Partition:
        added = _entries(fresh.items())
        inventory_columns = {}
        for class_id in self.inventory_columns.keys() | added.keys():
            present, entries = self.inventory_columns.get(class_id), added.get(class_id, [])
            columns = present.moved(position, entries) if present else InventoryColumns.of(entries)
            if columns is not None:
                inventory_columns[class_id] = columns
        return Partition(
            rows,
            *_trees(rows),
            self.traits.moved(position, len(rows), {row: one.traits for row, one in fresh.items()}),
            self.aggregates.moved(position, len(rows), {row: one.aggregates for row, one in fresh.items()}),
            inventory_columns,
        )

    def _hand_on(self, partition: Partition, changed: Iterable[int]) -> None:
        """Copy cached values, and the fragments of positions not ``changed``, to ``partition``."""
        for name in ('tree_numbers', 'root_positions', 'by_uuid', 'by_name', 'sharing', 'tree_aggregates', 'parents'):
            if name in self.__dict__:
                partition.__dict__[name] = self.__dict__[name]
        for form, kept in list(self._fragments.items()):
            fragments = list(kept)
            for row in changed:
                fragments[row] = None
            partition._fragments[form] = fragments


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
    held = 0
    for tree in trees:
        waiting.append(tree)
        held += len(tree)
        if held >= size:
            yield Partition.of(waiting)
            waiting, held = [], 0
    if waiting:
        yield Partition.of(waiting)


def _trees(rows: Sequence[ProviderRow]) -> tuple[Integers, Integers, Flags]:
    """``starts``, ``roots`` and ``has_root`` of a partition."""
    roots = np.fromiter((one.root_id for one in rows), np.int64, len(rows))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(roots)) + 1, [len(rows)]]).astype(np.int64)
    ids = np.fromiter((rows[start].id for start in starts[:-1].tolist()), np.int64, len(starts) - 1)
    own = roots[starts[:-1]]
    return starts, own, ids == own


def _entries(rows: Iterable[tuple[int, ProviderRow]]) -> dict[int, list[Entry]]:
    """The entries of each columns, by resource class id, made of pairs of position and row."""
    found: defaultdict[int, list[Entry]] = defaultdict(list)
    for position, row in rows:
        for class_id, inventory in row.inventories:
            found[class_id].append((position, inventory))
    return found
