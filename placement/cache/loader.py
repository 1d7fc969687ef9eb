"""Reads the data of the cache from the tables: all providers, or some of them.

Several statements have to run in one transaction that sees one state of the database (``Database.reader``).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa

from placement.cache.inventory_columns import Integers
from placement.cache.providers import Provider, Usage
from placement.cache.snapshot import KnownNames, Snapshot
from placement.capacity import InventoryRecord
from placement.db import errors, sql, tables

_providers = tables.resource_providers
_parents = _providers.alias('parent')
_roots = _providers.alias('root')
_inventories = tables.inventories
_provider_traits = tables.resource_provider_traits
_members = tables.resource_provider_aggregates

_T = TypeVar('_T')

#: The inventories of a provider by class name, and the names of the resource classes by id.
Inventories = Mapping[str, InventoryRecord]
ClassNames = Mapping[int, str]

_PROVIDERS, _PROVIDERS_WITH_ROOTLESS = (
    sa.select(
        _providers.c.id,
        _providers.c.uuid,
        _providers.c.name,
        _providers.c.generation,
        _providers.c.parent_provider_id,
        _providers.c.root_provider_id,
        _parents.c.uuid,
        _roots.c.uuid,
        sa.func.coalesce(_providers.c.updated_at, _providers.c.created_at),
    )
    .select_from(_providers)
    .join(_roots, _roots.c.id == _providers.c.root_provider_id, isouter=with_rootless)
    .outerjoin(_parents, _parents.c.id == _providers.c.parent_provider_id)
    for with_rootless in (False, True)
)
_INVENTORIES = sa.select(
    _inventories.c.resource_provider_id,
    _inventories.c.resource_class_id,
    *(_inventories.c[name] for name in InventoryRecord._fields),
)
_CLASS_NAMES, _TRAIT_NAMES = (sa.select(table.c.id, table.c.name) for table in (tables.resource_classes, tables.traits))
_TRAITS = sa.select(_provider_traits.c.resource_provider_id, tables.traits.c.name).join(
    tables.traits, tables.traits.c.id == _provider_traits.c.trait_id
)
_AGGREGATES = sa.select(_members.c.resource_provider_id, tables.placement_aggregates.c.uuid).join(
    tables.placement_aggregates, tables.placement_aggregates.c.id == _members.c.aggregate_id
)
_USED = ('resource_provider_id', 'resource_class_id', 'used')
#: If the range from the lowest to the highest id is at most this many times as long as the list of ids, the whole range
#: is read. This takes a database a quarter to a half of the time of a list.
_MAX_SPARSENESS = 2
#: Maximum length of a range that one statement reads. Its rows come as one text, whose length the database limits.
_MAX_RANGE = 10_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def raise_unless_restored(tx: sa.Connection) -> None:
    """Make sure that no backup of PostgreSQL is being restored into a new database, which may be in any order.

    Its tools create the keys of a table after its rows. A database without slots is rejected anyway.

    :raises IncompleteDatabase: a key is missing.
    :raises DBError: a table is missing.
    """
    if tx.dialect.name == 'postgresql':
        count = sql.execute_text(tx, _COUNT_OF_KEYS).scalar_one()
        if count != len(tables.metadata.tables):
            raise errors.IncompleteDatabase(reason='tables have no primary key, as while a backup is restored.')


_COUNT_OF_KEYS = sql.statement(
    'SELECT COUNT(*) FROM pg_index WHERE indisprimary AND indrelid IN ({tables})',
    tables=', '.join(f"'{name}'::regclass" for name in tables.metadata.tables),
)


def load_snapshot(tx: sa.Connection, report: Callable[[str], None] = lambda _table: None) -> Snapshot:
    """Read all names and providers.

    :param report: as for ``read_providers``.
    :raises IncompleteDatabase: the tables contradict each other.
    """
    with collector_paused():
        names = load_names(tx)
        return Snapshot.build(names, read_providers(tx, names.classes, report=report))


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Prevent the garbage collector from traversing what is read repeatedly, which would take a fifth of the time.

    A snapshot has no reference cycles.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def load_names(
    tx: sa.Connection, class_ids: Collection[int] | None = None, trait_ids: Collection[int] | None = None
) -> KnownNames:
    """Read the names of the resource classes and traits with these ids, or all if None. Ignore unknown ids."""
    classes = _read(tx, _CLASS_NAMES, tables.resource_classes.c.id, class_ids)
    traits = _read(tx, _TRAIT_NAMES, tables.traits.c.id, trait_ids)
    return KnownNames(dict(classes), frozenset(name for _, name in traits))


def _read(
    tx: sa.Connection, query: sa.Select[Any], id_: sa.ColumnElement[int], ids: Collection[int] | None
) -> Iterator[Any]:
    """Execute ``query`` for the rows with these ids, or for all if None."""
    if ids is None:
        return sql.fetch_rows(tx, query)
    # Most of these are few rows, which take longer if they are joined.
    return iter(tx.execute(_of_ids(query, id_), {'ids': ids}) if ids else ())


@functools.cache
def _of_ids(query: sa.Select[Any], id_: sa.ColumnElement[int]) -> sa.Select[Any]:
    """Return ``query`` with the parameter ``ids``. Making it again each time would take longer than executing it."""
    return query.where(id_.in_(sa.bindparam('ids', expanding=True)))


def read_providers(
    tx: sa.Connection,
    classes: ClassNames,
    ids: Sequence[int] | None = None,
    *,
    with_rootless: bool = False,
    report: Callable[[str], None] = lambda _table: None,
) -> Iterator[Provider]:
    """Read all providers, or some of them, in a constant number of statements.

    :param classes: the names of the resource classes by id.
    :param ids: the ids of the providers; None for all.
    :param with_rootless: whether to read providers without a recorded root, which only a damaged database has. Their
        ``root_id`` is their own id; ``root_provider_uuid`` is empty. The cache does not have them.
    :param report: called after each table except the last, with a description of the rows read.
    """
    query = _PROVIDERS_WITH_ROOTLESS if with_rootless else _PROVIDERS
    firsts: dict[Any, Any] = {}

    def intern(value: _T) -> _T:
        """Return the same object for all equal values, to save memory: many inventories and traits are equal."""
        return firsts.setdefault(value, value)

    inventories = _inventories_of(_read(tx, _INVENTORIES, _inventories.c.resource_provider_id, ids), classes, intern)
    report(f'inventories of {len(inventories)} providers')
    traits = _sets(_read(tx, _TRAITS, _provider_traits.c.resource_provider_id, ids), intern)
    report(f'traits of {len(traits)} providers')
    aggregates = _sets(_read(tx, _AGGREGATES, _members.c.resource_provider_id, ids), intern)
    report(f'aggregates of {len(aggregates)} providers')
    no_inventories: Inventories = {}
    nothing: frozenset[str] = frozenset()
    for id_, uuid, name, generation, parent_id, root_id, parent_uuid, root_uuid, modified in _read(
        tx, query, _providers.c.id, ids
    ):
        yield Provider(
            id_,
            intern(uuid),
            id_ if root_id is None else root_id,
            parent_id,
            inventories.get(id_, no_inventories),
            traits.get(id_, nothing),
            aggregates.get(id_, nothing),
            name,
            generation,
            intern(parent_uuid),
            intern(root_uuid or ''),
            sql.with_utc(modified),
        )


def load_providers(tx: sa.Connection, ids: Collection[int], classes: ClassNames) -> dict[int, Provider | None]:
    """Read the providers with these ids. The result has None for ids that do not exist."""
    providers: dict[int, Provider | None] = dict.fromkeys(ids)
    for chunk in sql.chunks(sorted(ids)):
        providers.update((provider.id, provider) for provider in read_providers(tx, classes, chunk))
    return providers


def load_usages(tx: sa.Connection, ids: Collection[int], classes: ClassNames) -> dict[int, Usage]:
    """Read the generations and usages of the providers with these ids, by id.

    One statement reads up to 900 providers, or 10,000 if their ids are close together.

    :raises KeyError: a provider does not exist.
    """
    if not ids:
        return {}
    listed = sorted(ids)
    first, last = listed[0], listed[-1]
    if last - first < _MAX_SPARSENESS * len(listed):
        starts = range(first, last + 1, _MAX_RANGE)
        conditions = [f'BETWEEN {start} AND {min(start + _MAX_RANGE - 1, last)}' for start in starts]
    else:
        conditions = [f'IN ({", ".join(map(str, chunk))})' for chunk in sql.chunks(listed)]
    rows = [sql.fetch_integers(tx, *usage_queries(tx, condition)) for condition in conditions]
    providers, inventories = map(np.concatenate, zip(*rows, strict=True))
    return usages_of(listed, providers, inventories, classes)


def usage_queries(tx: sa.Connection, condition: str) -> tuple[sql.IntegerQuery, sql.IntegerQuery]:
    """Return the queries of ``usages_of``, for ``sql.fetch_integers``.

    :param condition: the condition on the ids of providers, without the column.
    """
    modified = sql.microseconds(tx.dialect, 'COALESCE(updated_at, created_at)')
    return (
        (('id', 'generation', modified), f'{_providers} WHERE id {condition}'),
        (_USED, f'{tables.inventories} WHERE resource_provider_id {condition}'),
    )


def usages_of(
    ids: Collection[int], providers: Integers, inventories: Integers, classes: ClassNames
) -> dict[int, Usage]:
    """Return the usages of the providers with these ids, by id. The rows may also be about others.

    :param providers: rows of id, generation, and time of the last update in microseconds.
    :param inventories: rows of provider id, class id, and usage.
    :raises KeyError: a provider or a class is missing.
    """
    used: dict[int, dict[str, int]] = {id_: {} for id_ in ids}
    for id_, class_id, amount in inventories.tolist():
        if id_ in used:
            used[id_][classes[class_id]] = amount
    usages = {}
    for id_, generation, moment in providers.tolist():
        if id_ in used:
            modified = None if moment == sql.NO_MOMENT else _EPOCH + dt.timedelta(microseconds=moment)
            usages[id_] = Usage(generation, modified, used[id_])
    if missing := used.keys() - usages.keys():
        raise KeyError(missing)
    return usages


def _inventories_of(
    rows: Iterable[Any], classes: ClassNames, intern: Callable[[Any], Any]
) -> Mapping[int, Inventories]:
    entries_of: defaultdict[int, list[tuple[int, InventoryRecord]]] = defaultdict(list)
    for id_, class_id, *values in rows:
        entries_of[id_].append(intern((class_id, InventoryRecord(*values))))
    distinct: dict[tuple[tuple[int, InventoryRecord], ...], Inventories] = {}
    by_provider: dict[int, Inventories] = {}
    for id_, entries in entries_of.items():
        entries.sort()
        key = tuple(entries)
        if key not in distinct:
            try:
                distinct[key] = {classes[class_id]: inventory for class_id, inventory in entries}
            except KeyError as error:
                reason = f'an inventory of provider {id_} has the resource class {error}, which does not exist.'
                raise errors.IncompleteDatabase(reason=reason) from error
        by_provider[id_] = distinct[key]
    return by_provider


def _sets(rows: Iterable[Any], intern: Callable[[Any], Any]) -> Mapping[int, frozenset[str]]:
    names_of: defaultdict[int, set[str]] = defaultdict(set)
    for id_, name in rows:
        names_of[id_].add(intern(name))
    return {id_: intern(frozenset(names)) for id_, names in names_of.items()}
