"""GET /allocation_candidates as a service: extreme queries, settings, and what it costs."""

from __future__ import annotations

import logging
import tracemalloc
from typing import Any

import pytest
from oslo_config import cfg

from placement.search import find_candidates
from placement.search.budget import SearchBudget
from placement.search.request import CandidateRequest, RequestGroup
from placement.web.context import RequestContext
from tests.support.fixtures import Counter
from tests.support.search.examples import TOPOLOGIES
from tests.support.search.oracle import RP, Group, Query, flat, record, rp
from tests.support.search.query_strings import uuid_of
from tests.support.search.store import Stored, query_string

AVX2 = 'HW_CPU_X86_AVX2'


@pytest.mark.parametrize(
    ('name', 'shown'), [('%00', '\0'), ('%F0%9F%8C%8D', '\N{EARTH GLOBE EUROPE-AFRICA}'), ('!B,A', 'A, B')]
)
def test_traits_that_do_not_exist_are_named(app: Any, name: str, shown: str) -> None:
    response = Stored(app, TOPOLOGIES['X1']).request(f'/allocation_candidates?resources=VCPU:1&required={name}', 29)
    assert response.status_code == 400
    assert f'No such trait(s): {shown}.' in response.json['errors'][0]['detail']


def test_huge_amounts_never_reach_sql(app: Any, context: RequestContext) -> None:
    Stored(app, TOPOLOGIES['X1'])
    request = CandidateRequest((RequestGroup('', False, {'VCPU': 10**30}),))
    assert find_candidates(context.provider_cache.up_to_date(), request, SearchBudget()).candidate_sets == []


def test_capacity_beyond_64_bits(app: Any) -> None:
    stored = Stored(app, [rp('big', VCPU={'total': 2147483647, 'allocation_ratio': 1e30})])
    summary = stored.candidates('resources=VCPU:1')['provider_summaries'][uuid_of('big')]
    assert summary['resources']['VCPU']['capacity'] == int(2147483647 * 1e30)


def test_a_query_with_256_groups_and_queries_with_1500_classes(app: Any) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1500)]
    inventory = {name: record(5) for name in names} | {'VCPU': record(1000)}
    stored = Stored(app, [RP('host', inventory=inventory)])
    groups = '&'.join(f'resources{number}=VCPU:1' for number in range(1, 257))
    answer = stored.candidates(f'{groups}&group_policy=none')
    assert answer['allocation_requests'] == [{'allocations': {uuid_of('host'): {'resources': {'VCPU': 256}}}}]
    wide = ','.join(f'{name}:1' for name in names)
    for parameter in ('resources', 'resources1'):
        [candidate] = stored.candidates(f'{parameter}={wide}')['allocation_requests']
        assert candidate['allocations'][uuid_of('host')]['resources'] == dict.fromkeys(names, 1)


def test_queries_with_hundreds_of_traits_and_aggregates(app: Any) -> None:
    classes, traits = [f'CUSTOM_C{n}' for n in range(40)], [f'CUSTOM_T{n}' for n in range(1500)]
    aggregates = [f'a{n}' for n in range(600)]
    topology = [
        RP('host', inventory={name: record(5) for name in classes}, aggregates={'a7'}),
        RP('traits', traits=set(traits), aggregates=set(aggregates)),
    ]
    stored = Stored(app, topology)
    wide = 'resources=' + ','.join(f'{name}:1' for name in classes)
    forbidden = 'required=' + ','.join(f'!{name}' for name in traits)
    member_of = 'member_of=in:' + ','.join(aggregates)
    for minor in (28, 29):
        for query in (f'{wide}&{forbidden}', f'{wide}&{member_of}&member_of=a7'):
            assert len(stored.candidates(query, minor)['allocation_requests']) == 1


def test_sharing_providers_in_hundreds_of_aggregates(app: Any) -> None:
    shared = [
        rp(f'disk{n}', aggregates=f'a{n} a{n + 1}', shares=True, DISK_GB=10, IPV4_ADDRESS=10) for n in range(0, 300, 2)
    ]
    stored = Stored(app, [*shared, *(rp(f'host{n}', aggregates=f'a{n}', VCPU=4) for n in range(10))])
    assert len(stored.candidates('resources=VCPU:1,DISK_GB:1,IPV4_ADDRESS:1')['allocation_requests']) == 10
    assert len(stored.candidates('resources=DISK_GB:1,IPV4_ADDRESS:1')['allocation_requests']) == 150


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


def numa(count: int) -> list[RP]:
    topology = []
    for number in range(count):
        host = f'host{number}'
        topology += [
            rp(host, aggregates='all', MEMORY_MB=8192),
            rp(f'{host}-a', host, VCPU=4),
            rp(f'{host}-b', host, VCPU=4),
        ]
    return [*topology, rp('nfs', aggregates='all', shares=True, DISK_GB=10000)]


@pytest.mark.parametrize(
    ('topology', 'query'),
    [
        (flat, 'resources=VCPU:1&limit=10'),
        (flat, 'resources=VCPU:1'),
        (flat, f'resources=VCPU:1&required={AVX2}&member_of=all&limit=10'),
        (numa, 'resources=VCPU:1,MEMORY_MB:64,DISK_GB:1&limit=10'),
        (numa, 'resources=MEMORY_MB:64&resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate&limit=10'),
        (flat, 'resources=VCPU:9'),
    ],
)
def test_a_search_with_nothing_changed_is_one_statement(
    app: Any, queries: Counter, caplog: pytest.LogCaptureFixture, topology: Any, query: str
) -> None:
    caplog.set_level(logging.INFO)
    stored = Stored(app, topology(500))
    stored.candidates(query)
    with queries(at_most=1):
        stored.candidates(query)


def test_memory_for_a_symmetric_tree_is_bounded_by_the_limit(app: Any) -> None:
    topology = [
        provider
        for tree in ('east', 'west')
        for provider in [rp(tree, VCPU=64), *(rp(f'{tree}{n}', tree, SRIOV_NET_VF=8) for n in range(16))]
    ]
    stored = Stored(app, topology)
    query = Query([Group(str(n), {'SRIOV_NET_VF': 1}) for n in range(1, 9)], 'none', 1000)
    path = f'/allocation_candidates?{query_string(query)}'
    assert stored.request(path, 29).status_code == 200
    tracemalloc.start()
    response = stored.request(path, 29)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(response.json['allocation_requests']) == 1000
    assert peak < 50_000_000
