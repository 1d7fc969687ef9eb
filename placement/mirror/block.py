"""Some thousand resource providers, in whole trees, as columns: the unit in which the mirror changes."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.candidates.request import SHARING_TRAIT
from placement.mirror.records import Record, Usage, with_usage
from placement.mirror.sets import Sets
from placement.mirror.stock import Entry, Flags, Integers, Stock

#: The records of one tree: the root first, then the others in order of id.
Tree = tuple[Record, ...]

_Bits = TypeVar('_Bits', np.uint64, np.bool_)

#: How many kinds of ready fragments of answers a block keeps.
_FORMS = 6


@dataclass(frozen=True, eq=False)
class Block:
    """Trees in order of their roots' ids. A *position* is an index into ``records``.

    ``starts`` holds the position of the first record of each tree and, at the end, the number of records; ``roots``
    the root id of each tree. ``stocks`` is keyed by resource class id. ``whole`` says for each tree whether its first
    record is its root; another tree, which only a damaged database has, is listed but never searched.
    """

    records: tuple[Record, ...]
    starts: Integers
    roots: Integers
    whole: Flags
    traits: Sets
    aggregates: Sets
    stocks: Mapping[int, Stock]
    _fragments: dict[Hashable, list[bytes | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Iterable[Tree]) -> Block:
        """Build the block of ``trees``, given in order of their roots' ids."""
        records = tuple(itertools.chain.from_iterable(trees))
        return cls(
            records,
            *_trees(records),
            Sets.build(one.traits for one in records),
            Sets.build(one.aggregates for one in records),
            {class_id: Stock.of(entries) for class_id, entries in _entries(enumerate(records)).items()},
        )

    @property
    def low(self) -> int:
        """The root id of the first tree."""
        return self.records[0].root_id

    @functools.cached_property
    def tree_of(self) -> Integers:
        """The number of the tree that each provider is in."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @functools.cached_property
    def root_rows(self) -> Integers:
        """The position of the root of each provider."""
        return self.starts[:-1][self.tree_of]

    @functools.cached_property
    def by_uuid(self) -> Mapping[str, int]:
        """The position of each provider."""
        return {one.uuid: row for row, one in enumerate(self.records)}

    @functools.cached_property
    def by_name(self) -> Mapping[str, int]:
        """The position of each provider that has a name."""
        return {one.name: row for row, one in enumerate(self.records) if one.name is not None}

    @functools.cached_property
    def sharing(self) -> Sequence[int]:
        """The positions of sharing providers that are in any aggregate."""
        shares = self.traits.where(lambda names: SHARING_TRAIT in names) & self.aggregates.where(bool)
        rows: list[int] = np.flatnonzero(shares).tolist()
        return rows

    @functools.cached_property
    def tree_aggregates(self) -> Sets:
        """For each tree the aggregates that any of its providers is in."""
        sets = [self.aggregates.values[number] for number in self.aggregates.of.tolist()]
        starts = self.starts.tolist()
        return Sets.build(
            sets[first] if last - first == 1 else frozenset().union(*sets[first:last])
            for first, last in itertools.pairwise(starts)
        )

    def tree(self, number: int) -> Tree:
        """Return the tree with this number within the block."""
        return self.records[self.starts[number] : self.starts[number + 1]]

    def tree_number(self, root_id: int) -> int | None:
        """Return the number of the tree with this root id, None when it is not here."""
        number = int(np.searchsorted(self.roots, root_id))
        return number if number < len(self.roots) and self.roots[number] == root_id else None

    # Conditions on providers, asked of all at once ----------------------------------------------------------

    def with_room(self, class_id: int, amount: int) -> Flags:
        """Return which providers have room for ``amount`` of a resource class."""
        fits = np.zeros(len(self.records), np.bool_)
        stock = self.stocks.get(class_id)
        if stock is not None:
            fits[stock.fitting(amount)] = True
        return fits

    def with_traits(self, required: frozenset[str], forbidden: frozenset[str]) -> Flags:
        """Return which providers have all of the ``required`` traits and none of the ``forbidden``."""
        return self.traits.where(lambda names: required <= names and forbidden.isdisjoint(names))

    def in_aggregates(self, member_of: Sequence[frozenset[str]]) -> Flags:
        """Return which providers are in at least one aggregate of each set of ``member_of``."""
        return self.aggregates.where(lambda names: all(not any_of.isdisjoint(names) for any_of in member_of))

    def fragments(self, form: Hashable, rows: Iterable[int], write: Callable[[Record], bytes]) -> Iterator[bytes]:
        """Yield what ``write`` makes of the records at ``rows``, kept from the last time as long as they do not change.

        :param form: names ``write`` and all that it depends on besides the record.
        """
        kept = self._fragments.get(form)
        if kept is None:
            while len(self._fragments) >= _FORMS:
                # In one step each, as other threads may do the same.
                self._fragments.pop(list(self._fragments)[0], None)  # noqa: RUF015
            kept = self._fragments[form] = [None] * len(self.records)
        for row in rows:
            fragment = kept[row]
            if fragment is None:
                fragment = kept[row] = write(self.records[row])
            yield fragment

    def bare(self) -> Block:
        """Return the same block without fragments."""
        return replace(self, _fragments={})

    # Other blocks made of this one ---------------------------------------------------------------------------

    def with_usages(self, usages: Mapping[int, Usage]) -> Block:
        """Return the block after claims: only usage and generations differ.

        :param usages: by position.
        """
        records = list(self.records)
        used: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for row, usage in usages.items():
            records[row] = with_usage(records[row], usage)
            for class_id, one in records[row].inventories:
                used[class_id][row] = one.used
        stocks = {**self.stocks, **{class_id: self.stocks[class_id].with_used(by) for class_id, by in used.items()}}
        block = Block(tuple(records), self.starts, self.roots, self.whole, self.traits, self.aggregates, stocks)
        self._hand_on(block, usages)
        return block

    def with_trees(self, trees: Mapping[int, Tree]) -> Block | None:
        """Return the block with some trees changed, None if nothing is left.

        :param trees: by root id, in any order; an empty one is gone, one with a new root id is added.
        """
        records: list[Record] = []
        position = np.full(len(self.records), -1, np.int64)
        fresh: dict[int, Record] = {}
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
        """The positions between which the tree with this root id is, or belongs: then they are equal."""
        number = int(np.searchsorted(self.roots, root_id))
        there = number < len(self.roots) and self.roots[number] == root_id
        return int(self.starts[number]), int(self.starts[number + there])

    def _moved(self, records: tuple[Record, ...], position: Integers, fresh: Mapping[int, Record]) -> Block:
        added = _entries(fresh.items())
        stocks = {}
        for class_id in self.stocks.keys() | added.keys():
            present, entries = self.stocks.get(class_id), added.get(class_id, [])
            stock = present.moved(position, entries) if present else Stock.of(entries)
            if stock is not None:
                stocks[class_id] = stock
        return Block(
            records,
            *_trees(records),
            self.traits.moved(position, len(records), {row: one.traits for row, one in fresh.items()}),
            self.aggregates.moved(position, len(records), {row: one.aggregates for row, one in fresh.items()}),
            stocks,
        )

    def _hand_on(self, block: Block, changed: Iterable[int]) -> None:
        """Give ``block``, with the same providers at the same positions, what was made of those not ``changed``."""
        for name in ('tree_of', 'root_rows', 'by_uuid', 'by_name', 'sharing', 'tree_aggregates'):
            if name in self.__dict__:
                block.__dict__[name] = self.__dict__[name]
        for form, kept in list(self._fragments.items()):
            fragments = list(kept)
            for row in changed:
                fragments[row] = None
            block._fragments[form] = fragments


def any_of_tree(block: Block, of_providers: NDArray[_Bits]) -> NDArray[_Bits]:
    """Combine what is said of each provider of ``block`` with a bitwise or, tree by tree."""
    if len(block.starts) == len(of_providers) + 1:
        return of_providers
    combined: NDArray[_Bits] = np.bitwise_or.reduceat(of_providers, block.starts[:-1], axis=0)
    return combined


def in_blocks(trees: Sequence[Tree], size: int) -> Iterator[Block]:
    """Yield blocks of about ``size`` providers made of ``trees``, which are in order of their roots' ids."""
    waiting: list[Tree] = []
    held = 0
    for tree in trees:
        waiting.append(tree)
        held += len(tree)
        if held >= size:
            yield Block.of(waiting)
            waiting, held = [], 0
    if waiting:
        yield Block.of(waiting)


def _trees(records: Sequence[Record]) -> tuple[Integers, Integers, Flags]:
    """The positions at which trees start, the length at the end; their root ids; whether each begins with its root."""
    roots = np.fromiter((one.root_id for one in records), np.int64, len(records))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(roots)) + 1, [len(records)]]).astype(np.int64)
    ids = np.fromiter((records[start].id for start in starts[:-1].tolist()), np.int64, len(starts) - 1)
    own = roots[starts[:-1]]
    return starts, own, ids == own


def _entries(records: Iterable[tuple[int, Record]]) -> dict[int, list[Entry]]:
    found: defaultdict[int, list[Entry]] = defaultdict(list)
    for row, record in records:
        for class_id, inventory in record.inventories:
            found[class_id].append((row, inventory))
    return found
