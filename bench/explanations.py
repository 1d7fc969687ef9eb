"""What an explanation costs, without HTTP and database: ``python -m bench.explanations``.

The hardest case has nested hosts of which no two are in the same aggregates, thousands of pools, and a query of 50
groups with aggregates of their own. The usual one has flat hosts and a query without groups.
"""

from __future__ import annotations

import itertools
import random
import time
import tracemalloc
import uuid
from collections.abc import Iterable

from bench.client import MAX_MICROVERSION
from placement.cache.providers import SHARING_TRAIT, Provider
from placement.cache.snapshot import KnownNames, Snapshot
from placement.capacity import InventoryRecord
from placement.ops.explain.explanation import Explanation, explain
from placement.ops.explain.sentences import Writer
from placement.search import parsing
from placement.search.budget import SearchBudget
from placement.web.microversion import parse_version_string

_CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB', 'SRIOV_NET_VF')
_HOST_TRAITS, _CARD_TRAITS = ('CUSTOM_A', 'CUSTOM_B', 'COMPUTE_STATUS_DISABLED'), ('CUSTOM_N0', 'CUSTOM_N1')
_DEVICES, _GROUPS, _AGGREGATES_OF_GROUP = 3, 50, 25
_REPEATS = 5

USUAL_QUERY = 'resources=VCPU:100,MEMORY_MB:8192&required=CUSTOM_A,!COMPUTE_STATUS_DISABLED'


def cloud(hosts: int, devices: int, pools: int) -> tuple[Snapshot, list[str]]:
    """Return a snapshot of random hosts with devices, and of pools, and the uuids of its aggregates."""
    rng, ids = random.Random(1), itertools.count(1)
    aggregates = [str(uuid.UUID(int=number)) for number in range(max(pools // 4, 20))]
    providers: list[Provider] = []

    def some(traits: Iterable[str]) -> set[str]:
        return {trait for trait in traits if rng.random() < 0.3}

    def add(totals: dict[str, int], traits: Iterable[str], memberships: int, root: int | None = None) -> int:
        id_ = next(ids)
        inventories = {
            name: InventoryRecord(total, used=rng.choice([0, total // 3, total])) for name, total in totals.items()
        }
        names = frozenset(rng.sample(aggregates, memberships))
        uuid_ = str(uuid.UUID(int=10**9 + id_))
        providers.append(Provider(id_, uuid_, root or id_, root, inventories, frozenset(traits), names))
        return id_

    for _ in range(hosts):
        host = add({'VCPU': 64, 'MEMORY_MB': 262_144}, some(_HOST_TRAITS), 2)
        for _ in range(devices):
            add({'SRIOV_NET_VF': 8}, some(_CARD_TRAITS), 0, host)
    for _ in range(pools):
        add({'DISK_GB': 10_000}, [SHARING_TRAIT], 2)
    names = KnownNames(dict(enumerate(_CLASSES)), frozenset([*_HOST_TRAITS, *_CARD_TRAITS, SHARING_TRAIT]))
    return Snapshot.build(names, providers), aggregates


def hardest_query(aggregates: list[str]) -> str:
    """Return a query with 50 groups: ports of devices and disks of pools, each in some of the aggregates."""
    query = f'{USUAL_QUERY}&group_policy=isolate'
    for number in range(1, _GROUPS + 1):
        first = number * 10 % max(len(aggregates) - _AGGREGATES_OF_GROUP, 1)
        members = ','.join(aggregates[first : first + _AGGREGATES_OF_GROUP])
        port = f'SRIOV_NET_VF:{number % 7 + 1}&required{number}=CUSTOM_N{number % 2}'
        query += (
            f'&resources{number}={port if number % 2 else f"DISK_GB:{number * 500}"}&member_of{number}=in:{members}'
        )
    return query


def _measure(title: str, snapshot: Snapshot, query: str) -> None:
    request = parsing.parse(query, parse_version_string(MAX_MICROVERSION))

    def explained() -> Explanation:
        return explain(snapshot, request, SearchBudget())

    explained()
    seconds = []
    for _ in range(_REPEATS):
        started = time.process_time()
        result = explained()
        seconds.append(time.process_time() - started)
    tracemalloc.start()
    explained()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    count = f'{snapshot.provider_count:,} providers'
    print(f'{title}, {count}: {min(seconds) * 1000:.1f} ms of processor time, at most {peak / 1e6:.1f} MB')
    print(f'    {" ".join(Writer().sentences(result))[:200]}')


def main(hosts: int = 4592, nested_hosts: int = 8000, pools: int = 4000) -> None:
    """Measure both cases."""
    snapshot, _ = cloud(hosts, 0, 8)
    _measure('Usual', snapshot, USUAL_QUERY)
    snapshot, aggregates = cloud(nested_hosts, _DEVICES, pools)
    _measure('Usual', snapshot, USUAL_QUERY)
    _measure('Hardest', snapshot, hardest_query(aggregates))


if __name__ == '__main__':
    main()
