"""Measures ``placement-manage plan`` in processor time: ``python -m bench.planning --help``.

The cloud has 18 consumers on each host, which use 95 % of VCPU. A load of other programs changes seconds on a clock, so
the figures are seconds of processor time of this process, to which those of the database server come on top.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import sqlalchemy as sa

from bench import databases, shapes
from placement.cache.refresh import ProviderCache
from placement.db import tables
from placement.db.api import Database
from placement.ops.planning import drain, failures, flavors, ratio
from placement.ops.planning.loads import PlanOptions
from tests.support import applications
from tests.support import databases as databases_support

_CONSUMERS_PER_HOST = 18
_FLAVORS = ((1, 2048, 20), (2, 4096, 40), (4, 16384, 80), (8, 32768, 160))
_WEIGHTS = (16, 30, 38, 16)
#: How much of VCPU stays free, and which part of the consumers of nested hosts has a network card.
_UNUSED_SHARE, _NIC_SHARE = 0.05, 0.2
#: How many sizes of disks each flavor has if the sizes are chosen at random.
_DISKS = 20


def main() -> None:
    """Fill a database, ask each question once, and print what it took."""
    parser = argparse.ArgumentParser('python -m bench.planning', description=__doc__)
    parser.add_argument('--database', default='sqlite', help='sqlite, postgresql, mariadb or a URL')
    parser.add_argument('--shape', choices=('flat', 'shared', 'nested'), default='flat')
    parser.add_argument('--hosts', type=int, default=10_000)
    parser.add_argument('--drained', type=int, default=500)
    parser.add_argument('--distinct', type=int, default=0, metavar='N', help='sizes of consumers at random, N at most')
    arguments = parser.parse_args()
    # Each question in a process of its own, as for commands, so that none uses memory that another one has left.
    with (
        databases.fresh(arguments.database) as url,
        ProcessPoolExecutor(1, multiprocessing.get_context('spawn'), max_tasks_per_child=1) as pool,
    ):
        created = pool.submit(_create, url, arguments.shape, arguments.hosts, arguments.distinct)
        print(f'{arguments.database}, {arguments.shape}: {created.result()}')
        for question in ('failures', 'drain', 'ratio', 'flavors'):
            print(pool.submit(_measure, url, question, arguments.hosts, arguments.drained).result())


def _measure(url: str, question: str, hosts: int, drained: int) -> str:
    """Ask a question once, and return what it took."""
    db = Database(applications.options(url))
    names = [f'host{number}' for number in range(hosts)]
    listed = [
        flavors.parse_flavor({'Name': f'm{cpus}', 'VCPUs': cpus, 'RAM': memory, 'Disk': disk})
        for cpus, memory, disk in _FLAVORS
    ]
    ask: dict[str, Callable[[], Any]] = {
        'failures': lambda: failures.check_failures(db, PlanOptions()),
        'drain': lambda: drain.plan_drain(db, names[:: hosts // drained], None, PlanOptions()),
        'ratio': lambda: ratio.compare_ratio(ProviderCache(db).up_to_date(), 'VCPU', 2.0, None, listed),
        'flavors': lambda: flavors.count_flavors(ProviderCache(db).up_to_date(), listed, by_aggregate=True),
    }
    started, waited = time.process_time(), time.monotonic()
    result = ask[question]()
    seconds, waited = time.process_time() - started, time.monotonic() - waited
    db.dispose()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f'{question:10} {seconds:6.2f} s of processor, {waited:6.2f} s, peak {memory:4.0f} MB: {_outcome(result)}'


def _outcome(result: Any) -> str:
    if isinstance(result, list):
        return ', '.join(f'{fit.name} {fit.count.fit:,}' for fit in result)
    names = ('verdict', 'consumers', 'guaranteed_together', 'at_most_together', 'inventories_changed')
    return ', '.join(f'{name} {getattr(result, name)}' for name in names if hasattr(result, name))


def _allocations(cloud: shapes.Cloud, distinct: int) -> Iterator[tuple[str, int, str, int]]:
    """Yield consumer, provider, class and amount.

    :param distinct: how many different sizes to choose from at random; 0 for those of the flavors.
    """
    choice = random.Random(0)
    variants = max(distinct // (len(_FLAVORS) * _DISKS), 1)
    free: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for provider, resource_class, total in cloud.inventories:
        free[provider][resource_class] = total
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for id_, _, _, parent, _ in cloud.providers:
        children[parent].append(id_)
    pools = _pools(cloud)
    for host in [id_ for id_, _, name, parent, _ in cloud.providers if parent is None and name.startswith('host')]:
        reserve = _UNUSED_SHARE * sum(free[cell]['VCPU'] for cell in children[host] or [host])
        for _ in range(_CONSUMERS_PER_HOST):
            consumer = str(uuid.UUID(int=choice.getrandbits(128), version=4))
            cell = max(children[host] or [host], key=lambda id_: free[id_]['VCPU'])
            cpus, memory, disk = choice.choices(_FLAVORS, _WEIGHTS)[0]
            if free[cell]['VCPU'] - cpus < reserve:
                cpus, memory, disk = _FLAVORS[0]
            if distinct:
                memory, disk = memory + choice.randrange(variants), disk + choice.randrange(_DISKS)
            amounts = [(cell, 'VCPU', cpus), (cell, 'MEMORY_MB', memory), (pools.get(host, host), 'DISK_GB', disk)]
            if children[cell] and choice.random() < _NIC_SHARE:
                amounts.append((children[cell][0], 'SRIOV_NET_VF', 1))
            if all(free[provider][resource_class] >= amount for provider, resource_class, amount in amounts):
                for provider, resource_class, amount in amounts:
                    free[provider][resource_class] -= amount
                    yield consumer, provider, resource_class, amount


def _pools(cloud: shapes.Cloud) -> dict[int, int]:
    """Return the disk of each host that has a shared one."""
    disks = {aggregate: id_ for id_, aggregate in cloud.members if cloud.providers[id_ - 1][2].startswith('disk')}
    return {id_: disks[aggregate] for id_, aggregate in cloud.members if disks.get(aggregate, id_) != id_}


def _create(url: str, shape: str, hosts: int, distinct: int) -> str:
    """Fill a database, and return how large the cloud is."""
    cloud = shapes.SHAPES[shape](hosts)
    allocations = list(_allocations(cloud, distinct))
    databases.create_schema(url)
    databases.fill(url, cloud)
    _fill(url, allocations)
    return f'{len(cloud.providers):,} providers, {len({row[0] for row in allocations}):,} consumers'


def _fill(url: str, allocations: list[tuple[str, int, str, int]]) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as tx:
        table = tables.resource_classes.c
        classes = {name: id_ for id_, name in tx.execute(sa.select(table.id, table.name))}
        for owners in (tables.projects, tables.users):
            tx.execute(owners.insert(), [{'id': 1, 'external_id': 'someone'}])
        consumers: list[databases.Row] = [(name, 1, 1) for name in dict.fromkeys(row[0] for row in allocations)]
        databases.insert(tx, tables.consumers.name, ['uuid', 'project_id', 'user_id'], consumers)
        rows: list[databases.Row] = [(name, id_, classes[class_], amount) for name, id_, class_, amount in allocations]
        columns = ['consumer_id', 'resource_provider_id', 'resource_class_id', 'used']
        databases.insert(tx, tables.allocations.name, columns, rows)
    names = ', '.join((tables.consumers.name, tables.allocations.name))
    databases_support.execute(sa.make_url(url), f'ANALYZE TABLE {names}' if 'mysql' in url else 'ANALYZE')
    with engine.begin() as tx:
        tx.execute(tables.inventories.update().values(used=tables.ALLOCATED))


if __name__ == '__main__':
    main()
