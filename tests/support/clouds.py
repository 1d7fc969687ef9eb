"""Clouds with consumers, for tests of reports: stored by a few plain statements."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from placement.db import change_log, tables
from placement.db.api import Database

_NAMESPACE = uuid.UUID('3d0f7a52-6f55-4b7e-8a44-0c1a33a1a222')
_OWNER = 501

Amounts = Mapping[str, int]


def uuid_of(name: str) -> str:
    """The uuid of the provider, aggregate or consumer called ``name``."""
    return str(uuid.uuid5(_NAMESPACE, name))


@dataclass
class Provider:
    """One provider. ``inventories`` has the columns of each class that differ from the defaults."""

    name: str
    inventories: Mapping[str, Mapping[str, Any]]
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    parent: str | None = None


@dataclass
class Cloud:
    """Providers, parents before their children, and what each consumer holds of each provider."""

    providers: list[Provider] = field(default_factory=list)
    held: dict[str, dict[str, Amounts]] = field(default_factory=dict)

    def used(self, provider: str) -> dict[str, int]:
        """The allocations of all consumers on a provider, by class."""
        used: dict[str, int] = {}
        for by_provider in self.held.values():
            for name, amount in by_provider.get(provider, {}).items():
                used[name] = used.get(name, 0) + amount
        return used


def nested() -> Cloud:
    """Four hosts with NUMA cells and network cards, and a shared disk; one host is full."""
    cloud = Cloud()
    racks = ('rack-a', 'rack-b')
    for number in range(4):
        host, rack = f'compute-{number}', racks[number // 2]
        cloud.providers.append(Provider(host, {}, ('COMPUTE_STATUS_DISABLED',) if number == 3 else (), (rack,)))
        for cell in range(2):
            numa = f'{host}-numa{cell}'
            stock: dict[str, dict[str, Any]] = {
                'VCPU': {'total': 16, 'allocation_ratio': 4.0},
                'MEMORY_MB': {'total': 65536, 'reserved': 512},
            }
            cloud.providers.append(Provider(numa, stock, ('HW_CPU_X86_AVX2', 'HW_NUMA_ROOT'), parent=host))
            vfs = {'SRIOV_NET_VF': {'total': 8}}
            cloud.providers.append(Provider(f'{host}-nic{cell}', vfs, ('HW_NIC_SRIOV',), parent=numa))
    shares = ('MISC_SHARES_VIA_AGGREGATE',)
    cloud.providers.append(Provider('store', {'DISK_GB': {'total': 20000}}, shares, racks))
    for number in range(17):
        # The first host is the fullest, and the last has no allocations.
        host = f'compute-{min(number // 7, 2)}'
        cell = number % 2
        size = {'VCPU': 16, 'MEMORY_MB': 16256} if number < 8 else {'VCPU': 4, 'MEMORY_MB': 4096}
        cloud.held[f'machine-{number}'] = {f'{host}-numa{cell}': size, 'store': {'DISK_GB': 80}}
        if number % 3 == 0:
            cloud.held[f'machine-{number}'][f'{host}-nic{cell}'] = {'SRIOV_NET_VF': 2}
    return cloud


def flat(hosts: int) -> Cloud:
    """Hosts in racks of 250, with different usage in each rack and on each host."""
    cloud = Cloud()
    rng = random.Random(hosts)
    for number in range(hosts):
        name, rack = f'host-{number:05}', f'rack-{number // 250}'
        traits = ('HW_CPU_X86_SSE42', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_AVX512F')[: number % 3 + 1]
        stock: dict[str, dict[str, Any]] = {
            'VCPU': {'total': 64, 'allocation_ratio': 2.0},
            'MEMORY_MB': {'total': 262144, 'reserved': 2048},
            'DISK_GB': {'total': 4000},
        }
        if number % 10 == 0:
            stock['CUSTOM_GPU'] = {'total': 4}
        cloud.providers.append(Provider(name, stock, traits, (rack, f'zone-{number % 3}')))
        for machine in range(rng.randrange(number // 250 % 8 + 1)):
            held = {'VCPU': 16, 'MEMORY_MB': 32768, 'DISK_GB': rng.choice((20, 200, 450))}
            gpu = {'CUSTOM_GPU': 1} if number % 10 == 0 and machine < 4 else {}
            cloud.held[f'machine-{number}-{machine}'] = {name: {**held, **gpu}}
    return cloud


def plant(db: Database, cloud: Cloud) -> None:
    """Store ``cloud`` in a database without providers."""
    db.write(lambda tx: _plant(tx, cloud))


def _plant(tx: sa.Connection, cloud: Cloud) -> None:
    change_log.record_reload(tx)
    ids = {one.name: number for number, one in enumerate(cloud.providers, start=1)}
    classes = _ids(tx, tables.resource_classes, {name for one in cloud.providers for name in one.inventories})
    traits = _ids(tx, tables.traits, {name for one in cloud.providers for name in one.traits})
    aggregates = {name: number for number, name in enumerate(_aggregates(cloud), start=1)}
    _insert(tx, tables.resource_providers, _provider_rows(cloud, ids))
    _insert(tx, tables.inventories, list(_inventory_rows(cloud, ids, classes)))
    own = [(ids[one.name], traits[name]) for one in cloud.providers for name in one.traits]
    _insert(tx, tables.resource_provider_traits, [{'resource_provider_id': id_, 'trait_id': it} for id_, it in own])
    _insert(tx, tables.placement_aggregates, [{'id': n, 'uuid': uuid_of(name)} for name, n in aggregates.items()])
    own = [(ids[one.name], aggregates[name]) for one in cloud.providers for name in one.aggregates]
    _insert(
        tx, tables.resource_provider_aggregates, [{'resource_provider_id': id_, 'aggregate_id': it} for id_, it in own]
    )
    _insert_consumers(tx, cloud, ids, classes)


def _aggregates(cloud: Cloud) -> list[str]:
    return sorted({name for one in cloud.providers for name in one.aggregates})


def _provider_rows(cloud: Cloud, ids: Mapping[str, int]) -> list[dict[str, Any]]:
    roots: dict[str, int] = {}
    rows = []
    for one in cloud.providers:
        roots[one.name] = ids[one.name] if one.parent is None else roots[one.parent]
        parent = None if one.parent is None else ids[one.parent]
        row = {'id': ids[one.name], 'uuid': uuid_of(one.name), 'name': one.name, 'generation': 1}
        rows.append({**row, 'parent_provider_id': parent, 'root_provider_id': roots[one.name]})
    return rows


def _inventory_rows(cloud: Cloud, ids: Mapping[str, int], classes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    usual = {'reserved': 0, 'min_unit': 1, 'max_unit': 2**31 - 1, 'step_size': 1, 'allocation_ratio': 1.0}
    used: dict[tuple[str, str], int] = {}
    for by_provider in cloud.held.values():
        for provider, amounts in by_provider.items():
            for name, amount in amounts.items():
                used[provider, name] = used.get((provider, name), 0) + amount
    for one in cloud.providers:
        for name, columns in one.inventories.items():
            row = {'resource_provider_id': ids[one.name], 'resource_class_id': classes[name]}
            yield {**row, **usual, **columns, 'used': used.get((one.name, name), 0)}


def _insert_consumers(tx: sa.Connection, cloud: Cloud, ids: Mapping[str, int], classes: Mapping[str, int]) -> None:
    _insert(tx, tables.projects, [{'id': _OWNER, 'external_id': 'project-blue'}])
    _insert(tx, tables.users, [{'id': _OWNER, 'external_id': 'user-ada'}])
    owner = {'project_id': _OWNER, 'user_id': _OWNER, 'generation': 1}
    _insert(tx, tables.consumers, [{'uuid': uuid_of(name), **owner} for name in cloud.held])
    _insert(
        tx,
        tables.allocations,
        [
            {
                'consumer_id': uuid_of(consumer),
                'resource_provider_id': ids[provider],
                'resource_class_id': classes[name],
                'used': amount,
            }
            for consumer, by_provider in cloud.held.items()
            for provider, amounts in by_provider.items()
            for name, amount in amounts.items()
        ],
    )


def _ids(tx: sa.Connection, table: sa.Table, names: set[str]) -> dict[str, int]:
    """The ids of ``names``; those that are missing are made."""
    known = {row.name: row.id for row in tx.execute(sa.select(table.c.name, table.c.id))}
    missing = sorted(names - known.keys())
    top = max([*known.values(), tables.FIRST_CUSTOM_CLASS_ID])
    new = {name: top + number for number, name in enumerate(missing, start=1)}
    _insert(tx, table, [{'id': id_, 'name': name} for name, id_ in new.items()])
    return known | new


def _insert(tx: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        tx.execute(table.insert(), rows)
