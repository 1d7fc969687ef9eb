"""The lines of the table: name, shape of the cloud, and requests of each."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import NamedTuple

import orjson

from bench.client import Request
from bench.shapes import CPU_TRAITS, DISABLED, Cloud

#: The consumer with allocations on the provider that is read.
READER = '11111111-1111-4111-8111-111111111111'

AMOUNTS = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 5}


class Read(NamedTuple):
    """A GET."""

    name: str
    title: str
    shape: str
    path: Callable[[Cloud], str]
    #: None for the microversion of the run.
    version: str | None = None


class Script(NamedTuple):
    """The requests of callers in one round, made beforehand."""

    callers: list[list[Request]]
    #: Sent before the timing starts.
    setup: list[Request]


class Write(NamedTuple):
    """Work of several callers at once."""

    name: str
    title: str
    callers: int
    #: The number of requests in a cycle.
    cycle: int
    #: Makes what each caller sends, from the cloud, the number of works and the name of the round.
    script: Callable[[Cloud, int, str], Script]
    #: 'per second', or 'seconds' for the whole.
    unit: str = '/s'


def _candidates(name: str, title: str, shape: str, query: str, version: str | None = None) -> Read:
    return Read(name, title, shape, lambda _cloud: f'/allocation_candidates?{query}', version)


def _with_mappings(line: Read) -> Read:
    """Return the same search at 1.36."""
    return line._replace(name=f'{line.name}-mappings', title=f'{line.title}, at 1.36', version='1.36')


def _numbered(groups: list[str], policy: str, limit: int) -> str:
    numbered = '&'.join(f'resources{number}={resources}' for number, resources in enumerate(groups, start=1))
    return f'{numbered}&group_policy={policy}&limit={limit}'


def _traits_and_aggregate(cloud: Cloud) -> str:
    traits = ','.join(CPU_TRAITS[1:])
    return f'/allocation_candidates?{_HOST}&required={traits}&member_of={cloud.aggregates[-1]}'


def _any_trait_and_no_aggregate(cloud: Cloud) -> str:
    traits = ','.join(CPU_TRAITS[1:])
    return f'/allocation_candidates?{_HOST}&required=in:{traits}&member_of=!{cloud.aggregates[-1]}&limit=350'


def _in_tree(cloud: Cloud) -> str:
    return f'/allocation_candidates?{_HOST}&in_tree={cloud.uuid_of(middle(cloud))}'


def _provider(below: str) -> Callable[[Cloud], str]:
    return lambda cloud: f'/resource_providers/{cloud.uuid_of(middle(cloud))}{below}'


def middle(cloud: Cloud) -> int:
    """Return the id of the provider that single reads are about."""
    return len(cloud.providers) // 2 + 1


_HOST = 'resources=VCPU:2,MEMORY_MB:2048,DISK_GB:20'
_NUMA, _NIC = 'VCPU:2,MEMORY_MB:2048', 'SRIOV_NET_VF:1'

#: The search of the scheduler of compute: no host that is disabled, and one trait.
_SCHEDULER = f'{_HOST}&limit=1000&root_required=!{DISABLED}&required={CPU_TRAITS[0]}'
#: A port that needs two devices of one NUMA node: the node is a group without resources.
_PORT = (
    'resources_A=SRIOV_NET_VF:1&resources_B=CUSTOM_FPGA:1&required_N=HW_NUMA_ROOT&same_subtree=_A,_B,_N'
    '&group_policy=none&limit=1000'
)

#: Searches and lists, whose cost depends on the number of providers.
SEARCHES = [
    _candidates('limit-10', 'candidates, limit=10', 'flat', f'{_HOST}&limit=10'),
    _candidates('limit-1000', 'candidates, limit=1000', 'flat', f'{_HOST}&limit=1000'),
    _candidates('no-limit', 'candidates, no limit', 'flat', _HOST),
    Read('traits-and-aggregate', 'candidates, two traits and member_of', 'flat', _traits_and_aggregate),
    _candidates('nothing-fits', 'candidates, nothing fits', 'flat', 'resources=VCPU:65,MEMORY_MB:2048,DISK_GB:20'),
    Read('providers', 'GET /resource_providers', 'flat', lambda _cloud: '/resource_providers'),
    Read('providers-resources', 'GET /resource_providers?resources=', 'flat', lambda _: f'/resource_providers?{_HOST}'),
    _candidates('nested-limit-10', 'candidates, limit=10', 'nested', f'resources={_NUMA},{_NIC}&limit=10'),
    _candidates(
        'nested-limit-1000',
        'candidates, unnumbered, limit=1000',
        'nested',
        f'resources={_NUMA.partition(",")[0]},DISK_GB:20&limit=1000',
    ),
    _candidates(
        'nested-none',
        'candidates, 4 groups, none, limit=1000',
        'nested',
        _numbered([_NUMA, _NUMA, _NIC, _NIC], 'none', 1000),
    ),
    _candidates(
        'nested-isolate',
        'candidates, 3 groups, isolate, limit=100',
        'nested',
        _numbered([_NUMA, _NIC, _NIC], 'isolate', 100),
    ),
    _candidates('shared-limit-10', 'candidates, limit=10', 'shared', f'{_HOST}&limit=10'),
    _candidates('shared-limit-1000', 'candidates, limit=1000', 'shared', f'{_HOST}&limit=1000'),
    _candidates(
        'symmetric-none', 'candidates, 8 groups, none, limit=1000', 'symmetric', _numbered([_NIC] * 8, 'none', 1000)
    ),
    _candidates(
        'symmetric-isolate',
        'candidates, 8 groups, isolate, limit=1000',
        'symmetric',
        _numbered([_NIC] * 8, 'isolate', 1000),
    ),
]

SMALL_READS = [
    Read('provider', 'GET one provider', 'flat', _provider('')),
    Read('inventories', 'GET its inventories', 'flat', _provider('/inventories')),
    Read('usages', 'GET its usages', 'flat', _provider('/usages')),
    Read('traits', 'GET its traits', 'flat', _provider('/traits')),
    Read('aggregates', 'GET its aggregates', 'flat', _provider('/aggregates')),
    Read('provider-allocations', 'GET its allocations', 'flat', _provider('/allocations')),
    Read('allocations', 'GET the allocations of a consumer', 'flat', lambda _cloud: f'/allocations/{READER}'),
]

_REPEATED = (
    *('limit-10', 'limit-1000', 'nested-limit-10', 'nested-limit-1000', 'nested-none', 'nested-isolate'),
    *('shared-limit-10', 'shared-limit-1000', 'symmetric-none', 'symmetric-isolate'),
)

#: Searches with what came after 1.29.
LATER_SEARCHES = [
    *(_with_mappings(line) for line in SEARCHES if line.name in _REPEATED),
    _candidates('scheduler', 'candidates, the search of a compute scheduler, limit=1000', 'flat', _SCHEDULER, '1.36'),
    Read('in-tree', 'candidates, in_tree of one host', 'flat', _in_tree, '1.36'),
    Read(
        'any-trait', 'candidates, required=in: and member_of=!, limit=350', 'flat', _any_trait_and_no_aggregate, '1.39'
    ),
    _candidates('port', 'candidates, 3 groups in one same_subtree, limit=1000', 'nested', _PORT, '1.36'),
]

READS = [*SEARCHES, *LATER_SEARCHES, *SMALL_READS]


def claim(consumer: str, *provider_uuids: str, generation: int | None = None, method: str = 'PUT') -> Request:
    """Claim ``AMOUNTS`` of each provider for a consumer by PUT; a POST does the same work."""
    body = {
        'allocations': {uuid_: {'resources': AMOUNTS} for uuid_ in provider_uuids},
        'project_id': 'project',
        'user_id': 'user',
        'consumer_generation': generation,
    }
    if method == 'POST':
        return Request('POST', '/allocations', _json({consumer: body}))
    return Request('PUT', f'/allocations/{consumer}', _json(body))


def release(consumer: str) -> Request:
    """Delete the allocations of a consumer."""
    return Request('DELETE', f'/allocations/{consumer}')


def consumer(*name: object) -> str:
    """Return the uuid of the consumer called ``name``."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, ' '.join(map(str, name))))


def claims_and_releases(cloud: Cloud, caller: int = 0) -> list[Request]:
    """Return the requests that one caller repeats without pause: a claim, its deletion, a claim of another consumer."""
    names = [consumer('stream', caller, number) for number in range(10)]
    return [
        request
        for number, name in enumerate(names)
        for request in (claim(name, host(cloud, caller * 100 + number * 7)), release(name))
    ]


def _claims(cloud: Cloud, count: int, round_: str) -> Script:
    """Claims of different consumers, one host after the other; each caller has its own part of the cloud."""
    start = cloud.size // 4 or 1
    return _shared_out(
        4,
        [
            claim(consumer('claim', round_, number), host(cloud, number % 4 * start + number // 4))
            for number in range(count)
        ],
    )


def _claims_on_one_host(_cloud: Cloud, count: int, round_: str) -> Script:
    """Claims on one host, which is large enough for all."""
    host = consumer('large host', round_)
    setup = [
        Request('POST', '/resource_providers', _json({'name': f'large-{round_}', 'uuid': host})),
        _put_inventories(host, 10_000_000),
    ]
    requests = [claim(consumer('one host', round_, number), host) for number in range(count)]
    return _shared_out(16, requests)._replace(setup=setup)


def _moves(cloud: Cloud, count: int, round_: str) -> Script:
    """Each caller has up to ten servers, and moves one after the other to its second host and back."""
    own = min(10, max(1, count // 4))
    setup, callers = [], []
    for caller in range(4):
        names = [consumer('move', round_, caller, number) for number in range(own)]
        pairs = [(host(cloud, 20 * caller + 2 * n), host(cloud, 20 * caller + 2 * n + 1)) for n in range(own)]
        setup += [claim(name, pair[0]) for name, pair in zip(names, pairs, strict=True)]
        moves = [divmod(number, own) for number in range(max(1, count // 4))]
        callers.append(
            [
                claim(names[instance], pairs[instance][(turn + 1) % 2], generation=turn + 1, method='POST')
                for turn, instance in moves
            ]
        )
    return Script(callers, setup)


def _new_hosts(cloud: Cloud, count: int, round_: str) -> Script:
    """Four calls for each host: the provider, its inventories, traits and aggregates."""
    callers: list[list[Request]] = [[] for _ in range(4)]
    for number in range(count):
        host = consumer('new host', round_, number)
        below = f'/resource_providers/{host}'
        traits = {'traits': CPU_TRAITS, 'resource_provider_generation': 1}
        aggregates = {'aggregates': [cloud.aggregates[0]], 'resource_provider_generation': 2}
        callers[number % 4] += [
            Request('POST', '/resource_providers', _json({'name': f'new-{round_}-{number}', 'uuid': host})),
            _put_inventories(host, 1000),
            Request('PUT', f'{below}/traits', _json(traits)),
            Request('PUT', f'{below}/aggregates', _json(aggregates)),
        ]
    return Script(callers, [])


#: A reshape of the benchmark: a host moves the processors and memory of its consumers to its children, or back.
_CELLS, _CONSUMERS = 3, 20


def _reshapes(_cloud: Cloud, count: int, round_: str) -> Script:
    """Each caller has a host with children and consumers, and moves inventory in use down and up again."""
    setup, callers = [], []
    for caller in range(4):
        host, *cells = [consumer('reshaped', round_, caller, number) for number in range(_CELLS + 1)]
        for number, provider in enumerate((host, *cells)):
            body = {'name': f'reshaped-{round_}-{caller}-{number}', 'uuid': provider}
            parent = {'parent_provider_uuid': host} if number else {}
            setup.append(Request('POST', '/resource_providers', _json(body | parent)))
        setup.append(_put_inventories(host, 10_000))
        consumers = [consumer('reshape', round_, caller, number) for number in range(_CONSUMERS)]
        setup += [claim(name, host) for name in consumers]
        # The generations: the host's inventories and claims came before. A reshape adds 2 to a provider that keeps
        # inventory and 1 to one that loses all; and 1 to one that receives allocations.
        generations = dict.fromkeys(cells, 0) | {host: 1 + _CONSUMERS}
        requests = []
        for turn in range(max(1, count // 4)):
            down = turn % 2 == 0
            requests.append(_reshape(host, cells, consumers, generations, turn + 1, down=down))
            generations[host] += 3
            for cell in cells:
                generations[cell] += 3 if down else 1
        callers.append(requests)
    return Script(callers, setup)


def _reshape(
    host: str, cells: list[str], consumers: list[str], generations: dict[str, int], generation: int, *, down: bool
) -> Request:
    """Move inventory and allocations of all classes but the disk from the host to its cells, or back."""
    everything = {name: {'total': 100_000} for name in AMOUNTS}
    moving = {name: record for name, record in everything.items() if name != 'DISK_GB'}
    disk = {'DISK_GB': everything['DISK_GB']}
    after = {host: disk if down else everything} | {cell: moving if down else {} for cell in cells}
    amounts = {name: AMOUNTS[name] for name in moving}
    allocations = {}
    for number, name in enumerate(consumers):
        of_host = {'DISK_GB': AMOUNTS['DISK_GB']} | ({} if down else amounts)
        parts = {host: {'resources': of_host}}
        if down:
            parts[cells[number % len(cells)]] = {'resources': amounts}
        owner = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': generation}
        allocations[name] = {'allocations': parts, **owner}
    inventories = {
        provider: {'inventories': records, 'resource_provider_generation': generations[provider]}
        for provider, records in after.items()
    }
    return Request('POST', '/reshaper', _json({'inventories': inventories, 'allocations': allocations}), '1.30')


def _put_inventories(host: str, total: int) -> Request:
    inventories = {name: {'total': total * 10} for name in AMOUNTS}
    body = {'resource_provider_generation': 0, 'inventories': inventories}
    return Request('PUT', f'/resource_providers/{host}/inventories', _json(body))


def _shared_out(callers: int, requests: list[Request]) -> Script:
    return Script([requests[number::callers] for number in range(callers)], [])


def host(cloud: Cloud, number: int) -> str:
    """Return the uuid of a flat host; numbers above the last start again at the first."""
    return cloud.providers[number % cloud.size][1]


def _json(body: object) -> str:
    return orjson.dumps(body).decode()


#: All of them are about the flat shape.
WRITES = [
    Write('claim', 'PUT /allocations, 4 callers, distinct consumers', 4, 1, _claims),
    Write('claim-one-host', 'PUT /allocations, 16 callers, one host', 16, 1, _claims_on_one_host),
    Write('move', 'POST /allocations that moves an instance, 4 callers', 4, 1, _moves),
    Write('reshape', 'POST /reshaper, a host with 3 children and 20 consumers, 4 callers', 4, 2, _reshapes),
    Write('create-hosts', 'creating {count} hosts, 4 calls each, 4 callers', 4, 4, _new_hosts, 's'),
]

#: Other lines that are measured on the flat shape, by name.
OTHERS = {
    'fill': 'filling the database',
    'limit-10-while-claiming': 'candidates, limit=10, while one caller claims and releases',
    'memory': "a worker's memory above an empty service",
    'start': 'start to first search, above an empty service',
    'refresh': 'the first search after 1, 100, 10,000 claims elsewhere, above one without',
    'log-size': 'the change log after all of the above',
    'slots': 'candidates, limit=10, with 5, 500, 2,000 slots of the change log',
    'slots-claiming': 'the same with 5, 500 slots while 4 callers claim, against 5',
    'background-refresh': 'the first search of a process that nobody asked, 2.5 s after 10,000 claims elsewhere',
    'processes': '8 processes of one host: time until all are ready, against one; memory of all (PSS)',
    'each-candidate': 'each candidate beyond the tenth of limit=1000, within the process',
    'idle-connections': 'candidates, limit=10, with 2,000 idle connections to the process, against none',
}

NAMES = [*(line.name for line in READS), *(line.name for line in WRITES), *OTHERS]
