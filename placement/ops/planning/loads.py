"""What each consumer has on each tree, as shapes that are counted instead of listed."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from placement.cache.inventory_columns import Integers
from placement.db import sql, tables
from placement.ops.planning.hosts import Hosts, Matrix, build_hosts

#: Pairs of the column of a class and an amount, in order of column: what one provider supplies.
Role = tuple[tuple[int, int], ...]

#: What a consumer has on one tree, or on sharing providers (-1): the tree, and the row, class and amount of each
#: allocation.
_Part = tuple[int, tuple[int, ...], Role]

#: How many allocations one statement reads. They come as one text, whose length the database limits.
_ALLOCATIONS_PER_STATEMENT = 150_000
_COLUMNS = ('k.id', 'a.resource_provider_id', 'a.resource_class_id', 'a.used')
_OF_PROVIDERS = (
    '{source} WHERE k.uuid IN (SELECT b.consumer_id FROM {allocations} b WHERE b.resource_provider_id IN ({ids}))'
)
_SOURCE = f'{tables.consumers} k JOIN {tables.allocations} a ON a.consumer_id = k.uuid'
# Without LEFT, MariaDB looks up the allocations of each consumer, which takes twice as long.
_OF_ALLOCATIONS = (
    f'{tables.allocations} a LEFT JOIN {tables.consumers} k ON k.uuid = a.consumer_id WHERE a.id BETWEEN {{}} AND {{}}'
)


@dataclass(frozen=True)
class PlanOptions:
    """Where loads may go."""

    #: Whether what is on two providers may not come together on one.
    isolate: bool = False
    #: Whether a destination has the custom traits of the source, and is in its aggregates.
    keep_traits: bool = False
    keep_aggregates: bool = False
    #: Whether to use the destinations where most is free, not those where least is.
    spread: bool = False
    #: Whether the allocations on sharing providers move with the rest.
    move_shared: bool = False


@dataclass(frozen=True)
class Shape:
    """What one consumer has on one tree."""

    #: One role for each provider, sorted.
    roles: tuple[Role, ...]
    #: The rows of the sharing providers that must reach a destination, because what they supply stays.
    stays: frozenset[int] = frozenset()
    #: What moves from sharing providers to other ones.
    shared: tuple[Role, ...] = ()
    #: The other trees on which the consumer has a load: no destinations.
    elsewhere: frozenset[int] = frozenset()
    #: The traits and aggregates that a destination must have.
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()

    @property
    def is_simple(self) -> bool:
        """Whether it goes to one provider."""
        return len(self.roles) == 1 and not self.shared


@dataclass(frozen=True, eq=False)
class Loads:
    """One item for each consumer and tree, in order of the trees: tree, index of the shape, and id of the consumer."""

    shapes: Sequence[Shape]
    tree: Integers
    shape: Integers
    consumer: Integers
    #: The number of allocations without an inventory.
    without_inventory: int
    #: The number of inventories whose recorded usage is not the sum of the allocations that were read.
    mismatches: int

    @functools.cached_property
    def pairs(self) -> tuple[Integers, Integers, Integers]:
        """Each tree and shape that occur together, and the number of consumers."""
        keys, numbers = np.unique(self.tree * max(len(self.shapes), 1) + self.shape, return_counts=True)
        return (*np.divmod(keys, max(len(self.shapes), 1)), numbers)

    @functools.cached_property
    def counts(self) -> dict[int, list[tuple[int, int]]]:
        """For each tree with a load, pairs of the index of a shape and the number of consumers with it."""
        counts: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for tree, shape, number in zip(*(column.tolist() for column in self.pairs), strict=True):
            counts[tree].append((shape, number))
        return counts


def amounts_of(items: Sequence[Iterable[Role]], class_count: int) -> Matrix:
    """Return for each item what its roles have of each class."""
    amounts = np.zeros((len(items), class_count), np.int64)
    for index, roles in enumerate(items):
        for role in roles:
            for column, amount in role:
                amounts[index, column] += amount
    return amounts


def _read_rows(tx: sa.Connection, provider_ids: Sequence[int] | None) -> Integers:
    """Read the allocations of all consumers, or only those of consumers that have some of these providers.

    :returns: rows of consumer, provider, class and amount. The first three are ids.
    """
    rows = [np.empty((0, len(_COLUMNS)), np.int64)]
    if provider_ids is not None:
        for chunk in sql.chunks(provider_ids):
            source = sql.statement(
                _OF_PROVIDERS, source=_SOURCE, allocations=tables.allocations, ids=', '.join(map(str, chunk))
            )
            rows += sql.fetch_integers(tx, (_COLUMNS, source))
        # A consumer with allocations in several chunks is read several times.
        return np.unique(np.concatenate(rows), axis=0)
    last = tx.execute(sa.select(sa.func.max(tables.allocations.c.id))).scalar() or 0
    columns = ('COALESCE(k.id, -1)', *_COLUMNS[1:])
    for first in range(0, last + 1, _ALLOCATIONS_PER_STATEMENT):
        source = _OF_ALLOCATIONS.format(first, first + _ALLOCATIONS_PER_STATEMENT - 1)
        rows += sql.fetch_integers(tx, (columns, source))
    allocations = np.concatenate(rows)
    return allocations[allocations[:, 0] >= 0]


def read_uuids(tx: sa.Connection, consumers: Collection[int]) -> dict[int, str]:
    """Read the uuids of consumers."""
    table = tables.consumers.c
    return {
        id_: uuid
        for chunk in sql.chunks(sorted(set(consumers)))
        for id_, uuid in tx.execute(sa.select(table.id, table.uuid).where(table.id.in_(chunk)))
    }


def read_loads(
    tx: sa.Connection, hosts: Hosts, trees: Sequence[int] | None, options: PlanOptions
) -> tuple[Hosts, Loads]:
    """Read the loads of some trees, or of all, and return the hosts with a column for each class of these."""
    ids = None if trees is None else [provider.id for tree in trees for provider in hosts.trees[tree]]
    rows = _read_rows(tx, ids)
    class_ids = set(rows[:, 2].tolist())
    if not {hosts.snapshot.names.classes[id_] for id_ in class_ids} <= set(hosts.classes):
        hosts = build_hosts(hosts.snapshot, class_ids)
    return hosts, group_loads(hosts, rows, trees, options)


def group_loads(hosts: Hosts, rows: Integers, trees: Sequence[int] | None, options: PlanOptions) -> Loads:
    """Group allocations into the loads of some trees, or of all.

    :param rows: as ``_read_rows`` returns them.
    """
    ids = np.array([provider.id for tree in hosts.trees for provider in tree], np.int64)
    by_id = np.argsort(ids)
    rows = rows[np.isin(rows[:, 1], ids)]
    row = by_id[np.searchsorted(ids[by_id], rows[:, 1])]
    column = np.searchsorted([hosts.snapshot.names.class_ids[name] for name in hosts.classes], rows[:, 2])
    tree = np.where(hosts.is_own[row], hosts.tree_of[row], -1)
    order = np.lexsort((column, row, tree, rows[:, 0]))
    consumer, tree, row, column, amount = (values[order] for values in (rows[:, 0], tree, row, column, rows[:, 3]))
    is_source = np.ones(len(hosts.trees), np.bool_)
    if trees is not None:
        is_source = np.isin(np.arange(len(hosts.trees)), trees)
    within = (tree >= 0) & is_source[tree]
    allocated = np.zeros(hosts.used.shape, np.int64)
    np.add.at(allocated, (row, column), amount)
    is_read = is_source[hosts.tree_of] & hosts.is_own
    shapes = _Shapes(hosts, options)
    # Where equal shapes of several trees have equal rows.
    relative = np.where(tree < 0, row, row - hosts.partition.starts[tree])
    items = np.array(sorted(shapes.group(consumer, tree, relative, column, amount)), np.int64).reshape(-1, 3)
    load_tree, shape, id_ = items[is_source[items[:, 0]]].T
    return Loads(
        list(shapes.numbers),
        load_tree,
        shape,
        id_,
        without_inventory=int((hosts.max_unit[row, column] == 0)[within].sum()),
        mismatches=int((hosts.max_unit > 0)[is_read][(allocated != hosts.used)[is_read]].sum()),
    )


class _Shapes:
    """Makes shapes, each once, with ``numbers`` in their order."""

    def __init__(self, hosts: Hosts, options: PlanOptions) -> None:
        self.numbers: dict[Shape, int] = {}
        self._hosts = hosts
        self._options = options
        self._number = functools.cache(self._number_of)

    def group(
        self, consumer: Integers, tree: Integers, row: Integers, column: Integers, amount: Integers
    ) -> Iterator[tuple[int, int, int]]:
        """Yield tree, index of the shape and consumer of each load.

        :param tree: -1 for sharing providers. All are ordered by consumer, tree and row.
        """
        is_narrowed = self._options.keep_traits or self._options.keep_aggregates
        firsts = np.flatnonzero((np.diff(consumer, prepend=-1) != 0) | (np.diff(tree, prepend=-2) != 0))
        rows, pairs = tuple(row.tolist()), tuple(zip(column.tolist(), amount.tolist(), strict=True))
        spans = itertools.pairwise([*firsts.tolist(), len(consumer)])
        parts = zip(consumer[firsts].tolist(), tree[firsts].tolist(), spans, strict=True)
        for id_, of_consumer in itertools.groupby(parts, key=operator.itemgetter(0)):
            held = [(number, rows[first:end], pairs[first:end]) for _, number, (first, end) in of_consumer]
            for part in held:
                number, *roles = part
                if number >= 0:
                    other_parts = tuple([other for other in held if other is not part]) if len(held) > 1 else ()
                    yield number, self._number(*roles, other_parts, number if is_narrowed else -1), id_

    def _number_of(self, rows: tuple[int, ...], pairs: Role, other_parts: tuple[_Part, ...], tree: int) -> int:
        """Return the index of the shape of what a consumer has on one tree.

        :param tree: the tree whose traits and aggregates matter; -1 if none do.
        """
        pools = [other for other in other_parts if other[0] < 0]
        elsewhere = frozenset(other for other, *_ in other_parts if other >= 0)
        members = () if tree < 0 else self._hosts.trees[tree]
        traits = (name for provider in members for name in provider.traits if name.startswith('CUSTOM_'))
        aggregates = (uuid for provider in members for uuid in provider.aggregates)
        shape = Shape(
            _roles(rows, pairs),
            frozenset(row for _, rows, _ in pools for row in rows),
            # What supplies loads on several trees moves with none of them.
            _roles(*pools[0][1:]) if self._options.move_shared and pools and not elsewhere else (),
            elsewhere,
            frozenset(traits if self._options.keep_traits else ()),
            frozenset(aggregates if self._options.keep_aggregates else ()),
        )
        return self.numbers.setdefault(shape, len(self.numbers))


def _roles(positions: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[Role, ...]:
    """Return one role for each provider."""
    by_provider: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for position, pair in zip(positions, pairs, strict=True):
        by_provider[position].append(pair)
    return tuple(sorted(map(tuple, by_provider.values())))
