"""GET /allocation_candidates as a service: extreme queries, settings, and what it costs."""

from __future__ import annotations

import tracemalloc
from typing import Any

from oslo_config import cfg

from tests.support.search.examples import TOPOLOGIES
from tests.support.search.oracle import RP, flat, record, rp
from tests.support.search.query_strings import uuid_of
from tests.support.search.store import Stored


def test_capacity_beyond_64_bits(app: Any) -> None:
    stored = Stored(app, [rp('big', VCPU={'total': 2147483647, 'allocation_ratio': 1e30})])
    summary = stored.candidates('resources=VCPU:1')['provider_summaries'][uuid_of('big')]
    assert summary['resources']['VCPU']['capacity'] == int(2147483647 * 1e30)


def test_a_query_with_256_groups_and_queries_with_1500_classes(app: Any) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1500)]
    inventory = {name: record(5) for name in names} | {'VCPU': record(1000)}
    stored = Stored(app, [RP('host', inventory=inventory)])
    groups = '&'.join(f'resources{number}=VCPU:1' for number in range(1, 257))
    response = stored.candidates(f'{groups}&group_policy=none')
    assert response['allocation_requests'] == [{'allocations': {uuid_of('host'): {'resources': {'VCPU': 256}}}}]
    wide = ','.join(f'{name}:1' for name in names)
    for parameter in ('resources', 'resources1'):
        [candidate] = stored.candidates(f'{parameter}={wide}')['allocation_requests']
        assert candidate['allocations'][uuid_of('host')]['resources'] == dict.fromkeys(names, 1)


def test_random_order_and_random_samples(app: Any, conf: cfg.ConfigOpts) -> None:
    stored = Stored(app, [*flat(40), *TOPOLOGIES['X4']])
    everything = stored.bodies(stored.candidates('resources=VCPU:1'))
    conf.set_override('randomize_allocation_candidates', True, 'placement')
    orders = [stored.bodies(stored.candidates('resources=VCPU:1')) for _ in range(3)]
    assert all(set(order) == set(everything) and len(order) == len(everything) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    samples = [frozenset(stored.bodies(stored.candidates('resources=VCPU:1&limit=5'))) for _ in range(5)]
    assert all(len(sample) == 5 and sample <= set(everything) for sample in samples)
    assert len(set(samples)) > 1


# Cost -------------------------------------------------------------------------------------------------------


def test_memory_for_a_symmetric_tree_is_bounded_by_the_limit(app: Any) -> None:
    topology = [
        provider
        for tree in ('east', 'west')
        for provider in [rp(tree, VCPU=64), *(rp(f'{tree}{n}', tree, SRIOV_NET_VF=8) for n in range(16))]
    ]
    stored = Stored(app, topology)
    groups = '&'.join(f'resources{n}=SRIOV_NET_VF:1' for n in range(1, 9))
    path = f'/allocation_candidates?{groups}&group_policy=none&limit=1000'
    assert stored.request(path, 29).status_code == 200
    tracemalloc.start()
    response = stored.request(path, 29)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(response.json['allocation_requests']) == 1000
    assert peak < 50_000_000
