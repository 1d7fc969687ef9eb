"""The lines about one GET: searches, lists, and what belongs to one provider."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

from bench import callers, writes
from bench.client import Connection, Request
from bench.shapes import CPU_TRAITS, DISABLED, Cloud
from bench.target import Figure, Line, Target

#: A process fills its caches with the first ones, which are not measured.
_WARM_UP = 3

_HOST = 'resources=VCPU:2,MEMORY_MB:2048,DISK_GB:20'
_NUMA, _NIC = 'VCPU:2,MEMORY_MB:2048', 'SRIOV_NET_VF:1'
#: The search of the scheduler of compute: no host that is disabled, and one trait.
_SCHEDULER = f'/allocation_candidates?{_HOST}&limit=1000&root_required=!{DISABLED}&required={CPU_TRAITS[0]}'
#: A port that needs two devices of one NUMA node: the node is a group without resources.
_PORT = (
    'resources_A=SRIOV_NET_VF:1&resources_B=CUSTOM_FPGA:1&required_N=HW_NUMA_ROOT&same_subtree=_A,_B,_N'
    '&group_policy=none&limit=1000'
)


def search(cloud: Cloud, name: str = 'limit-10') -> Request:
    """Return the request of a line."""
    line = next(line for line in LINES if line.name == name)
    assert line.requests is not None
    return line.requests(cloud)[0]


def _measure(requests: Callable[[Cloud], list[Request]], target: Target, _round: int) -> list[float]:
    """Measure the median time of a request over one connection."""
    encoded = target.encode(requests(target.cloud)[0])
    with Connection(target.service.port) as connection:
        for _ in range(_WARM_UP):
            connection.send(encoded)
        return [statistics.median(connection.send(encoded).seconds for _ in range(target.settings.requests)) * 1000]


def _measure_while_claiming(target: Target, round_: int) -> list[float]:
    stream = [target.encode(request) for request in writes.claims_and_releases(target.cloud)]
    with callers.running(functools.partial(callers.repeat, target.service.port, stream)):
        return _measure(lambda cloud: [search(cloud)], target, round_)


def _measure_explained(target: Target, round_: int) -> list[float]:
    """Measure searches that find nothing, in turn with and without an explanation in the log."""
    silent = {'OS_DEFAULT__DEFAULT_LOG_LEVELS': 'placement.ops.empty_searches=WARNING'}
    with (
        target.start(1) as explaining,
        target.start(1, **silent) as other,
        Connection(explaining.port) as first,
        Connection(other.port) as second,
    ):
        samples: list[list[float]] = [[], []]
        for number in range(target.settings.requests):
            # Equal queries are explained once in a minute.
            query = f'resources=VCPU:{1000 + number},MEMORY_MB:2048&limit={round_ + 1}'
            encoded = target.encode(Request('GET', f'/allocation_candidates?{query}'))
            for connection, seconds in zip((first, second), samples, strict=True):
                seconds.append(connection.send(encoded).seconds)
        return [statistics.median(seconds) * 1000 for seconds in samples]


def _read(name: str, title: str, shape: str, path: Callable[[Cloud], str], version: str | None = None) -> Line:
    def requests(cloud: Cloud) -> list[Request]:
        return [Request('GET', path(cloud), version=version)]

    return Line(name, shape, [Figure(title, 'ms')], functools.partial(_measure, requests), requests)


def _candidates(name: str, title: str, shape: str, query: str, version: str | None = None) -> Line:
    return _read(name, f'candidates, {title}', shape, lambda _cloud: f'/allocation_candidates?{query}', version)


def _numbered(groups: list[str], policy: str, limit: int) -> str:
    numbered = '&'.join(f'resources{number}={resources}' for number, resources in enumerate(groups, start=1))
    return f'{numbered}&group_policy={policy}&limit={limit}'


def _traits_and_aggregate(cloud: Cloud) -> str:
    traits = ','.join(CPU_TRAITS[1:])
    return f'/allocation_candidates?{_HOST}&required={traits}&member_of={cloud.aggregates[-1]}'


def _provider(name: str, title: str, below: str) -> Line:
    return _read(name, title, 'flat', lambda cloud: f'/resource_providers/{_middle(cloud)}{below}')


def _middle(cloud: Cloud) -> str:
    """Return the uuid of the provider that single reads are about."""
    return cloud.uuid_of(len(cloud.providers) // 2 + 1)


def _with_allocations(line: Line) -> Line:
    """Let a consumer named as the line have allocations of the provider in the middle."""
    return line._replace(setup=lambda cloud: [writes.claim(writes.consumer(line.name), _middle(cloud))])


def _claim_for_project(cloud: Cloud) -> list[Request]:
    """Let the project of all claims have a thousand consumers at least."""
    return [writes.claims((writes.consumer('usages', number), cloud.host(number)) for number in range(1000))]


LINES = [
    _candidates('limit-10', 'limit=10', 'flat', f'{_HOST}&limit=10'),
    _candidates('limit-1000', 'limit=1000', 'flat', f'{_HOST}&limit=1000'),
    _candidates('no-limit', 'no limit', 'flat', _HOST),
    Line(
        'nothing-explained',
        'flat',
        [Figure('candidates, nothing fits, explained in the log', 'ms'), Figure('the same, not explained', 'ms')],
        _measure_explained,
    ),
    _read('traits-and-aggregate', 'candidates, two traits and member_of', 'flat', _traits_and_aggregate),
    _candidates('nothing-fits', 'nothing fits', 'flat', 'resources=VCPU:65,MEMORY_MB:2048,DISK_GB:20'),
    _read('scheduler', 'candidates, the search of a compute scheduler', 'flat', lambda _: _SCHEDULER, '1.36'),
    _read('providers', 'GET /resource_providers', 'flat', lambda _cloud: '/resource_providers'),
    _read(
        'providers-resources', 'GET /resource_providers?resources=', 'flat', lambda _: f'/resource_providers?{_HOST}'
    ),
    _provider('provider', 'GET one provider', ''),
    _provider('inventories', 'GET its inventories', '/inventories'),
    _provider('usages', 'GET its usages', '/usages'),
    _provider('traits', 'GET its traits', '/traits'),
    _provider('aggregates', 'GET its aggregates', '/aggregates'),
    _with_allocations(_provider('provider-allocations', 'GET its allocations', '/allocations')),
    _with_allocations(
        _read(
            'allocations',
            'GET the allocations of a consumer',
            'flat',
            lambda _cloud: f'/allocations/{writes.consumer("allocations")}',
        )
    ),
    _read(
        'project-usages', 'GET the usages of a project', 'flat', lambda _cloud: '/usages?project_id=project'
    )._replace(setup=_claim_for_project),
    Line(
        'limit-10-while-claiming',
        'flat',
        [Figure('candidates, limit=10, while one caller claims and releases', 'ms')],
        _measure_while_claiming,
    ),
    _candidates('nested-limit-10', 'limit=10', 'nested', f'resources={_NUMA},{_NIC}&limit=10'),
    _candidates('nested-limit-1000', 'unsuffixed, limit=1000', 'nested', 'resources=VCPU:2,DISK_GB:20&limit=1000'),
    _candidates(
        'nested-none', '4 groups, none, limit=1000', 'nested', _numbered([_NUMA, _NUMA, _NIC, _NIC], 'none', 1000)
    ),
    _candidates(
        'nested-isolate', '3 groups, isolate, limit=100', 'nested', _numbered([_NUMA, _NIC, _NIC], 'isolate', 100)
    ),
    _candidates('port', '3 groups in one same_subtree, limit=1000', 'nested', _PORT, '1.36'),
    _candidates('shared-limit-10', 'limit=10', 'shared', f'{_HOST}&limit=10'),
    _candidates('shared-limit-1000', 'limit=1000', 'shared', f'{_HOST}&limit=1000'),
    _candidates('symmetric-none', '8 groups, none, limit=1000', 'symmetric', _numbered([_NIC] * 8, 'none', 1000)),
    _candidates(
        'symmetric-isolate', '8 groups, isolate, limit=1000', 'symmetric', _numbered([_NIC] * 8, 'isolate', 1000)
    ),
]
