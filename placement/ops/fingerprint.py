"""One hash for each kind of row of a database, and one for all, which only a change of what the API shows changes.

The hash of a kind is the sum of the hashes of its rows. So it does not depend on their order, and equal rows count. A
row is hashed as its values, with uuids and names in the place of ids. Times, ids, the copies that only this service
has (``inventories.used``, the owners of allocations) and names that no row of another kind has are left out. So the
database has the same hashes before and after a backup is restored, and before and after it is adopted or returned.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.db import tables
from placement.db.api import Database
from placement.ops.adoption.names import Names

#: The hashes are numbers below this one.
_MODULUS = 2**256
#: The number of rows that a driver keeps in memory.
_ROWS_AT_A_TIME = 10_000


class IncompleteSchema(exception.PlacementError):
    template = 'The database does not have the tables of a Placement service. {problems}'


@dataclasses.dataclass(frozen=True)
class Kind:
    """The fingerprint of one kind of row."""

    #: The number of rows.
    rows: int
    #: 64 hexadecimal digits.
    hash: str


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of a database."""

    #: By the name of the kind, such as ``inventories``.
    kinds: Mapping[str, Kind]

    @property
    def whole(self) -> Kind:
        """Return the fingerprint of all rows."""
        total = sum(int(kind.hash, 16) for kind in self.kinds.values()) % _MODULUS
        return Kind(sum(kind.rows for kind in self.kinds.values()), f'{total:064x}')

    def differences(self, other: Fingerprint) -> list[str]:
        """Return the names of the kinds whose rows differ from those of ``other``."""
        names = [*self.kinds, *(name for name in other.kinds if name not in self.kinds)]
        return [name for name in names if self.kinds.get(name) != other.kinds.get(name)]


def read_fingerprint(db: Database, excluded: Iterable[str] = ()) -> Fingerprint:
    """Read all rows in one transaction.

    :param excluded: uuids of providers and consumers whose own rows, and all rows that refer to them, are left out.
    :raises IncompleteSchema: the database lacks a table, or has one under two names.
    """
    left_out = frozenset(excluded)
    kinds = {}
    with db.reader() as tx:
        names = Names(tx)
        if problems := list(names.problems()):
            raise IncompleteSchema(problems=' '.join(problems))
        for name, query in _queries(names).items():
            kinds[name] = _kind(name, tx.execute(query, execution_options={'yield_per': _ROWS_AT_A_TIME}), left_out)
    return Fingerprint(kinds)


def _kind(name: str, rows: Iterable[sa.Row[Any]], left_out: frozenset[str]) -> Kind:
    number, total = 0, 0
    for row in rows:
        # A column of single precision has six digits.
        values = [f'{value:.6g}' if isinstance(value, float) else value for value in row]
        if left_out.isdisjoint(values):
            number += 1
            text = json.dumps([name, *values], ensure_ascii=False, default=str)
            total += int.from_bytes(hashlib.sha256(text.encode(errors='surrogatepass')).digest())
    return Kind(number, f'{total % _MODULUS:064x}')


def _queries(names: Names) -> dict[str, sa.Select[Any]]:
    """Return the query for each kind of row, with the tables as they are called in the database.

    Outer joins keep rows whose reference is damaged.
    """
    present: Callable[[sa.Table], Any] = names.__getitem__
    providers, classes, traits = map(present, (tables.resource_providers, tables.resource_classes, tables.traits))
    inventories, allocations = present(tables.inventories), present(tables.allocations)
    members, aggregates = present(tables.resource_provider_aggregates), present(tables.placement_aggregates)
    provider_traits = present(tables.resource_provider_traits)
    parents, roots = providers.alias('parents'), providers.alias('roots')
    relatives = providers.outerjoin(parents, parents.c.id == providers.c.parent_provider_id)
    relatives = relatives.outerjoin(roots, roots.c.id == providers.c.root_provider_id)

    def of_provider(table: Any, other: Any, key: str, *columns: Any) -> sa.Select[Any]:
        """Return the query for rows that refer to a provider and, with the column ``key``, to a row of ``other``."""
        joined = table.outerjoin(providers, providers.c.id == table.c.resource_provider_id)
        joined = joined.outerjoin(other, other.c.id == table.c[key])
        return sa.select(providers.c.uuid, *columns).select_from(joined)

    def of_inventory(table: Any, *columns: str) -> sa.Select[Any]:
        # Another service may have no rows of standard classes, whose ids are those of os-resource-classes.
        name = sa.func.coalesce(classes.c.name, sa.case(tables.STANDARD_CLASSES, value=table.c.resource_class_id))
        return of_provider(table, classes, 'resource_class_id', name, *(table.c[column] for column in columns))

    amounts = ('total', 'reserved', 'min_unit', 'max_unit', 'step_size', 'allocation_ratio')
    return {
        'resource_providers': sa.select(
            providers.c.uuid, providers.c.name, providers.c.generation, parents.c.uuid, roots.c.uuid
        ).select_from(relatives),
        'inventories': of_inventory(inventories, *amounts),
        'allocations': of_inventory(allocations, 'consumer_id', 'used'),
        'consumers': _consumers_query(names),
        'resource_provider_traits': of_provider(provider_traits, traits, 'trait_id', traits.c.name),
        'resource_provider_aggregates': of_provider(members, aggregates, 'aggregate_id', aggregates.c.uuid),
        'custom_resource_classes': sa.select(classes.c.name).where(classes.c.name.startswith('CUSTOM_')),
        'custom_traits': sa.select(traits.c.name).where(traits.c.name.startswith('CUSTOM_')),
    }


def _consumers_query(names: Names) -> sa.Select[Any]:
    """Return the query for consumers with their owners and, if the database has types of consumers, their type."""
    present: Callable[[sa.Table], Any] = names.__getitem__
    consumers, projects, users = map(present, (tables.consumers, tables.projects, tables.users))
    joined = consumers.outerjoin(projects, projects.c.id == consumers.c.project_id)
    joined = joined.outerjoin(users, users.c.id == consumers.c.user_id)
    type_name: Any = sa.null()
    if tables.consumer_types in names:
        types = present(tables.consumer_types)
        joined = joined.outerjoin(types, types.c.id == consumers.c.consumer_type_id)
        type_name = types.c.name
    columns = (consumers.c.uuid, consumers.c.generation, projects.c.external_id, users.c.external_id, type_name)
    return sa.select(*columns).select_from(joined)
