"""Classes and traits are created, renamed and deleted while others write inventories, allocations and traits of them.

Names belong to families, and a rename keeps the family. The number that is written with a class encodes its family,
so a write to a class of another family is noticed, also after a rename.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

from tests.support.history import fleet
from tests.support.history.client import Client, Reply
from tests.support.races import Callers, Outcome

_FAMILIES = 4
_MEMBERS = 2
_TOTAL = 1000
_OWNER = {'project_id': 'names', 'user_id': 'names'}


def run(racing: Callers, seconds: float) -> Outcome:
    """A quarter of the callers change names, half write providers of their own, and the others claim."""
    prefix = f'CUSTOM_{uuid.uuid4().hex[:8].upper()}'
    providers = [fleet.create_provider(client, {}) for client in racing.clients]
    kinds = [_NameChanger, _Writer, _Claimant, _Writer]
    outcome = Outcome()
    callers = [kinds[number % len(kinds)](prefix, number, providers, outcome) for number in range(len(providers))]
    racing.repeat(lambda client, number: callers[number].step(client), seconds, outcome)
    return outcome


class _Caller:
    def __init__(self, prefix: str, number: int, providers: list[str], outcome: Outcome) -> None:
        self._prefix = prefix
        self._choose = random.Random(number)
        self._providers = providers
        self._own = providers[number]
        self.outcome = outcome

    def step(self, client: Client) -> None:
        """Send some requests and check their effects."""
        raise NotImplementedError

    def _send(self, client: Client, kind: str, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        reply = client.request(method, path, body, **options)
        self.outcome.statuses[kind, reply.status] += 1
        if reply.status is None or reply.status >= 500:
            self.outcome.wrong.append(f'{method} {path} {body}: {reply.status} {reply.body}')
        return reply

    def _name(self, family: int) -> str:
        return f'{self._prefix}_{family}_{self._choose.randrange(_MEMBERS)}'

    def _some_family(self) -> int:
        return self._choose.randrange(_FAMILIES)


def _family(name: str) -> int:
    return int(name.split('_')[2])


class _NameChanger(_Caller):
    def step(self, client: Client) -> None:
        family = self._some_family()
        name, other = self._name(family), self._name(family)
        for collection in ('resource_classes', 'traits'):
            # More deletions than creations: most are rejected, since the name is in use.
            if self._choose.random() < 0.4:
                created = self._send(client, f'create {collection}', 'PUT', f'/{collection}/{name}')
                if created.status not in (201, 204):
                    self.outcome.wrong.append(f'{name} was not created: {created.status} {created.body}')
            else:
                self._send(client, f'delete {collection}', 'DELETE', f'/{collection}/{name}')
        if name != other:
            self._send(client, 'rename', 'PUT', f'/resource_classes/{name}', {'name': other}, version='1.6')


class _Writer(_Caller):
    """The only writer of the inventories and traits of its provider."""

    def step(self, client: Client) -> None:
        families = self._choose.sample(range(_FAMILIES), 2)
        path = f'/resource_providers/{self._own}'
        generation = fleet.demand(client, 'GET', path)['generation']
        records = {self._name(family): {'total': _TOTAL + family} for family in families}
        body: dict[str, Any] = {'resource_provider_generation': generation, 'inventories': records}
        if self._send(client, 'put inventories', 'PUT', f'{path}/inventories', body).status == 200:
            self._judge(client, set(families))
        if self._send(client, 'clear inventories', 'DELETE', f'{path}/inventories').status == 204:
            self._judge(client, set())
            (name, record), *_ = records.items()
            body = {'resource_class': name, **record}
            if self._send(client, 'post inventory', 'POST', f'{path}/inventories', body).status == 201:
                self._judge(client, {families[0]})
                body = {**record, 'resource_provider_generation': fleet.demand(client, 'GET', path)['generation']}
                self._send(client, 'put inventory', 'PUT', f'{path}/inventories/{name}', body)
                self._send(client, 'delete inventory', 'DELETE', f'{path}/inventories/{name}')
        self._write_traits(client, path, families)

    def _judge(self, client: Client, families: set[int]) -> None:
        inventories = fleet.demand(client, 'GET', f'/resource_providers/{self._own}/inventories')['inventories']
        if {_family(name) for name in inventories} != families:
            self.outcome.wrong.append(f'put {families}, found {inventories}')
        for name, record in inventories.items():
            if record['total'] != _TOTAL + _family(name):
                self.outcome.wrong.append(f'{name}: {record}')

    def _write_traits(self, client: Client, path: str, families: list[int]) -> None:
        names = sorted(self._name(family) for family in families)
        body = {'traits': names, 'resource_provider_generation': fleet.demand(client, 'GET', path)['generation']}
        if self._send(client, 'put traits', 'PUT', f'{path}/traits', body).status == 200:
            traits = sorted(fleet.demand(client, 'GET', f'{path}/traits')['traits'])
            if traits != names:
                self.outcome.wrong.append(f'traits put {names}, found {traits}')
        self._send(client, 'clear traits', 'DELETE', f'{path}/traits')


class _Claimant(_Caller):
    """Claims, reads its allocations, and deletes them."""

    def step(self, client: Client) -> None:
        # The providers of the writers.
        family, provider, consumer = self._some_family(), self._choose.choice(self._providers[1::2]), uuid.uuid4()
        present = fleet.demand(client, 'GET', f'/resource_providers/{provider}/inventories')['inventories']
        # Often a current inventory, so that some claims succeed.
        name = self._choose.choice([*present, self._name(family)])
        allocations = {provider: {'resources': {name: _family(name) + 1}}}
        body = {'allocations': allocations, 'consumer_generation': None, **_OWNER}
        if self._send(client, 'claim', 'PUT', f'/allocations/{consumer}', body).status != 204:
            return
        for entry in fleet.demand(client, 'GET', f'/allocations/{consumer}')['allocations'].values():
            for name, amount in entry['resources'].items():
                if amount != _family(name) + 1:
                    self.outcome.wrong.append(f'claimed {allocations}, got {entry}')
        self._send(client, 'give back', 'DELETE', f'/allocations/{consumer}')
