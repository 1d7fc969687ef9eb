"""The load: concurrent clients that claim, move, change and release allocations, and change providers, at random."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.history import fleet
from tests.support.history.client import Client, Reply, UnreachableError
from tests.support.history.record import (
    UNCHECKED,
    Action,
    Allocations,
    Claim,
    ClaimWrite,
    ConsumerRead,
    ConsumerState,
    Event,
    History,
    Move,
    Outcome,
    ProviderRead,
    ProviderWrite,
    Removal,
    Reshape,
    Snapshot,
)
from tests.support.waiting import wait_until

#: Small, so that about a third of the claims do not fit; with reserved units and a ratio, to test the whole rule.
_INVENTORIES: dict[str, dict[str, Any]] = {
    'VCPU': {'total': 12, 'reserved': 2, 'allocation_ratio': 1.5},
    'MEMORY_MB': {'total': 16},
}
#: A client with more consumers of its own than this deletes one.
_ENOUGH = 6
#: How often a client moves to the next address, so that a server is used again after an outage.
_WANDERLUST = 0.03
_OWNER = {'project_id': 'history', 'user_id': 'history'}
#: Types of consumers, which are in use already, and the part of the writes that name one that is new.
_TYPES = ('INSTANCE', 'MIGRATION', 'VOLUME')
_NEW_TYPES = 0.05


@dataclasses.dataclass
class Load:
    """A running or finished load on ``urls``; made by ``start``."""

    urls: Sequence[str]
    token: str
    before: Snapshot
    shared: tuple[str, ...]
    resized: frozenset[str]
    #: Whether the service has reshapes and types of consumers.
    reshapes: bool = False
    types: bool = False
    events: list[Event] = dataclasses.field(default_factory=list)
    unsent: int = 0
    _numbers: itertools.count[int] = dataclasses.field(default_factory=itertools.count)
    _stopping: threading.Event = dataclasses.field(default_factory=threading.Event)
    _threads: list[threading.Thread] = dataclasses.field(default_factory=list)
    _failures: list[BaseException] = dataclasses.field(default_factory=list)

    @classmethod
    def start(cls, urls: Sequence[str], *, clients: int = 8, seed: int = 0, token: str = 'admin') -> Load:
        """Create seven providers and start ``clients`` threads that use them. Client *n* begins at address *n*."""
        with contextlib.closing(Client(urls, token=token)) as client:
            providers = [fleet.create_provider(client, _INVENTORIES) for _ in range(7)]
            before = fleet.look(client, providers, ())
            newest = fleet.demand(client, 'GET', '/')['versions'][0]['max_version']
        shared = tuple(str(uuid.uuid4()) for _ in range(3))
        minor = int(newest.partition('.')[2])
        load = cls(urls, token, before, shared, frozenset(providers[:2]), reshapes=minor >= 30, types=minor >= 38)
        for number in range(clients):
            caller = _Caller(load, number, random.Random(f'{seed}-{number}'))
            thread = threading.Thread(target=load._run, args=(caller,), name=f'caller-{number}')
            load._threads.append(thread)
            thread.start()
        return load

    def wait_for_accepted(self, count: int, since: float = 0.0) -> None:
        """Return when ``count`` requests have been accepted that were sent after ``since``."""

        def are_enough() -> bool:
            events = [event for event in [*self.events] if event.start >= since]
            return sum(event.outcome is Outcome.ACCEPTED for event in events) >= count

        wait_until(are_enough, pause=0.1)

    def stop(self) -> None:
        """Let every client finish its request. Raises what a client failed with."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for failure in self._failures:
            raise failure

    def finish(self, *, settle: float = 1.0) -> History:
        """Stop, give requests of unknown outcome ``settle`` seconds to end, and look at the result."""
        self.stop()
        time.sleep(settle)
        with contextlib.closing(Client(self.urls, token=self.token)) as client:
            after = fleet.look(client, self.before.providers, self.consumers(), version=self.reading)
        return History(self.before, tuple(self.events), after)

    @property
    def reading(self) -> str:
        """The microversion at which consumers are read."""
        return '1.38' if self.types else '1.29'

    def consumers(self) -> list[str]:
        """Every consumer that a request named."""
        named = dict.fromkeys(self.shared)
        for event in self.events:
            if isinstance(event.action, ClaimWrite):
                named.update(dict.fromkeys(event.action.claims))
        return list(named)

    def record(self, caller: int, action: Action, reply: Reply) -> Event:
        """Record a request of a client and its answer."""
        retry_after = reply.headers.get('retry-after')
        event = Event(
            next(self._numbers), caller, action, reply.start, reply.end, reply.status, reply.body, retry_after
        )
        self.events.append(event)
        return event

    def _run(self, caller: _Caller) -> None:
        try:
            while not self._stopping.is_set():
                caller.step()
        except BaseException as failure:  # stop() raises it in the thread that asked
            self._failures.append(failure)
        finally:
            caller.close()


class _Caller:
    """One client: what it holds, as far as it knows, and its next request."""

    def __init__(self, load: Load, number: int, choose: random.Random) -> None:
        self._load = load
        self._number = number
        self._choose = choose
        self._client = Client(load.urls, token=load.token, first=number)
        self._own: dict[str, ConsumerState] = {}
        self._is_lost = False
        self._providers = list(load.before.providers)
        self._habits: Mapping[Callable[[], None], int] = {
            self._claim_new: 24,
            self._replace: 12,
            self._batch: 12,
            self._move: 12,
            self._write_shared: 8,
            self._write_unchecked: 4,
            self._clear: 6,
            self._delete: 8,
            self._resize: 5,
            self._label: 4,
            self._reparent: 6,
            self._look_at_provider: 5,
            self._reshape: 8 if load.reshapes else 0,
        }

    def step(self) -> None:
        """Send one request; wait a little when no server accepts connections, and sometimes go to the next address."""
        if self._choose.random() < _WANDERLUST:
            self._client.close()
        action = self._choose.choices(list(self._habits), list(self._habits.values()))[0]
        if len(self._own) > _ENOUGH:
            action = self._delete
        if self._is_lost:
            # With too many writes of unknown outcome, too many orders would be possible to find violations.
            action = self._look_at_provider
        try:
            action()
        except UnreachableError:
            self._load.unsent += 1
            time.sleep(0.1)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    # Kinds of requests ----------------------------------------------------------------------------------------------

    def _claim_new(self) -> None:
        self._put(str(uuid.uuid4()), Claim(self._some_allocations(), None))

    def _replace(self) -> None:
        consumer = self._some_own()
        if consumer is not None:
            self._put(consumer, Claim(self._some_allocations(), self._own[consumer].generation))

    def _clear(self) -> None:
        consumer = self._some_own()
        if consumer is not None:
            self._put(consumer, Claim({}, self._own[consumer].generation))

    def _write_shared(self) -> None:
        consumer = self._choose.choice(self._load.shared)
        state = self._read(consumer)
        if state is not None:
            self._put(consumer, Claim(self._some_allocations(), state.generation or None))

    def _write_unchecked(self) -> None:
        self._put(self._choose.choice(self._load.shared), Claim(self._some_allocations(), UNCHECKED))

    def _delete(self) -> None:
        consumer = self._some_own() or self._choose.choice(self._load.shared)
        self._own.pop(consumer, None)
        self._send(Removal(consumer), 'DELETE', f'/allocations/{consumer}')

    def _batch(self) -> None:
        """Several new consumers and an existing one in one POST, with their providers in any order."""
        claims = {str(uuid.uuid4()): Claim(self._some_allocations(), None) for _ in range(self._choose.randint(1, 3))}
        consumer = self._some_own()
        if consumer is not None:
            claims[consumer] = Claim(self._some_allocations(), self._own[consumer].generation)
        self._post(claims)

    def _move(self) -> None:
        """Turn one consumer's allocations into another's."""
        consumer = self._some_own()
        if consumer is not None:
            state = self._own[consumer]
            self._post({consumer: Claim({}, state.generation), str(uuid.uuid4()): Claim(state.allocations, None)})

    def _resize(self) -> None:
        provider = self._choose.choice(sorted(self._load.resized))
        path = f'/resource_providers/{provider}/inventories'
        present = self._client.request('GET', path)
        if present.status == 200:
            records = {
                name: {**inventory, 'total': self._choose.randint(8, 20)} for name, inventory in _INVENTORIES.items()
            }
            generation = present.body['resource_provider_generation']
            action = ProviderWrite(
                provider, generation, {name: fleet.capacity(record) for name, record in records.items()}
            )
            self._send(action, 'PUT', path, {'resource_provider_generation': generation, 'inventories': records})

    def _reshape(self) -> None:
        """Replace inventories of which some may go away, and allocations of consumers, in one change."""
        claims = {str(uuid.uuid4()): Claim(self._some_allocations(), None)} if self._choose.random() < 0.7 else {}
        consumer = self._some_own()
        if consumer is not None:
            clear = self._choose.random() < 0.3
            claims[consumer] = Claim({} if clear else self._some_allocations(), self._own[consumer].generation)
        typed, writes, inventories = self._typed(claims), [], {}
        for provider in self._choose.sample(sorted(self._load.resized), self._choose.choice((1, 2))):
            present = self._client.request('GET', f'/resource_providers/{provider}/inventories')
            if present.status != 200:
                return
            generation = present.body['resource_provider_generation']
            classes = self._choose.choice((('VCPU', 'MEMORY_MB'), ('VCPU', 'MEMORY_MB'), ('VCPU',), ()))
            records = {name: {**_INVENTORIES[name], 'total': self._choose.randint(8, 20)} for name in classes}
            inventories[provider] = {'resource_provider_generation': generation, 'inventories': records}
            capacities = {name: fleet.capacity(record) for name, record in records.items()}
            writes.append(ProviderWrite(provider, generation, capacities, moves=2 if records else 1))
        body = {
            'inventories': inventories,
            'allocations': {consumer: _entry(claim) for consumer, claim in typed.items()},
        }
        version = max('1.30', _version(typed))
        self._settle(self._send(Reshape(typed, tuple(writes)), 'POST', '/reshaper', body, version=version))

    def _label(self) -> None:
        provider = self._choose.choice(self._providers)
        path = f'/resource_providers/{provider}/aggregates'
        present = self._client.request('GET', path)
        if present.status == 200:
            generation = present.body['resource_provider_generation']
            body = {'resource_provider_generation': generation, 'aggregates': [str(uuid.uuid4())]}
            self._send(ProviderWrite(provider, generation), 'PUT', path, body)

    def _reparent(self) -> None:
        """Move a provider, which may have others below it, below another one, or make it a root."""
        provider, parent = self._choose.sample(self._providers, 2)
        action = Move(provider, None if self._choose.random() < 0.3 else parent)
        # The name has to be sent along.
        body = {'name': f'history-{provider}', 'parent_provider_uuid': action.parent}
        self._send(action, 'PUT', f'/resource_providers/{provider}', body, version='1.37')

    def _look_at_provider(self) -> None:
        provider = self._choose.choice(self._providers)
        self._send(ProviderRead(provider), 'GET', f'/resource_providers/{provider}/allocations')

    # Sending --------------------------------------------------------------------------------------------

    def _put(self, consumer: str, claim: Claim) -> None:
        claims = self._typed({consumer: claim})
        path, body = f'/allocations/{consumer}', _entry(claims[consumer])
        self._settle(self._send(ClaimWrite(claims), 'PUT', path, body, version=_version(claims)))

    def _post(self, claims: Mapping[str, Claim]) -> None:
        claims = self._typed(claims)
        body = {consumer: _entry(claim) for consumer, claim in claims.items()}
        self._settle(self._send(ClaimWrite(claims), 'POST', '/allocations', body, version=_version(claims)))

    def _typed(self, claims: Mapping[str, Claim]) -> Mapping[str, Claim]:
        """Give the claims of one request types, or none of them."""
        unchecked = any(claim.expected == UNCHECKED for claim in claims.values())
        if unchecked or not self._load.types or self._choose.random() < 0.3:
            return claims
        return {consumer: dataclasses.replace(claim, type=self._some_type()) for consumer, claim in claims.items()}

    def _some_type(self) -> str:
        if self._choose.random() < _NEW_TYPES:
            return f'NEW_{self._choose.randrange(10**9)}'
        return self._choose.choice(_TYPES)

    def _settle(self, event: Event) -> None:
        """Update what the client holds by the answer; without an answer, ask the service."""
        assert isinstance(event.action, ClaimWrite)
        for consumer, claim in event.action.claims.items():
            if consumer in self._load.shared:
                continue
            if event.outcome is Outcome.ACCEPTED and claim.allocations:
                self._own[consumer] = ConsumerState(_number(claim.expected) + 1, claim.allocations)
            elif event.outcome is Outcome.ACCEPTED:
                self._own.pop(consumer, None)
            elif event.outcome is Outcome.UNKNOWN or event.code == 'placement.concurrent_update':
                self._own.pop(consumer, None)
                state = self._read(consumer)
                if state is not None and state.generation:
                    self._own[consumer] = state

    def _read(self, consumer: str) -> ConsumerState | None:
        event = self._send(ConsumerRead(consumer), 'GET', f'/allocations/{consumer}', version=self._load.reading)
        return ConsumerState.from_body(event.body) if event.outcome is Outcome.ACCEPTED else None

    def _send(self, action: Action, method: str, path: str, body: Any = None, *, version: str = '1.29') -> Event:
        event = self._load.record(self._number, action, self._client.request(method, path, body, version=version))
        self._is_lost = event.outcome is Outcome.UNKNOWN
        if self._is_lost:
            self._client.close()
            time.sleep(0.1)
        return event

    def _some_own(self) -> str | None:
        return self._choose.choice(list(self._own)) if self._own else None

    def _some_allocations(self) -> Allocations:
        providers = self._choose.sample(self._providers, self._choose.choice((1, 1, 2, 3)))
        return {provider: self._some_amounts() for provider in providers}

    def _some_amounts(self) -> dict[str, int]:
        classes = self._choose.choice((('VCPU',), ('MEMORY_MB',), ('VCPU', 'MEMORY_MB')))
        return {name: self._choose.randint(1, 4) for name in classes}


def _entry(claim: Claim) -> dict[str, Any]:
    allocations = {provider: {'resources': resources} for provider, resources in claim.allocations.items()}
    entry: dict[str, Any] = {'allocations': allocations, **_OWNER}
    if claim.expected != UNCHECKED:
        entry['consumer_generation'] = claim.expected
    if claim.type is not None:
        entry['consumer_type'] = claim.type
    return entry


def _version(claims: Mapping[str, Claim]) -> str:
    """The microversion of a write that has the members of ``_entry``."""
    if any(claim.expected == UNCHECKED for claim in claims.values()):
        return '1.27'
    return '1.38' if any(claim.type is not None for claim in claims.values()) else '1.29'


def _number(expected: int | str | None) -> int:
    return expected if isinstance(expected, int) else 0
