"""Random histories of requests: every kind of write, on so few providers, classes and traits that they conflict.

The service has to serve microversion 1.37.
"""

from __future__ import annotations

import collections
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.support.http_client import send_request

#: Sends method, path, body and microversion; returns the status (None if unknown) and the decoded answer.
Send = Callable[[str, str, Any, str], tuple[int | None, Any]]

_OWNER = {'project_id': 'history', 'user_id': 'history'}
_LATEST = '1.29'
_STANDARD = ('VCPU', 'MEMORY_MB')
_STANDARD_TRAITS = ('HW_CPU_X86_AVX2', 'MISC_SHARES_VIA_AGGREGATE')


def sender(app: Any) -> Send:
    """Sends requests to a WSGI application in this process."""

    def send(method: str, path: str, body: Any, version: str) -> tuple[int | None, Any]:
        response = send_request(app, method, path, body, version)
        return response.status_code, response.json if response.body else None

    return send


class Universe:
    """The names that histories use; several that run at once share one."""

    def __init__(self, seed: int, providers: int = 10) -> None:
        choose = random.Random(seed)
        self.providers = [str(uuid.UUID(int=choose.getrandbits(128), version=4)) for _ in range(providers)]
        self.consumers = [str(uuid.UUID(int=choose.getrandbits(128), version=4)) for _ in range(5)]
        self.aggregates = [str(uuid.UUID(int=choose.getrandbits(128), version=4)) for _ in range(3)]
        mark = f'{choose.getrandbits(32):08X}'
        self.classes = [f'CUSTOM_{mark}_{number}' for number in range(3)]
        self.traits = [f'CUSTOM_{mark}_{number}' for number in range(3)]
        self.names = [f'{mark.lower()}-{number}' for number in range(providers + 2)]


class Kind(NamedTuple):
    """A kind of request: how often it is sent, and what; the fields of ``path`` are chosen at random.

    ``is_guarded`` adds a provider generation to the body, which is usually the current one.
    """

    weight: int
    method: str
    path: str
    body: Callable[[History], Any] = lambda _: None
    version: str = _LATEST
    is_guarded: bool = False


class History:
    """One client that writes at random; ``step`` makes one request, with those that have to precede it.

    ``answers`` counts the requests by (kind, whether accepted); ``errors`` has those that failed with a server
    error, with the status.
    """

    def __init__(self, send: Send, universe: Universe, seed: object) -> None:
        self._send = send
        self.names = universe
        self._choose = random.Random(str(seed))
        #: The consumer of the current request.
        self.consumer = ''
        self.answers: collections.Counter[tuple[str, bool]] = collections.Counter()
        self.errors: list[tuple[str, int]] = []

    def populate(self) -> None:
        """Create what claims need to succeed: each provider as a root with inventory."""
        for provider, name in zip(self.names.providers, self.names.names, strict=False):
            self._send('POST', '/resource_providers', {'uuid': provider, 'name': name}, _LATEST)
            inventories = {resource_class: {'total': 1000} for resource_class in _STANDARD}
            body = {'resource_provider_generation': 0, 'inventories': inventories}
            self._send('PUT', f'/resource_providers/{provider}/inventories', body, _LATEST)

    def step(self) -> None:
        """Send one random request."""
        (name,) = self._choose.choices(list(KINDS), [kind.weight for kind in KINDS.values()])
        kind, provider, self.consumer = KINDS[name], self.one(self.names.providers), self.one(self.names.consumers)
        path = kind.path.format(
            provider=provider,
            consumer=self.consumer,
            resource_class=self.one(self.classes()),
            custom_class=self.one(self.names.classes),
            trait=self.one(self.names.traits),
        )
        body = kind.body(self)
        if kind.is_guarded:
            body = {'resource_provider_generation': self._generation(provider), **body}
        status, _ = self._send(kind.method, path, body, kind.version)
        if status is not None and status >= 500:
            self.errors.append((name, status))
        elif status is not None:
            self.answers[name, status < 300] += 1

    # Bodies ---------------------------------------------------------------------------------------------------

    def provider(self, chance_of_parent: float, **members: Any) -> dict[str, Any]:
        """A provider with a name, and perhaps with a parent."""
        body = {**members, 'name': self.one(self.names.names)}
        if self._choose.random() < chance_of_parent:
            body['parent_provider_uuid'] = self.one(self.names.providers)
        return body

    def inventory(self, **members: Any) -> dict[str, Any]:
        choose = self._choose
        return {
            **members,
            'total': choose.randint(4, 40),
            'reserved': choose.choice((0, 0, 1)),
            'min_unit': choose.choice((1, 1, 1, 2)),
            'max_unit': choose.randint(3, 40),
            'step_size': choose.choice((1, 1, 1, 1, 2)),
            'allocation_ratio': choose.choice((1.0, 1.5, 0.9)),
        }

    def inventory_of_class(self) -> dict[str, Any]:
        return self.inventory(resource_class=self.one(self.classes()))

    def inventories(self) -> dict[str, Any]:
        return {'inventories': {name: self.inventory() for name in self.some(self.classes())}}

    def class_name(self) -> dict[str, Any]:
        return {'name': self.one(self.names.classes)}

    def traits(self) -> dict[str, Any]:
        return {'traits': self.some([*self.names.traits, *_STANDARD_TRAITS])}

    def aggregates(self) -> list[str]:
        return self.some(self.names.aggregates)

    def claim(self, consumer: str) -> dict[str, Any]:
        status, answer = self._send('GET', f'/allocations/{consumer}', None, _LATEST)
        generation = answer.get('consumer_generation') if status == 200 else None
        allocations = {
            provider: {'resources': {name: self._choose.randint(1, 3) for name in self.some(_STANDARD, least=1)}}
            for provider in self._choose.sample(self.names.providers, self._choose.choice((0, 1, 1, 2, 2)))
        }
        return {'allocations': allocations, 'consumer_generation': generation, **_OWNER}

    def claims(self) -> dict[str, Any]:
        consumers = self._choose.sample(self.names.consumers, self._choose.randint(1, 3))
        return {consumer: self.claim(consumer) for consumer in consumers}

    # Choices --------------------------------------------------------------------------------------------------

    def _generation(self, provider: str) -> int:
        status, answer = self._send('GET', f'/resource_providers/{provider}', None, _LATEST)
        generation = answer['generation'] if status == 200 else 0
        return int(generation) + (self._choose.random() < 0.1)

    def uuid(self) -> str:
        return self.one(self.names.providers)

    def classes(self) -> list[str]:
        return [*_STANDARD * 2, *self.names.classes]

    def one(self, of: Sequence[str]) -> str:
        return self._choose.choice(of)

    def some(self, of: Sequence[str], least: int = 0) -> list[str]:
        distinct = list(dict.fromkeys(of))
        return self._choose.sample(distinct, self._choose.randint(least, min(len(distinct), 3)))


_PROVIDER = '/resource_providers/{provider}'
KINDS = {
    'create': Kind(8, 'POST', '/resource_providers', lambda history: history.provider(0.6, uuid=history.uuid())),
    'change': Kind(8, 'PUT', _PROVIDER, lambda history: history.provider(0.5)),
    # A provider of any tree goes elsewhere, or becomes a root, with all below it.
    'move': Kind(10, 'PUT', _PROVIDER, lambda history: {'parent_provider_uuid': None, **history.provider(0.7)}, '1.37'),
    'delete': Kind(4, 'DELETE', _PROVIDER),
    'put inventories': Kind(6, 'PUT', f'{_PROVIDER}/inventories', History.inventories, is_guarded=True),
    'post inventory': Kind(4, 'POST', f'{_PROVIDER}/inventories', History.inventory_of_class),
    'put inventory': Kind(4, 'PUT', f'{_PROVIDER}/inventories/{{resource_class}}', History.inventory, is_guarded=True),
    'delete inventory': Kind(4, 'DELETE', f'{_PROVIDER}/inventories/{{resource_class}}'),
    'delete inventories': Kind(1, 'DELETE', f'{_PROVIDER}/inventories'),
    'put traits': Kind(6, 'PUT', f'{_PROVIDER}/traits', History.traits, is_guarded=True),
    'delete traits': Kind(2, 'DELETE', f'{_PROVIDER}/traits'),
    'put aggregates': Kind(
        6, 'PUT', f'{_PROVIDER}/aggregates', lambda history: {'aggregates': history.aggregates()}, is_guarded=True
    ),
    'put aggregates without generation': Kind(3, 'PUT', f'{_PROVIDER}/aggregates', History.aggregates, '1.1'),
    'claim': Kind(14, 'PUT', '/allocations/{consumer}', lambda history: history.claim(history.consumer)),
    'claim several': Kind(8, 'POST', '/allocations', History.claims),
    'release': Kind(10, 'DELETE', '/allocations/{consumer}'),
    'put class': Kind(3, 'PUT', '/resource_classes/{custom_class}'),
    'post class': Kind(2, 'POST', '/resource_classes', History.class_name),
    'rename class': Kind(2, 'PUT', '/resource_classes/{custom_class}', History.class_name, '1.6'),
    'delete class': Kind(2, 'DELETE', '/resource_classes/{custom_class}'),
    'put trait': Kind(3, 'PUT', '/traits/{trait}'),
    'delete trait': Kind(2, 'DELETE', '/traits/{trait}'),
}
