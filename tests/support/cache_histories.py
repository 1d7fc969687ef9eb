"""Random histories of requests: every kind of write, on so few providers, classes and traits that they conflict.

The service has to serve microversion 1.37.
"""

from __future__ import annotations

import collections
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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


class History:
    """One client that writes at random; ``step`` makes one request, with those that have to precede it.

    ``answers`` counts the requests by (kind, whether accepted); ``errors`` has those that failed with a server
    error, with the status.
    """

    def __init__(self, send: Send, universe: Universe, seed: object) -> None:
        self._send = send
        self._all = universe
        self._choose = random.Random(str(seed))
        self.answers: collections.Counter[tuple[str, bool]] = collections.Counter()
        self.errors: list[tuple[str, int]] = []
        self._habits: Mapping[Callable[[], int | None], int] = {
            self.create: 8,
            self.change: 8,
            self.move: 10,
            self.delete: 4,
            self.put_inventories: 6,
            self.post_inventory: 4,
            self.put_inventory: 4,
            self.delete_inventory: 2,
            self.delete_inventories: 1,
            self.put_traits: 6,
            self.delete_traits: 2,
            self.put_aggregates: 6,
            self.put_aggregates_without_generation: 3,
            self.claim: 14,
            self.claim_several: 8,
            self.release: 10,
            self.make_class: 3,
            self.post_class: 2,
            self.rename_class: 2,
            self.delete_class: 2,
            self.make_trait: 3,
            self.delete_trait: 2,
        }

    @property
    def kinds(self) -> set[str]:
        """The names of all kinds of requests."""
        return {habit.__name__ for habit in self._habits}

    def populate(self) -> None:
        """Create what claims need to succeed: each provider as a root with inventory."""
        for provider, name in zip(self._all.providers, self._all.names, strict=False):
            self._request('POST', '/resource_providers', {'uuid': provider, 'name': name})
            inventories = {resource_class: {'total': 1000} for resource_class in _STANDARD}
            body = {'resource_provider_generation': 0, 'inventories': inventories}
            self._request('PUT', f'/resource_providers/{provider}/inventories', body)

    def step(self) -> None:
        """Send one random request."""
        (habit,) = self._choose.choices(list(self._habits), list(self._habits.values()))
        status = habit()
        if status is not None and status >= 500:
            self.errors.append((habit.__name__, status))
        elif status is not None:
            self.answers[habit.__name__, status < 300] += 1

    # Providers -------------------------------------------------------------------------------------------------

    def create(self) -> int | None:
        body = {'uuid': self._provider(), 'name': self._one(self._all.names)}
        if self._choose.random() < 0.6:
            body['parent_provider_uuid'] = self._provider()
        return self._request('POST', '/resource_providers', body)

    def change(self) -> int | None:
        body: dict[str, Any] = {'name': self._one(self._all.names)}
        if self._choose.random() < 0.5:
            body['parent_provider_uuid'] = self._provider()
        return self._request('PUT', f'/resource_providers/{self._provider()}', body)

    def move(self) -> int | None:
        """A provider of any tree goes elsewhere, or becomes a root, with all below it."""
        parent = None if self._choose.random() < 0.3 else self._provider()
        body = {'name': self._one(self._all.names), 'parent_provider_uuid': parent}
        return self._request('PUT', f'/resource_providers/{self._provider()}', body, '1.37')

    def delete(self) -> int | None:
        return self._request('DELETE', f'/resource_providers/{self._provider()}')

    # Parts of providers --------------------------------------------------------------------------------------------

    def put_inventories(self) -> int | None:
        provider = self._provider()
        inventories = {name: self._inventory() for name in self._some(self._classes())}
        return self._guarded('PUT', provider, 'inventories', {'inventories': inventories})

    def post_inventory(self) -> int | None:
        body = {'resource_class': self._one(self._classes()), **self._inventory()}
        return self._request('POST', f'/resource_providers/{self._provider()}/inventories', body)

    def put_inventory(self) -> int | None:
        path = f'inventories/{self._one(self._classes())}'
        return self._guarded('PUT', self._provider(), path, self._inventory())

    def delete_inventory(self) -> int | None:
        path = f'/resource_providers/{self._provider()}/inventories/{self._one(self._classes())}'
        return self._request('DELETE', path)

    def delete_inventories(self) -> int | None:
        return self._request('DELETE', f'/resource_providers/{self._provider()}/inventories')

    def put_traits(self) -> int | None:
        traits = self._some([*self._all.traits, *_STANDARD_TRAITS])
        return self._guarded('PUT', self._provider(), 'traits', {'traits': traits})

    def delete_traits(self) -> int | None:
        return self._request('DELETE', f'/resource_providers/{self._provider()}/traits')

    def put_aggregates(self) -> int | None:
        return self._guarded('PUT', self._provider(), 'aggregates', {'aggregates': self._some(self._all.aggregates)})

    def put_aggregates_without_generation(self) -> int | None:
        path = f'/resource_providers/{self._provider()}/aggregates'
        return self._request('PUT', path, self._some(self._all.aggregates), '1.1')

    # Allocations -------------------------------------------------------------------------------------

    def claim(self) -> int | None:
        consumer = self._one(self._all.consumers)
        return self._request('PUT', f'/allocations/{consumer}', self._entry(consumer))

    def claim_several(self) -> int | None:
        consumers = self._choose.sample(self._all.consumers, self._choose.randint(1, 3))
        return self._request('POST', '/allocations', {consumer: self._entry(consumer) for consumer in consumers})

    def release(self) -> int | None:
        return self._request('DELETE', f'/allocations/{self._one(self._all.consumers)}')

    # Names -----------------------------------------------------------------------------------------------------

    def make_class(self) -> int | None:
        return self._request('PUT', f'/resource_classes/{self._one(self._all.classes)}')

    def post_class(self) -> int | None:
        return self._request('POST', '/resource_classes', {'name': self._one(self._all.classes)})

    def rename_class(self) -> int | None:
        path = f'/resource_classes/{self._one(self._all.classes)}'
        return self._request('PUT', path, {'name': self._one(self._all.classes)}, '1.6')

    def delete_class(self) -> int | None:
        return self._request('DELETE', f'/resource_classes/{self._one(self._all.classes)}')

    def make_trait(self) -> int | None:
        return self._request('PUT', f'/traits/{self._one(self._all.traits)}')

    def delete_trait(self) -> int | None:
        return self._request('DELETE', f'/traits/{self._one(self._all.traits)}')

    # Sending --------------------------------------------------------------------------------------------

    def _request(self, method: str, path: str, body: Any = None, version: str = _LATEST) -> int | None:
        return self._send(method, path, body, version)[0]

    def _guarded(self, method: str, provider: str, path: str, body: dict[str, Any]) -> int | None:
        """Write with a provider generation, usually the current one."""
        status, answer = self._send('GET', f'/resource_providers/{provider}', None, _LATEST)
        generation = answer['generation'] if status == 200 else 0
        if self._choose.random() < 0.1:
            generation += 1
        body = {'resource_provider_generation': generation, **body}
        return self._request(method, f'/resource_providers/{provider}/{path}', body)

    def _entry(self, consumer: str) -> dict[str, Any]:
        status, answer = self._send('GET', f'/allocations/{consumer}', None, _LATEST)
        generation = answer.get('consumer_generation') if status == 200 else None
        allocations = {
            provider: {'resources': {name: self._choose.randint(1, 3) for name in self._some(_STANDARD, least=1)}}
            for provider in self._choose.sample(self._all.providers, self._choose.choice((0, 1, 1, 2, 2)))
        }
        return {'allocations': allocations, 'consumer_generation': generation, **_OWNER}

    def _inventory(self) -> dict[str, Any]:
        choose = self._choose
        return {
            'total': choose.randint(4, 40),
            'reserved': choose.choice((0, 0, 1)),
            'min_unit': choose.choice((1, 1, 1, 2)),
            'max_unit': choose.randint(3, 40),
            'step_size': choose.choice((1, 1, 1, 1, 2)),
            'allocation_ratio': choose.choice((1.0, 1.5, 0.9)),
        }

    def _classes(self) -> list[str]:
        return [*_STANDARD * 2, *self._all.classes]

    def _provider(self) -> str:
        return self._one(self._all.providers)

    def _one(self, of: Sequence[str]) -> str:
        return self._choose.choice(of)

    def _some(self, of: Sequence[str], least: int = 0) -> list[str]:
        distinct = list(dict.fromkeys(of))
        return self._choose.sample(distinct, self._choose.randint(least, min(len(distinct), 3)))
