"""The statements that read the mirror's data from the tables: all of it, or some providers.

They have to run in a transaction that sees one snapshot of the database (``Database.reader``).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from placement.cache.rows import Inventories, ProviderRow, UsageRow
from placement.cache.snapshot import KnownNames
from placement.candidates.providers import InventoryRecord
from placement.db import sql, tables

_providers = tables.resource_providers
_parents = _providers.alias('parent')
_roots = _providers.alias('root')
_inventories = tables.inventories.c
_own_traits = tables.resource_provider_traits.c
_own_aggregates = tables.resource_provider_aggregates.c

_T = TypeVar('_T')

_PROVIDERS = (
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
    .join(_roots, _roots.c.id == _providers.c.root_provider_id)
    .outerjoin(_parents, _parents.c.id == _providers.c.parent_provider_id)
)
_INVENTORIES = sa.select(
    _inventories.resource_provider_id,
    _inventories.resource_class_id,
    *(_inventories[name] for name in InventoryRecord._fields),
)
_TRAITS = sa.select(_own_traits.resource_provider_id, tables.traits.c.name).join(
    tables.traits, tables.traits.c.id == _own_traits.trait_id
)
_AGGREGATES = sa.select(_own_aggregates.resource_provider_id, tables.placement_aggregates.c.uuid).join(
    tables.placement_aggregates, tables.placement_aggregates.c.id == _own_aggregates.aggregate_id
)
_GENERATIONS = sa.select(
    _providers.c.id,
    _providers.c.generation,
    sa.func.coalesce(_providers.c.updated_at, _providers.c.created_at),
)
_USED = sa.select(_inventories.resource_provider_id, _inventories.resource_class_id, _inventories.used)


def load_names(tx: sa.Connection) -> KnownNames:
    """Read the names of all resource classes and traits."""
    classes, traits = tables.resource_classes.c, tables.traits.c
    return KnownNames(
        {row.id: row.name for row in tx.execute(sa.select(classes.id, classes.name))},
        frozenset(tx.scalars(sa.select(traits.name))),
    )


def load_all(tx: sa.Connection, report: Callable[[str], None] = lambda _what: None) -> Iterator[ProviderRow]:
    """Read all providers, in a constant number of statements.

    :param report: called after each table but the last, with a text of what was read.
    """
    return _records(tx, None, report)


def load_providers(tx: sa.Connection, ids: Collection[int]) -> dict[int, ProviderRow | None]:
    """Read the providers with these ids; None for those that do not exist."""
    found: dict[int, ProviderRow | None] = dict.fromkeys(ids)
    for chunk in sql.chunks(sorted(ids)):
        found.update((one.id, one) for one in _records(tx, chunk))
    return found


def load_usages(tx: sa.Connection, ids: Collection[int]) -> dict[int, UsageRow]:
    """Read generation and usage of the providers with these ids; those that do not exist are left out."""
    found = {}
    for chunk in sql.chunks(sorted(ids)):
        used: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for id_, class_id, amount in tx.execute(_USED.where(_inventories.resource_provider_id.in_(chunk))):
            used[id_][class_id] = amount
        for id_, generation, modified in tx.execute(_GENERATIONS.where(_providers.c.id.in_(chunk))):
            found[id_] = UsageRow(generation, _aware(modified), used.get(id_, {}))
    return found


def _aware(when: dt.datetime | None) -> dt.datetime | None:
    """Add the zone UTC, which most databases do not return with a time."""
    return when.replace(tzinfo=dt.timezone.utc) if when and not when.tzinfo else when


def _records(
    tx: sa.Connection, ids: Sequence[int] | None, report: Callable[[str], None] = lambda _what: None
) -> Iterator[ProviderRow]:
    """Read the providers with these ids, None for all."""

    def ask(query: sa.Select[Any], id_: sa.ColumnElement[int]) -> Iterable[Any]:
        return tx.execute(query if ids is None else query.where(id_.in_(ids)))

    shared = _Shared()
    inventories = _inventories_of(ask(_INVENTORIES, _inventories.resource_provider_id), shared)
    report(f'inventories of {len(inventories)} providers')
    traits = _sets(ask(_TRAITS, _own_traits.resource_provider_id), shared)
    report(f'traits of {len(traits)} providers')
    aggregates = _sets(ask(_AGGREGATES, _own_aggregates.resource_provider_id), shared)
    report(f'aggregates of {len(aggregates)} providers')
    nothing: frozenset[str] = frozenset()
    for id_, uuid, name, generation, parent_id, root_id, parent_uuid, root_uuid, modified in ask(
        _PROVIDERS, _providers.c.id
    ):
        yield ProviderRow(
            id_,
            shared(uuid),
            name,
            generation,
            parent_id,
            root_id,
            shared(parent_uuid),
            shared(root_uuid),
            _aware(modified),
            inventories.get(id_, ()),
            traits.get(id_, nothing),
            aggregates.get(id_, nothing),
        )


def _inventories_of(rows: Iterable[Any], shared: _Shared) -> Mapping[int, Inventories]:
    found: defaultdict[int, list[tuple[int, InventoryRecord]]] = defaultdict(list)
    for id_, class_id, *values in rows:
        found[id_].append(shared((class_id, InventoryRecord(*values))))
    for have in found.values():
        have.sort()
    return {id_: shared(tuple(have)) for id_, have in found.items()}


def _sets(rows: Iterable[Any], shared: _Shared) -> Mapping[int, frozenset[str]]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    for id_, name in rows:
        found[id_].add(shared(name))
    return {id_: shared(frozenset(some)) for id_, some in found.items()}


class _Shared:
    """Returns one object for all equal values, to save memory: many providers have equal inventories and traits."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def __call__(self, value: _T) -> _T:
        known: _T = self._known.setdefault(value, value)
        return known
