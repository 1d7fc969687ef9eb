"""Times GET /allocation_candidates on SQLite: flat hosts, NUMA trees, sparse matches and the symmetric case.

    python bench/candidates.py [--hosts 1000 10000] [--repeat 5]

Each line is the median of the whole request in process (WSGI, JSON included), the processor time of it, and the first
one, which also fills caches; the peak is what Python allocated during one more request.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
import webob

from placement import conf as placement_conf
from placement import deploy
from placement.db import changes, tables

HOST = {'VCPU': 64, 'MEMORY_MB': 262144, 'DISK_GB': 4000}
HOST_QUERY = 'resources=VCPU:2,MEMORY_MB:2048,DISK_GB:20'


class Cloud:
    """Providers in memory, then in an empty database."""

    def __init__(self) -> None:
        self.providers: list[dict[str, Any]] = []
        self.inventories: list[tuple[int, str, int]] = []
        self.traits: list[tuple[int, str]] = []

    def add(self, parent: int | None = None, root: int | None = None, traits: Iterable[str] = (), **totals: int) -> int:
        id_ = len(self.providers) + 1
        row = {'id': id_, 'uuid': str(uuid.UUID(int=id_)), 'name': f'p{id_}', 'generation': 0}
        self.providers.append({**row, 'parent_provider_id': parent, 'root_provider_id': root or id_})
        self.inventories += [(id_, name, total) for name, total in totals.items()]
        self.traits += [(id_, name) for name in traits]
        return id_

    def store(self, db: Any) -> None:
        def work(tx: sa.Connection) -> None:
            changes.rebuild(tx)
            classes = _ids(tx, tables.resource_classes)
            traits = _ids(tx, tables.traits)
            tx.execute(tables.resource_providers.insert(), self.providers)
            plain = {'reserved': 0, 'min_unit': 1, 'step_size': 1, 'allocation_ratio': 1.0, 'used': 0}
            rows = [
                {'resource_provider_id': id_, 'resource_class_id': classes[name], 'total': n, 'max_unit': n, **plain}
                for id_, name, n in self.inventories
            ]
            tx.execute(tables.inventories.insert(), rows)
            own = [{'resource_provider_id': id_, 'trait_id': traits[name]} for id_, name in self.traits]
            if own:
                tx.execute(tables.resource_provider_traits.insert(), own)
            tx.exec_driver_sql('ANALYZE')

        db.write(work)


def _ids(tx: sa.Connection, table: sa.Table) -> dict[str, int]:
    return {row.name: row.id for row in tx.execute(sa.select(table.c.name, table.c.id))}


def flat(hosts: int) -> Cloud:
    """Hosts with three classes and two traits; one of them has a trait of its own."""
    cloud = Cloud()
    for number in range(hosts):
        rare = ['HW_CPU_X86_AVX512F'] if number == hosts // 2 else []
        cloud.add(traits=['HW_CPU_X86_AVX2', 'HW_CPU_X86_SSE42', *rare], **HOST)
    return cloud


def numa(trees: int) -> Cloud:
    """Trees of seven: a host, two cells, and two devices below each cell."""
    cloud = Cloud()
    for _ in range(trees):
        root = cloud.add(DISK_GB=4000)
        for _ in range(2):
            cell = cloud.add(root, root, VCPU=32, MEMORY_MB=131072)
            for _ in range(2):
                cloud.add(cell, root, SRIOV_NET_VF=8)
    return cloud


def symmetric() -> Cloud:
    """Two trees of sixteen equal devices."""
    cloud = Cloud()
    for _ in range(2):
        root = cloud.add(VCPU=64)
        for _ in range(16):
            cloud.add(root, root, SRIOV_NET_VF=8)
    return cloud


def measure(title: str, app: Any, query: str, repeat: int) -> None:
    """Print a line about one query."""
    times, processor_times = [], []
    for _ in range(repeat + 1):
        gc.collect()
        started, processor_started = time.perf_counter(), time.process_time()
        response = ask(app, query)
        times.append((time.perf_counter() - started) * 1000)
        processor_times.append((time.process_time() - processor_started) * 1000)
    tracemalloc.start()
    ask(app, query)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = len(response.json['allocation_requests'])
    median, processor = statistics.median(times[1:]), statistics.median(processor_times[1:])
    print(f'{title:46} {found:6} {median:10.1f} {processor:10.1f} {times[0]:10.1f} {peak / 1e6:8.1f}', flush=True)


def ask(app: Any, query: str) -> webob.Response:
    request = webob.Request.blank(f'/allocation_candidates?{query}')
    request.headers['X-Auth-Token'] = 'admin'
    request.headers['OpenStack-API-Version'] = 'placement 1.29'
    response = request.get_response(app)
    assert response.status_code == 200, response.text
    return response


def run(title: str, cloud: Cloud, queries: dict[str, str], repeat: int) -> None:
    """Measure some queries on a new database."""
    with tempfile.TemporaryDirectory() as directory:
        database = {'connection': f'sqlite:///{directory}/placement.sqlite', 'sync_on_startup': True}
        overrides = {'placement_database': database, 'api': {'auth_strategy': 'noauth2'}}
        app = deploy.loadapp(placement_conf.load(environ={}, config_files=[], overrides=overrides))
        cloud.store(app.db)
        for name, query in queries.items():
            measure(f'{title}, {name}', app, query, repeat)
        app.db.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hosts', type=int, nargs='*', default=[1000, 10000], help='numbers of flat hosts')
    parser.add_argument('--repeat', type=int, default=5, help='requests behind each median')
    args = parser.parse_args()
    print(f'{"case":46} {"found":>6} {"median ms":>10} {"CPU ms":>10} {"first ms":>10} {"peak MB":>8}')
    for hosts in args.hosts:
        queries = {
            'limit 10': f'{HOST_QUERY}&limit=10',
            'limit 1000': f'{HOST_QUERY}&limit=1000',
            'no limit': HOST_QUERY,
            'rare trait': f'{HOST_QUERY}&required=HW_CPU_X86_AVX512F',
            'nothing fits': 'resources=VCPU:65,MEMORY_MB:2048',
        }
        run(f'{hosts} flat hosts', flat(hosts), queries, args.repeat)
    groups = 'resources=DISK_GB:20&resources1=VCPU:2,MEMORY_MB:2048&resources2=SRIOV_NET_VF:1&group_policy=none'
    queries = {'limit 10': f'{groups}&limit=10', 'limit 1000': f'{groups}&limit=1000', 'no limit': groups}
    run('1000 NUMA trees, 3 groups', numa(1000), queries, args.repeat)
    eight = '&'.join(f'resources{n}=SRIOV_NET_VF:1' for n in range(1, 9))
    queries = {f'{policy}, limit 1000': f'{eight}&group_policy={policy}&limit=1000' for policy in ('none', 'isolate')}
    run('2 x 16 devices, 8 groups', symmetric(), queries, args.repeat)


if __name__ == '__main__':
    main()
