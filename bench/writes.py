"""The lines about writes of several callers at once, and the requests that claim."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from bench import callers
from bench.client import Request
from bench.shapes import CPU_TRAITS, Cloud
from bench.target import Figure, Line, Target

_AMOUNTS = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 5}
_CALLERS, _MANY_CALLERS = 4, 16


class Script(NamedTuple):
    """What callers send in one round."""

    callers: list[list[Request]]
    #: Sent before the callers start.
    setup: list[Request]


def consumer(*name: object) -> str:
    """Return the uuid of the consumer called ``name``."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, ' '.join(map(str, name))))


def claim(consumer_uuid: str, provider_uuid: str) -> Request:
    """Return the request that allocates ``_AMOUNTS`` of a provider for a new consumer."""
    return Request('PUT', f'/allocations/{consumer_uuid}', _json(_allocations(provider_uuid)))


def claims(hosts: Iterable[tuple[str, str]], generation: int | None = None) -> Request:
    """Return the request that sets the allocations of consumers.

    :param hosts: the uuid of each consumer, and that of its provider.
    :param generation: of the consumers, None if they are new.
    """
    body = {consumer_uuid: _allocations(provider_uuid, generation) for consumer_uuid, provider_uuid in hosts}
    return Request('POST', '/allocations', _json(body))


def claims_and_releases(cloud: Cloud) -> list[Request]:
    """Return requests that can be repeated: a claim, its deletion, a claim of another consumer."""
    requests = []
    for number in range(10):
        name = consumer('stream', number)
        requests += [claim(name, cloud.host(number * 7)), Request('DELETE', f'/allocations/{name}')]
    return requests


def _allocations(provider_uuid: str, generation: int | None = None) -> dict[str, Any]:
    return {
        'allocations': {provider_uuid: {'resources': _AMOUNTS}},
        'project_id': 'project',
        'user_id': 'user',
        'consumer_generation': generation,
    }


def _claims(cloud: Cloud, count: int, round_: str) -> Script:
    """Claims of different consumers, one host after the other; each caller has its part of the cloud."""
    part = cloud.size // _CALLERS or 1
    hosts = [cloud.host(number % _CALLERS * part + number // _CALLERS) for number in range(count)]
    requests = [claim(consumer('claim', round_, number), host) for number, host in enumerate(hosts)]
    return Script(_split(requests, _CALLERS), [])


def _claims_on_one_host(_cloud: Cloud, count: int, round_: str) -> Script:
    """Claims on one host, which is large enough for all."""
    host = consumer('large host', round_)
    setup = [
        Request('POST', '/resource_providers', _json({'name': f'large-{round_}', 'uuid': host})),
        _put_inventories(host, 10_000_000),
    ]
    requests = [claim(consumer('one host', round_, number), host) for number in range(count)]
    return Script(_split(requests, _MANY_CALLERS), setup)


def _moves(cloud: Cloud, count: int, round_: str) -> Script:
    """Each caller has up to ten servers, and moves one after the other to its second host and back."""
    moves = max(1, count // _CALLERS)
    servers = min(10, moves)
    setup, scripts = [], []
    for caller in range(_CALLERS):
        names = [consumer('move', round_, caller, number) for number in range(servers)]
        hosts = [[cloud.host(20 * caller + 2 * number + side) for side in (0, 1)] for number in range(servers)]
        setup += [claim(name, pair[0]) for name, pair in zip(names, hosts, strict=True)]
        turns = [divmod(number, servers) for number in range(moves)]
        scripts.append([claims([(names[server], hosts[server][(turn + 1) % 2])], turn + 1) for turn, server in turns])
    return Script(scripts, setup)


def _new_hosts(cloud: Cloud, count: int, round_: str) -> Script:
    """Four calls for each host: the provider, its inventories, traits and aggregates."""
    scripts: list[list[Request]] = [[] for _ in range(_CALLERS)]
    for number in range(count):
        host = consumer('new host', round_, number)
        below = f'/resource_providers/{host}'
        traits = {'traits': CPU_TRAITS, 'resource_provider_generation': 1}
        aggregates = {'aggregates': [cloud.aggregates[0]], 'resource_provider_generation': 2}
        scripts[number % _CALLERS] += [
            Request('POST', '/resource_providers', _json({'name': f'new-{round_}-{number}', 'uuid': host})),
            _put_inventories(host, 1000),
            Request('PUT', f'{below}/traits', _json(traits)),
            Request('PUT', f'{below}/aggregates', _json(aggregates)),
        ]
    return Script(scripts, [])


def _put_inventories(host: str, total: int) -> Request:
    inventories = {name: {'total': total * 10} for name in _AMOUNTS}
    body = {'resource_provider_generation': 0, 'inventories': inventories}
    return Request('PUT', f'/resource_providers/{host}/inventories', _json(body))


def _split(requests: list[Request], count: int) -> list[list[Request]]:
    return [requests[number::count] for number in range(count)]


def _json(body: object) -> str:
    return orjson.dumps(body).decode()


def _measure(script: Callable[[Cloud, int, str], Script], works: int, target: Target, round_: int) -> list[float]:
    """Measure how many of the works the callers finish in a second."""
    count = target.settings.writes
    requests, setup = script(target.cloud, count, f'round {round_}')
    target.send(*setup)
    encoded = [[target.encode(request) for request in caller] for caller in requests]
    return [sum(map(len, requests)) / works / callers.seconds(target.service.port, encoded)]


def _line(name: str, title: str, script: Callable[[Cloud, int, str], Script], works: int = 1) -> Line:
    """Make a line.

    :param works: the number of requests for each work.
    """

    def requests(cloud: Cloud) -> list[Request]:
        # Enough that the first requests have created project and user, and filled caches.
        callers, setup = script(cloud, 2 * _MANY_CALLERS, 'statements')
        return [*setup, *callers[0]]

    measure = functools.partial(_measure, script, works)
    # In more rounds the hosts of small clouds would be full.
    return Line(name, 'flat', [Figure(title, '/s')], measure, requests, counted=works, max_rounds=25)


LINES = [
    _line('claim', 'PUT /allocations, 4 callers, distinct consumers', _claims),
    _line('claim-one-host', 'PUT /allocations, 16 callers, one host', _claims_on_one_host),
    _line('move', 'POST /allocations that moves an instance, 4 callers', _moves),
    _line('create-hosts', 'hosts created with 4 requests each, 4 callers', _new_hosts, works=4),
]
