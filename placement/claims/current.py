"""Reads and deletes the current allocations of consumers, and resolves the names in a claim to ids."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.claims.requested import ConsumerClaim, Unset
from placement.db import errors, sql, tables
from placement.db.inventories import InventoryKey


class ConsumerRow(NamedTuple):
    """The row of a consumer as it was read."""

    uuid: str
    id: int
    generation: int
    consumer_type_id: int | None


class AllocationRow(NamedTuple):
    """One allocation as it was read."""

    consumer_uuid: str
    id: int
    resource_provider_id: int
    resource_class_id: int
    used: int
    #: 1 if its provider has an inventory of its class, else 0.
    inventory_count: int

    @property
    def inventory(self) -> InventoryKey:
        """The ids of its provider and class."""
        return self.resource_provider_id, self.resource_class_id


def concurrent_update() -> errors.RetryTransaction:
    """Return the exception to raise if a consumer was changed, created or deleted since it was read."""
    return errors.RetryTransaction(exception.ConcurrentUpdate())


@dataclasses.dataclass(frozen=True)
class CurrentState:
    """Consumers and their allocations as they were read, and the ids of the names in their claims."""

    #: By uuid.
    consumers: Mapping[str, ConsumerRow]
    #: All allocations of the consumers.
    rows: Sequence[AllocationRow]
    #: The ids of existing providers, by uuid.
    providers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The ids by external id or name, in ascending order of the text; None for those that do not exist.
    projects: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    users: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    consumer_types: Mapping[str, int | None] = dataclasses.field(default_factory=dict)

    def provider_ids(self) -> set[int]:
        """Return the ids of the providers on which the consumers have allocations."""
        return {row.resource_provider_id for row in self.rows}

    def amounts(
        self, inserted: Collection[InventoryKey] = ()
    ) -> tuple[dict[InventoryKey, int], dict[InventoryKey, int]]:
        """Return the sums of the allocations with an inventory, and the sums of the allocations without one.

        :param inserted: inventories that the transaction inserts. They count as existing.
        """
        sums: dict[InventoryKey, int] = {}
        orphaned: dict[InventoryKey, int] = {}
        for row in self.rows:
            of_row = sums if row.inventory_count or row.inventory in inserted else orphaned
            of_row[row.inventory] = of_row.get(row.inventory, 0) + row.used
        return sums, orphaned


def read_current_state(
    tx: sa.Connection, consumers: Sequence[str], claims: Sequence[ConsumerClaim] = ()
) -> CurrentState:
    """Read the allocations of ``consumers``, and the ids of all names in ``claims`` except classes. Lock nothing.

    One statement (more for over 900 names of a kind) reads a consumer together with its allocations. So while the
    generation of the consumer stays the same, its allocations are also the same.

    :param consumers: canonical uuids.
    """
    projects, users, types = set[str](), set[str](), set[str]()
    providers: dict[str, None] = {}
    for claim in claims:
        if claim.allocations:
            projects.add(claim.project_id)
            users.add(claim.user_id)
            providers |= dict.fromkeys(claim.allocations)
            if not isinstance(claim.consumer_type, Unset):
                types.add(claim.consumer_type)
    names: Mapping[str, Sequence[str]] = {
        'consumers': consumers,
        'allocations': consumers,
        'projects': sorted(projects),
        'users': sorted(users),
        'consumer_types': sorted(types),
        'providers': list(providers),
    }
    consumer_rows: dict[str, ConsumerRow] = {}
    rows: list[AllocationRow] = []
    ids: dict[str, dict[str, Any]] = {'providers': {}}
    for kind in ('projects', 'users', 'consumer_types'):
        ids[kind] = dict.fromkeys(names[kind])
    for start in range(0, max(map(len, names.values())), sql.MAX_VALUES_PER_STATEMENT):
        chunks = {kind: values[start : start + sql.MAX_VALUES_PER_STATEMENT] for kind, values in names.items()}
        selects = [f'{_SELECTS[kind]} IN ({sql.placeholders(len(chunk))})' for kind, chunk in chunks.items() if chunk]
        text = ' UNION ALL '.join(selects)
        for kind, name, id_, *columns in sql.execute_text(tx, text, *itertools.chain.from_iterable(chunks.values())):
            if kind == 'allocations':
                rows.append(AllocationRow(name, id_, *columns))
            elif kind == 'consumers':
                consumer_rows[name] = ConsumerRow(name, id_, *columns[: len(ConsumerRow._fields) - 2])
            else:
                ids[kind][name] = id_
    return CurrentState(consumer_rows, rows, **ids)


#: The SELECTs of ``read_current_state``, by kind of row. They are joined with UNION ALL, so all have the columns of an
#: allocation; the other kinds have zeros in those that they lack.
_SELECTS = {
    kind: sql.statement(select, tables=tables)
    for kind, select in {
        'consumers': (
            "SELECT 'consumers', uuid, id, generation, consumer_type_id, 0, 0 FROM {tables.consumers} WHERE uuid"
        ),
        'allocations': (
            "SELECT 'allocations', consumer_id, id, resource_provider_id, resource_class_id, used,"
            ' (SELECT count(*) FROM {tables.inventories} inv'
            ' WHERE inv.resource_provider_id = {tables.allocations}.resource_provider_id'
            ' AND inv.resource_class_id = {tables.allocations}.resource_class_id)'
            ' FROM {tables.allocations} WHERE consumer_id'
        ),
        'projects': "SELECT 'projects', external_id, id, 0, 0, 0, 0 FROM {tables.projects} WHERE external_id",
        'users': "SELECT 'users', external_id, id, 0, 0, 0, 0 FROM {tables.users} WHERE external_id",
        'consumer_types': "SELECT 'consumer_types', name, id, 0, 0, 0, 0 FROM {tables.consumer_types} WHERE name",
        'providers': "SELECT 'providers', uuid, id, 0, 0, 0, 0 FROM {tables.resource_providers} WHERE uuid",
    }.items()
}
