"""The load: concurrent callers that claim, move, change and release allocations, and change providers, at random.

Each caller is the only writer of its own consumers, so it knows what every answer about them has to be. All callers
write a few shared consumers. ``check`` compares the end with everything that was answered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.history.client import Client, Reply, UnreachableError
from tests.support.history.state import ABSENT, Allocations, ClaimWrite, Consumer, ProviderWrite, capacities_of
from tests.support.http_client import claim_body
from tests.support.waiting import wait_until

#: Small, so that about a third of the claims do not fit; with reserved units and a ratio, to test the whole rule.
INVENTORIES: dict[str, dict[str, Any]] = {
    'VCPU': {'total': 12, 'reserved': 2, 'allocation_ratio': 1.5},
    'MEMORY_MB': {'total': 16},
}
#: The totals that the inventories of a resized provider may get.
_TOTALS = range(8, 21)
#: A caller with more consumers of its own than this deletes one.
_ENOUGH = 6
#: How often a caller moves to the next address, so that a server is used again after an outage.
_WANDERLUST = 0.03


@dataclasses.dataclass
class Load:
    """A running or finished load on ``urls``; made by ``running``. The lists grow while it runs."""

    urls: Sequence[str]
    token: str
    providers: Sequence[str]
    #: Providers whose inventories change.
    resized: Sequence[str]
    #: Consumers that all callers write. The last one is also deleted.
    shared: Sequence[str]
    #: Whether each GET has to show the state of a moment between its start and its end.
    strict_reads: bool
    replies: list[Reply] = dataclasses.field(default_factory=list)
    unsent: int = 0
    #: Answers that contradict what a caller knows, as sentences.
    violations: list[str] = dataclasses.field(default_factory=list)
    claims: list[ClaimWrite] = dataclasses.field(default_factory=list)
    #: What GETs of shared consumers showed, by consumer.
    shared_reads: list[tuple[str, Consumer]] = dataclasses.field(default_factory=list)
    provider_writes: list[ProviderWrite] = dataclasses.field(default_factory=list)
    #: Accepted and lost moves: the provider, the parent that was named, and the answer.
    moves: list[tuple[str, str | None, Reply]] = dataclasses.field(default_factory=list)
    stopping: threading.Event = dataclasses.field(default_factory=threading.Event)
    _callers: list[_Caller] = dataclasses.field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, urls: Sequence[str], clients: int, *, token: str = 'admin', strict_reads: bool = True
    ) -> Iterator[Load]:
        """Let ``clients`` threads use new providers until the end of the block. Client *n* begins at address *n*."""
        load = cls.create(urls, token, strict_reads)
        with ThreadPoolExecutor(clients) as pool:
            running = [pool.submit(load.add_caller(number).run) for number in range(clients)]
            try:
                yield load
            finally:
                load.stopping.set()
                for caller in running:
                    caller.result()

    @classmethod
    def create(cls, urls: Sequence[str], token: str = 'admin', strict_reads: bool = True) -> Load:
        """Create seven providers, which nobody uses yet."""
        with contextlib.closing(Client(urls, token=token)) as client:
            providers = [client.create_provider(INVENTORIES) for _ in range(7)]
        return cls(urls, token, providers, providers[:2], [str(uuid.uuid4()) for _ in range(3)], strict_reads)

    def add_caller(self, number: int) -> _Caller:
        """A caller that somebody has to run."""
        caller = _Caller(self, number, random.Random(number))
        self._callers.append(caller)
        return caller

    def wait_for_accepted(self, count: int, since: float = 0.0) -> None:
        """Return when ``count`` requests have been accepted that were sent after ``since``."""
        wait_until(
            lambda: sum(reply.accepted and reply.start >= since for reply in [*self.replies]) >= count, pause=0.1
        )

    @property
    def unknown(self) -> int:
        """The number of requests of unknown outcome."""
        return sum(reply.unknown for reply in [*self.replies])

    def summary(self) -> str:
        """The number of requests by status, and of those that were not sent."""
        return f'requests {dict(Counter(reply.status or "lost" for reply in self.replies))}, not sent {self.unsent}'

    @property
    def consumers(self) -> Mapping[str, Consumer]:
        """The consumers of which a caller knows the state after the load."""
        return {consumer: state for caller in self._callers for consumer, state in caller.own.items()}


class _Caller:
    """One caller, its own consumers, and its next request."""

    def __init__(self, load: Load, number: int, choose: random.Random) -> None:
        self._load = load
        self._choose = choose
        self.client = Client(load.urls, token=load.token, first=number)
        #: The consumers whose state is known; those that were deleted are ``ABSENT``.
        self.own: dict[str, Consumer] = {}
        self._habits: Mapping[Callable[[], None], int] = {
            self._claim_new: 24,
            self._replace: 12,
            self._post: 12,
            self._move: 12,
            self._write_shared: 12,
            self._delete_shared: 2,
            self._clear: 6,
            self._delete: 8,
            self._resize: 5,
            self._reparent: 6,
            self._read: 4,
            self._read_provider: 8,
            self._reshape: 8,
        }

    def run(self) -> None:
        """Send requests until the load is stopped."""
        with contextlib.closing(self.client):
            while not self._load.stopping.is_set():
                self.step()

    def step(self) -> None:
        """Send one request; wait a little when no server accepts connections, and sometimes go to the next address."""
        if self._choose.random() < _WANDERLUST:
            self.client.close()
        action = self._choose.choices(list(self._habits), list(self._habits.values()))[0]
        try:
            (self._delete if len(self._present()) > _ENOUGH else action)()
        except UnreachableError:
            self._load.unsent += 1
            self._load.stopping.wait(0.1)

    # Own consumers ------------------------------------------------------------------------------------------------

    def _claim_new(self) -> None:
        self._put(str(uuid.uuid4()), self._some_allocations())

    def _replace(self) -> None:
        for consumer in self._some_own():
            self._put(consumer, self._some_allocations())

    def _clear(self) -> None:
        for consumer in self._some_own():
            self._put(consumer, {})

    def _put(self, consumer: str, allocations: Allocations) -> None:
        self._write('PUT', f'/allocations/{consumer}', {consumer: allocations})

    def _post(self) -> None:
        """Several new consumers and an existing one in one request, with their providers in any order."""
        claims = {str(uuid.uuid4()): self._some_allocations() for _ in range(self._choose.randint(1, 3))}
        claims |= {consumer: self._some_allocations() for consumer in self._some_own()}
        self._write('POST', '/allocations', claims)

    def _move(self) -> None:
        """Turn one consumer's allocations into another's."""
        for consumer in self._some_own():
            claims = {consumer: {}, str(uuid.uuid4()): self.own[consumer].allocations}
            self._write('POST', '/allocations', claims)

    def _reshape(self) -> None:
        """Replace inventories, of which some may go away, and allocations of consumers, in one change."""
        claims = {str(uuid.uuid4()): self._some_allocations()} if self._choose.random() < 0.7 else {}
        claims |= {c: {} if self._choose.random() < 0.3 else self._some_allocations() for c in self._some_own()}
        inventories: dict[str, dict[str, Any]] = {}
        for provider in self._choose.sample(self._load.resized, self._choose.choice((1, 2))):
            generation = self._generation(provider)
            if generation is None:
                return
            classes = self._choose.choice((('VCPU', 'MEMORY_MB'), ('VCPU', 'MEMORY_MB'), ('VCPU',), ()))
            records = self._some_records(classes)
            inventories[provider] = {'resource_provider_generation': generation, 'inventories': records}
        reply = self._write('POST', '/reshaper', claims, inventories)
        for provider, change in inventories.items():
            records, generation = change['inventories'], change['resource_provider_generation']
            self._changed(ProviderWrite(reply, provider, generation, capacities_of(records), 2 if records else 1))

    def _write(
        self, method: str, path: str, claims: Mapping[str, Allocations], inventories: Mapping[str, Any] | None = None
    ) -> Reply:
        """Write own consumers with one request, which is a reshape if it has inventories."""
        before = {consumer: self.own.get(consumer, ABSENT) for consumer in claims}
        after = {consumer: before[consumer].claims(allocations) for consumer, allocations in claims.items()}
        entries = {
            consumer: claim_body(allocations, before[consumer].generation or None)
            for consumer, allocations in claims.items()
        }
        body: Any = entries if method == 'POST' else next(iter(entries.values()))
        if inventories:
            body = {'inventories': inventories, 'allocations': entries}
        # The allocations that a request clears increment the generations of their providers, others that end do not.
        incremented = frozenset(p for c in claims for p in after[c].allocations or before[c].allocations)
        reply = self._send(method, path, body, version='1.30' if inventories else '1.29')
        self._became(ClaimWrite(reply, before, after, incremented, is_reshape=bool(inventories)))
        return reply

    def _delete(self) -> None:
        for consumer in self._some_own():
            reply = self._send('DELETE', f'/allocations/{consumer}')
            self._became(ClaimWrite(reply, {consumer: self.own[consumer]}, {consumer: ABSENT}, frozenset()))

    def _became(self, claim: ClaimWrite) -> None:
        """Note the states of own consumers after a write of them. Those of a lost one are never used again."""
        self._claimed(claim)
        if claim.reply.accepted:
            self.own.update(claim.after)
        elif claim.reply.unknown:
            for consumer in claim.after:
                self.own.pop(consumer, None)
        elif 'consumer generation conflict' in claim.reply.error.get('detail', ''):
            text = f'{list(claim.after)}: a conflict without another writer: {claim.reply.body}'
            self._load.violations.append(text)

    def _claimed(self, claim: ClaimWrite) -> None:
        reply = claim.reply
        if reply.accepted or reply.unknown or 'would exceed the capacity' in reply.error.get('detail', ''):
            self._load.claims.append(claim)

    def _read(self) -> None:
        for consumer in self._some_own():
            reply = self._send('GET', f'/allocations/{consumer}')
            if reply.accepted and self._load.strict_reads:
                self._compare(consumer, Consumer.from_body(reply.body), self.own[consumer])

    def _read_provider(self) -> None:
        """Own consumers are shown as they are."""
        provider = self._choose.choice(self._load.providers)
        reply = self._send('GET', f'/resource_providers/{provider}/allocations')
        if reply.accepted and self._load.strict_reads:
            shown = {consumer: entry['resources'] for consumer, entry in reply.body['allocations'].items()}
            for consumer, state in self.own.items():
                self._compare(consumer, shown.get(consumer), state.allocations.get(provider))

    def _compare(self, consumer: str, shown: object, known: object) -> None:
        if shown != known:
            self._load.violations.append(f'consumer {consumer}: shown as {shown}, its only writer made it {known}')

    # Shared consumers ----------------------------------------------------------------------------------------------

    def _write_shared(self) -> None:
        """With the generation that a GET shows, or with none."""
        consumer, generation, version = self._choose.choice(self._load.shared), None, '1.27'
        allocations = self._some_allocations()
        body = claim_body(allocations)
        if self._choose.random() < 0.7:
            reply = self._send('GET', f'/allocations/{consumer}')
            if not reply.accepted:
                return
            self._load.shared_reads.append((consumer, Consumer.from_body(reply.body)))
            generation, version = reply.body.get('consumer_generation', 0), '1.29'
            body['consumer_generation'] = generation or None
        else:
            del body['consumer_generation']
        reply = self._send('PUT', f'/allocations/{consumer}', body, version=version)
        after = {consumer: Consumer(0, allocations)}
        self._claimed(ClaimWrite(reply, None, after, frozenset(allocations), generation))

    def _delete_shared(self) -> None:
        consumer = self._load.shared[-1]
        reply = self._send('DELETE', f'/allocations/{consumer}')
        self._claimed(ClaimWrite(reply, None, {consumer: ABSENT}, frozenset()))

    # Providers -----------------------------------------------------------------------------------------------------

    def _resize(self) -> None:
        records = self._some_records(INVENTORIES)
        provider = self._choose.choice(self._load.resized)
        generation = self._generation(provider)
        if generation is not None:
            body = {'inventories': records, 'resource_provider_generation': generation}
            reply = self._send('PUT', f'/resource_providers/{provider}/inventories', body)
            self._changed(ProviderWrite(reply, provider, generation, capacities_of(records), 1))

    def _changed(self, change: ProviderWrite) -> None:
        if change.reply.accepted or change.reply.unknown:
            self._load.provider_writes.append(change)

    def _generation(self, provider: str) -> int | None:
        """The generation of a provider; None if no server answers."""
        reply = self._send('GET', f'/resource_providers/{provider}')
        return reply.body['generation'] if reply.accepted else None

    def _reparent(self) -> None:
        """Move a provider, which may have others below it, below another one, or make it a root."""
        provider, other = self._choose.sample(self._load.providers, 2)
        parent = None if self._choose.random() < 0.3 else other
        reply = self._sent(self.client.move(provider, parent))
        if reply.accepted or reply.unknown:
            self._load.moves.append((provider, parent, reply))

    # Sending and choosing ------------------------------------------------------------------------------------------

    def _send(self, method: str, path: str, body: Any = None, *, version: str = '1.29') -> Reply:
        return self._sent(self.client.request(method, path, body, version=version))

    def _sent(self, reply: Reply) -> Reply:
        self._load.replies.append(reply)
        if reply.unknown:
            self.client.close()
            self._load.stopping.wait(0.1)
        return reply

    def _present(self) -> list[str]:
        return [consumer for consumer, state in self.own.items() if state.generation]

    def _some_own(self) -> list[str]:
        """One consumer that has allocations, or none if there is none."""
        present = self._present()
        return [self._choose.choice(present)] if present else []

    def _some_allocations(self) -> Allocations:
        providers = self._choose.sample(self._load.providers, self._choose.choice((1, 1, 2, 3)))
        return {provider: self._some_amounts() for provider in providers}

    def _some_amounts(self) -> dict[str, int]:
        classes = self._choose.choice((('VCPU',), ('MEMORY_MB',), ('VCPU', 'MEMORY_MB')))
        return {name: self._choose.randint(1, 4) for name in classes}

    def _some_records(self, classes: Iterable[str]) -> dict[str, dict[str, Any]]:
        return {name: {**INVENTORIES[name], 'total': self._choose.choice(_TOTALS)} for name in classes}
