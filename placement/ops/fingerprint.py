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
from collections.abc import Iterable, Mapping, Sequence
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
        queries = {tables.UPSTREAM_NAMES[table]: _query(names, table) for table in _COLUMNS}
        for table in (tables.resource_classes, tables.traits):
            name = names[table].c.name
            queries[f'custom_{tables.UPSTREAM_NAMES[table]}'] = sa.select(name).where(name.startswith('CUSTOM_'))
        for kind, query in queries.items():
            kinds[kind] = _kind(kind, tx.execute(query, execution_options={'yield_per': _ROWS_AT_A_TIME}), left_out)
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


def _query(names: Names, table: sa.Table) -> sa.Select[Any]:
    """Return the query for ``_COLUMNS`` of a table, with uuids and names of other rows in the place of their ids.

    Outer joins keep rows whose reference is damaged.
    """
    rows: Any = names[table]
    joined, values = rows, []
    for name in _COLUMNS[table]:
        value, target = rows.c[name], _TARGETS.get(table.c[name])
        if target is not None and target in names:
            other = names[target].alias()
            joined = joined.outerjoin(other, other.c.id == value)
            text = next(other.c[text] for text in ('uuid', 'external_id', 'name') if text in other.c)
            # Another service may have no rows of standard classes, whose ids are those of os-resource-classes.
            is_class = target is tables.resource_classes
            value = sa.func.coalesce(text, sa.case(tables.STANDARD_CLASSES, value=value)) if is_class else text
        elif target is not None:
            # Another service may have no types of consumers.
            value = sa.null()
        values.append(value)
    return sa.select(*values).select_from(joined)


#: The table to which a column refers.
_TARGETS = dict(tables.REFERENCES)
_AMOUNTS = ('total', 'reserved', 'min_unit', 'max_unit', 'step_size', 'allocation_ratio')
#: The columns that are hashed, by the table of the rows.
_COLUMNS: Mapping[sa.Table, Sequence[str]] = {
    tables.resource_providers: ('uuid', 'name', 'generation', 'parent_provider_id', 'root_provider_id'),
    tables.inventories: ('resource_provider_id', 'resource_class_id', *_AMOUNTS),
    tables.allocations: ('resource_provider_id', 'resource_class_id', 'consumer_id', 'used'),
    tables.consumers: ('uuid', 'generation', 'project_id', 'user_id', 'consumer_type_id'),
    tables.resource_provider_traits: ('resource_provider_id', 'trait_id'),
    tables.resource_provider_aggregates: ('resource_provider_id', 'aggregate_id'),
}
