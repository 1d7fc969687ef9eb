"""A block: some thousand resource providers, in whole trees, as columns. A change of the mirror replaces blocks.

A vector of flags or numbers has one item for each provider of a block or one for each tree, as the docstrings say.
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

#: The records of one tree: the root, then the others in order of id.
Tree = tuple[ProviderRow, ...]

_Bits = TypeVar('_Bits', np.uint64, np.bool_)

#: For how many values of ``form`` a block keeps fragments.
_FORMS = 6


@dataclass(frozen=True, eq=False)
class Partition:
    """Trees in order of their root ids.

    A *position* is the index of a provider in ``records``, a *number* the index of a tree in ``roots``.

    ``starts`` has the position of the first record of each tree and, at the end, the number of records. ``roots`` has
    the root id of each tree. ``whole`` tells for each tree whether its first record is its root. A tree without its
    root, which only a damaged database has, is listed but not searched. ``traits`` and ``aggregates`` have an item for
    each provider. ``stocks`` is by resource class id.
    """

    records: tuple[ProviderRow, ...]
    starts: Integers
    roots: Integers
    whole: Flags
    traits: DictionaryColumn
    aggregates: DictionaryColumn
    stocks: Mapping[int, InventoryColumns]
    _fragments: dict[Hashable, list[bytes | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Iterable[Tree]) -> Partition:
        """Make a block of ``trees``, which are in order of their root ids."""
        records = tuple(itertools.chain.from_iterable(trees))
        return cls(
            records,
            *_trees(records),
            DictionaryColumn.build(one.traits for one in records),
            DictionaryColumn.build(one.aggregates for one in records),
            {class_id: InventoryColumns.of(entries) for class_id, entries in _entries(enumerate(records)).items()},
        )

    @property
    def low(self) -> int:
        """The root id of the first tree."""
        return self.records[0].root_id

    @functools.cached_property
    def tree_of(self) -> Integers:
        """For each provider the number of its tree."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @functools.cached_property
    def root_rows(self) -> Integers:
        """For each provider the position of its root."""
        return self.starts[:-1][self.tree_of]

    @functools.cached_property
    def by_uuid(self) -> Mapping[str, int]:
        """The position of each provider, by uuid."""
        return {one.uuid: row for row, one in enumerate(self.records)}

    @functools.cached_property
    def by_name(self) -> Mapping[str, int]:
        """The position of each provider that has a name, by name."""
        return {one.name: row for row, one in enumerate(self.records) if one.name is not None}

    @functools.cached_property
    def sharing(self) -> Sequence[int]:
        """The positions of the sharing providers that are in an aggregate."""
        shares = self.traits.where(lambda names: SHARING_TRAIT in names) & self.aggregates.where(bool)
        rows: list[int] = np.flatnonzero(shares).tolist()
        return rows

    @functools.cached_property
    def tree_aggregates(self) -> DictionaryColumn:
        """For each tree (not provider) the aggregates of all its providers together."""
        sets = [self.aggregates.values[number] for number in self.aggregates.of.tolist()]
        starts = self.starts.tolist()
        return DictionaryColumn.build(
            sets[first] if last - first == 1 else frozenset().union(*sets[first:last])
            for first, last in itertools.pairwise(starts)
        )

    def tree(self, number: int) -> Tree:
        """Return the tree with this number within the block."""
        return self.records[self.starts[number] : self.starts[number + 1]]

    def tree_number(self, root_id: int) -> int | None:
        """Return the number of the tree with this root id, None if it is not in the block."""
        number = int(np.searchsorted(self.roots, root_id))
        return number if number < len(self.roots) and self.roots[number] == root_id else None

    # Conditions on all providers at once --------------------------------------------------------------------

    def with_room(self, class_id: int, amount: int) -> Flags:
        """Return for each provider whether it has room for ``amount`` of a resource class."""
        fits = np.zeros(len(self.records), np.bool_)
        stock = self.stocks.get(class_id)
        if stock is not None:
            fits[stock.fitting(amount)] = True
        return fits

    @functools.cached_property
    def parents(self) -> Integers:
        """For each provider the index of its parent within the tree, -1 if its parent is not in it."""
        found = np.full(len(self.records), -1, np.int64)
        for first, last in itertools.pairwise(self.starts.tolist()):
            if last - first > 1:
                index_of = {one.id: index for index, one in enumerate(self.records[first:last])}
                found[first:last] = [index_of.get(one.parent_id or 0, -1) for one in self.records[first:last]]
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
        """Yield what ``write`` makes of the records at the positions ``rows``; kept until the record changes.

        :param form: identifies ``write`` and all that its result depends on but the record.
        """
        kept = self._fragments.get(form)
        if kept is None:
            while len(self._fragments) >= _FORMS:
                # ``list`` and ``pop`` with a default are safe if other threads do the same.
                self._fragments.pop(list(self._fragments)[0], None)  # noqa: RUF015
            kept = self._fragments[form] = [None] * len(self.records)
        for row in rows:
            fragment = kept[row]
            if fragment is None:
                fragment = kept[row] = write(self.records[row])
            yield fragment

    def bare(self) -> Partition:
        """Return the same block with no fragments kept."""
        return replace(self, _fragments={})

    # Other blocks made of this one ---------------------------------------------------------------------------

    def with_usages(self, usages: Mapping[int, UsageRow]) -> Partition:
        """Return the block with other usage and generations, as they are after claims.

        :param usages: by position.
        """
        records = list(self.records)
        used: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for row, usage in usages.items():
            records[row] = with_usage(records[row], usage)
            for class_id, one in records[row].inventories:
                used[class_id][row] = one.used
        stocks = {**self.stocks, **{class_id: self.stocks[class_id].with_used(by) for class_id, by in used.items()}}
        block = Partition(tuple(records), self.starts, self.roots, self.whole, self.traits, self.aggregates, stocks)
        self._hand_on(block, usages)
        return block

    def with_trees(self, trees: Mapping[int, Tree]) -> Partition | None:
        """Return the block with some trees replaced, added or removed; None if no tree is left.

        :param trees: by root id, in any order; an empty one removes the tree.
        """
        records: list[ProviderRow] = []
        position = np.full(len(self.records), -1, np.int64)
        fresh: dict[int, ProviderRow] = {}
        done = 0

        def keep(end: int) -> None:
            position[done:end] = np.arange(len(records), len(records) + end - done)
            records.extend(self.records[done:end])

        for root_id, tree in sorted(trees.items()):
            first, last = self._place(root_id)
            keep(first)
            done = last
            fresh.update(enumerate(tree, start=len(records)))
            records.extend(tree)
        keep(len(self.records))
        return self._moved(tuple(records), position, fresh) if records else None

    def _place(self, root_id: int) -> tuple[int, int]:
        """The first position of the tree with this root id, and the one after its last.

        If it is not in the block, twice the position where it belongs.
        """
        number = int(np.searchsorted(self.roots, root_id))
        exists = number < len(self.roots) and self.roots[number] == root_id
        return int(self.starts[number]), int(self.starts[number + exists])

    def _moved(
        self, records: tuple[ProviderRow, ...], position: Integers, fresh: Mapping[int, ProviderRow]
    ) -> Partition:
        added = _entries(fresh.items())
        stocks = {}
        for class_id in self.stocks.keys() | added.keys():
            present, entries = self.stocks.get(class_id), added.get(class_id, [])
            stock = present.moved(position, entries) if present else InventoryColumns.of(entries)
            if stock is not None:
                stocks[class_id] = stock
        return Partition(
            records,
            *_trees(records),
            self.traits.moved(position, len(records), {row: one.traits for row, one in fresh.items()}),
            self.aggregates.moved(position, len(records), {row: one.aggregates for row, one in fresh.items()}),
            stocks,
        )

    def _hand_on(self, block: Partition, changed: Iterable[int]) -> None:
        """Copy cached values, and the fragments of positions not ``changed``, to ``block`` with the same providers."""
        for name in ('tree_of', 'root_rows', 'by_uuid', 'by_name', 'sharing', 'tree_aggregates', 'parents'):
            if name in self.__dict__:
                block.__dict__[name] = self.__dict__[name]
        for form, kept in list(self._fragments.items()):
            fragments = list(kept)
            for row in changed:
                fragments[row] = None
            block._fragments[form] = fragments


def any_of_tree(block: Partition, of_providers: NDArray[_Bits]) -> NDArray[_Bits]:
    """Combine the values of the providers of each tree with a bitwise or.

    :param of_providers: an item (or a row of items) for each provider of ``block``.
    :returns: an item (or a row) for each tree.
    """
    if len(block.starts) == len(of_providers) + 1:
        return of_providers
    combined: NDArray[_Bits] = np.bitwise_or.reduceat(of_providers, block.starts[:-1], axis=0)
    return combined


def in_blocks(trees: Sequence[Tree], size: int) -> Iterator[Partition]:
    """Yield blocks of about ``size`` providers, made of ``trees``, which are in order of their root ids."""
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


def _trees(records: Sequence[ProviderRow]) -> tuple[Integers, Integers, Flags]:
    """``starts``, ``roots`` and ``whole`` of a block."""
    roots = np.fromiter((one.root_id for one in records), np.int64, len(records))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(roots)) + 1, [len(records)]]).astype(np.int64)
    ids = np.fromiter((records[start].id for start in starts[:-1].tolist()), np.int64, len(starts) - 1)
    own = roots[starts[:-1]]
    return starts, own, ids == own


def _entries(records: Iterable[tuple[int, ProviderRow]]) -> dict[int, list[Entry]]:
    """The entries of each stock, by resource class id, made of pairs of position and record."""
    found: defaultdict[int, list[Entry]] = defaultdict(list)
    for row, record in records:
        for class_id, inventory in record.inventories:
            found[class_id].append((row, inventory))
    return found
