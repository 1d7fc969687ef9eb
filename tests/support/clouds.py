"""Clouds with consumers, for tests of reports: stored by a few plain statements."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_utils import timeutils

from placement.db import change_log, tables
from placement.db.api import Database
from tests.support.search import query_strings

#: When inventories and allocations were created.
CREATED = timeutils.utcnow() - dt.timedelta(days=30)

Amounts = Mapping[str, int]


#: Returns the uuid of the provider, aggregate or consumer called ``name``.
uuid_of = query_strings.uuid_of


@dataclass
class Provider:
    """One provider. ``inventories`` has the columns of each class that differ from the defaults."""

    name: str
    inventories: Mapping[str, Mapping[str, Any]]
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    parent: str | None = None


class Owner(NamedTuple):
    """Project and user of a consumer, and its type; None for a consumer without one."""

    project: str = 'project-blue'
    user: str = 'user-ada'
    consumer_type: str | None = None


@dataclass
class Cloud:
    """Providers, parents before their children, and what each consumer holds of each provider.

    ``owners`` has the owner of each consumer that has another one than the default.
    """

    providers: list[Provider] = field(default_factory=list)
    allocations: dict[str, dict[str, Amounts]] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)


def nested() -> Cloud:
    """Four hosts with NUMA cells and network cards, and a shared disk; one host is full."""
    cloud = Cloud()
    racks = ('rack-a', 'rack-b')
    for number in range(4):
        host, rack = f'compute-{number}', racks[number // 2]
        cloud.providers.append(Provider(host, {}, ('COMPUTE_STATUS_DISABLED',) if number == 3 else (), (rack,)))
        for cell in range(2):
            numa = f'{host}-numa{cell}'
            inventories: dict[str, dict[str, Any]] = {
                'VCPU': {'total': 16, 'allocation_ratio': 4.0},
                'MEMORY_MB': {'total': 65536, 'reserved': 512},
            }
            cloud.providers.append(Provider(numa, inventories, ('HW_CPU_X86_AVX2', 'HW_NUMA_ROOT'), parent=host))
            vfs = {'SRIOV_NET_VF': {'total': 8}}
            cloud.providers.append(Provider(f'{host}-nic{cell}', vfs, ('HW_NIC_SRIOV',), parent=numa))
    shares = ('MISC_SHARES_VIA_AGGREGATE',)
    cloud.providers.append(Provider('store', {'DISK_GB': {'total': 20000}}, shares, racks))
    for number in range(17):
        # The first host is the fullest, and the last has no allocations.
        host = f'compute-{min(number // 7, 2)}'
        cell = number % 2
        size = {'VCPU': 16, 'MEMORY_MB': 16256} if number < 8 else {'VCPU': 4, 'MEMORY_MB': 4096}
        cloud.allocations[f'machine-{number}'] = {f'{host}-numa{cell}': size, 'store': {'DISK_GB': 80}}
        if number % 3 == 0:
            cloud.allocations[f'machine-{number}'][f'{host}-nic{cell}'] = {'SRIOV_NET_VF': 2}
    return cloud


def create_cloud(db: Database, cloud: Cloud) -> None:
    """Store ``cloud`` in a database without providers."""
    db.write(lambda tx: insert_cloud(tx, cloud))


def insert_cloud(tx: sa.Connection, cloud: Cloud) -> None:
    """Store ``cloud`` in a transaction, in a database without providers."""
    change_log.record_reload(tx)
    ids = {provider.name: number for number, provider in enumerate(cloud.providers, start=1)}
    classes = insert_names(
        tx, tables.resource_classes, {name for provider in cloud.providers for name in provider.inventories}
    )
    traits = insert_names(tx, tables.traits, {name for provider in cloud.providers for name in provider.traits})
    uuids = {uuid_of(name) for provider in cloud.providers for name in provider.aggregates}
    aggregates = insert_names(tx, tables.placement_aggregates, uuids, 'uuid')
    _insert(tx, tables.resource_providers, _provider_rows(cloud, ids))
    _insert(tx, tables.inventories, list(_inventory_rows(cloud, ids, classes)))
    trait_rows = [
        {'resource_provider_id': ids[provider.name], 'trait_id': traits[name]}
        for provider in cloud.providers
        for name in provider.traits
    ]
    _insert(tx, tables.resource_provider_traits, trait_rows)
    aggregate_rows = [
        {'resource_provider_id': ids[provider.name], 'aggregate_id': aggregates[uuid_of(name)]}
        for provider in cloud.providers
        for name in provider.aggregates
    ]
    _insert(tx, tables.resource_provider_aggregates, aggregate_rows)
    _insert_consumers(tx, cloud, ids, classes)


def _provider_rows(cloud: Cloud, ids: Mapping[str, int]) -> list[dict[str, Any]]:
    roots: dict[str, int] = {}
    rows = []
    for provider in cloud.providers:
        roots[provider.name] = ids[provider.name] if provider.parent is None else roots[provider.parent]
        parent = None if provider.parent is None else ids[provider.parent]
        row = {'id': ids[provider.name], 'uuid': uuid_of(provider.name), 'name': provider.name, 'generation': 1}
        rows.append({**row, 'parent_provider_id': parent, 'root_provider_id': roots[provider.name]})
    return rows


def _inventory_rows(
    cloud: Cloud, ids: Mapping[str, int], classes: Mapping[str | None, int]
) -> Iterator[dict[str, Any]]:
    usual = {'reserved': 0, 'min_unit': 1, 'max_unit': 2**31 - 1, 'step_size': 1, 'allocation_ratio': 1.0}
    times = {'created_at': CREATED, 'updated_at': None}
    used: Counter[tuple[str, str]] = Counter()
    for by_provider in cloud.allocations.values():
        for provider_name, amounts in by_provider.items():
            used.update({(provider_name, name): amount for name, amount in amounts.items()})
    for provider in cloud.providers:
        for name, columns in provider.inventories.items():
            row = {'resource_provider_id': ids[provider.name], 'resource_class_id': classes[name]}
            yield {**row, **usual, **times, **columns, 'used': used[provider.name, name]}


def _insert_consumers(
    tx: sa.Connection, cloud: Cloud, ids: Mapping[str, int], classes: Mapping[str | None, int]
) -> None:
    owners = {name: cloud.owners.get(name, Owner()) for name in cloud.allocations}
    projects = insert_names(tx, tables.projects, {owner.project for owner in owners.values()}, 'external_id')
    users = insert_names(tx, tables.users, {owner.user for owner in owners.values()}, 'external_id')
    types = insert_names(tx, tables.consumer_types, {owner.consumer_type for owner in owners.values()} - {None})
    rows = [
        {
            'uuid': uuid_of(name),
            'generation': 1,
            'project_id': projects[owner.project],
            'user_id': users[owner.user],
            'consumer_type_id': types.get(owner.consumer_type),
        }
        for name, owner in owners.items()
    ]
    _insert(tx, tables.consumers, rows)
    _insert(
        tx,
        tables.allocations,
        [
            {
                'consumer_id': uuid_of(consumer),
                'resource_provider_id': ids[provider],
                'resource_class_id': classes[name],
                'used': amount,
                'created_at': CREATED,
            }
            for consumer, by_provider in cloud.allocations.items()
            for provider, amounts in by_provider.items()
            for name, amount in amounts.items()
        ],
    )


def insert_names(
    tx: sa.Connection, table: sa.Table, names: Set[str | None], column: str = 'name'
) -> dict[str | None, int]:
    """Insert the ``names`` that a table lacks, and return the ids of all names in it."""
    rows = tx.execute(sa.select(table.c[column].label('name'), table.c.id))
    existing = {row.name: row.id for row in rows}
    top = max([*existing.values(), tables.FIRST_CUSTOM_CLASS_ID])
    new = {name: top + number for number, name in enumerate(sorted(map(str, names - existing.keys())), start=1)}
    _insert(tx, table, [{'id': id_, column: name} for name, id_ in new.items()])
    return existing | new


def _insert(tx: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        tx.execute(table.insert(), rows)
