"""Races that are run on every database; each returns all answers, which the tests check."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, TypeVar

from tests.support.history import fleet
from tests.support.history.client import Client, Reply

T = TypeVar('T')

CALLERS = 40
UNITS = 10
#: The largest number of seconds that a caller may wait in any race, which a lock timeout of the database would exceed.
#: On an idle machine no caller waits for 5 seconds.
MAX_REQUEST_SECONDS = 20.0
#: The largest number of seconds that callers go on until each kind of request has succeeded.
MAX_SECONDS = 60

_OWNER = {'project_id': 'race', 'user_id': 'race'}


@dataclasses.dataclass
class Outcome:
    """The counts of statuses by kind of request, and everything that was wrong."""

    #: The kinds that will be sent, if those that were sent are not all.
    kinds: Set[str] = frozenset()
    statuses: Counter[tuple[str, int | None]] = dataclasses.field(default_factory=Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def idle(self) -> set[str]:
        """The kinds of requests of which none has succeeded."""
        # A copy, because other threads add to them.
        statuses = list(self.statuses)
        succeeded = {kind for kind, status in statuses if status is not None and status < 300}
        return ({kind for kind, _ in statuses} | self.kinds) - succeeded


class Callers:
    """Threads with a connection each, which start at the same moment."""

    def __init__(self, urls: Sequence[str], count: int) -> None:
        self.clients = [Client(urls, token='admin', first=number) for number in range(count)]
        self._barrier = threading.Barrier(count)
        self._pool = concurrent.futures.ThreadPoolExecutor(count)

    def all_at_once(self, act: Callable[[Client, int], T]) -> list[T]:
        """Run ``act(client, number)`` for every caller at the same moment; the answers in the order of the numbers."""

        def run(number: int) -> T:
            self._barrier.wait()
            return act(self.clients[number], number)

        return list(self._pool.map(run, range(len(self.clients))))

    def repeat(self, step: Callable[[Client, int], object], seconds: float, outcome: Outcome) -> None:
        """Repeat ``step(client, number)`` for every caller.

        It goes on after ``seconds`` until each kind of request has succeeded, which can take long on a busy machine.
        """
        started = time.monotonic()

        def act(client: Client, number: int) -> None:
            while (passed := time.monotonic() - started) < seconds or (passed < MAX_SECONDS and outcome.idle()):
                step(client, number)

        self.all_at_once(act)

    def close(self) -> None:
        """End the threads and close the connections."""
        self._pool.shutdown()
        for client in self.clients:
            client.close()


@contextlib.contextmanager
def callers(urls: Sequence[str], count: int = CALLERS) -> Iterator[Callers]:
    """So many callers, closed at the end."""
    callers = Callers(urls, count)
    try:
        yield callers
    finally:
        callers.close()


def provider(client: Client, total: int) -> str:
    """A new provider with ``total`` VCPU."""
    return fleet.create_provider(client, {'VCPU': {'total': total}})


def claim(providers: Sequence[str], expected: int | None) -> dict[str, Any]:
    """The entry of one consumer that claims one VCPU of each provider, in that order."""
    allocations = {uuid: {'resources': {'VCPU': 1}} for uuid in providers}
    return {'allocations': allocations, 'consumer_generation': expected, **_OWNER}


def for_the_last_units(racing: Callers) -> tuple[list[Reply], int]:
    """All callers claim 1 unit each of a new inventory of 10. Returns the answers and what is used at the end."""
    target = provider(racing.clients[0], UNITS)
    replies = racing.all_at_once(
        lambda client, _: client.request('PUT', f'/allocations/{uuid.uuid4()}', claim([target], None))
    )
    usages = fleet.demand(racing.clients[0], 'GET', f'/resource_providers/{target}/usages')
    return replies, usages['usages']['VCPU']


def for_one_generation(racing: Callers, *, existing: bool) -> tuple[list[Reply], int]:
    """All callers write one consumer with the same generation. Returns the answers and its generation at the end."""
    target, consumer = provider(racing.clients[0], 1000), str(uuid.uuid4())
    expected = None
    if existing:
        fleet.demand(racing.clients[0], 'PUT', f'/allocations/{consumer}', claim([target], None))
        expected = 1
    replies = racing.all_at_once(
        lambda client, _: client.request('PUT', f'/allocations/{consumer}', claim([target], expected))
    )
    state = fleet.demand(racing.clients[0], 'GET', f'/allocations/{consumer}')
    return replies, state['consumer_generation']


def in_opposite_orders(racing: Callers, rounds: int) -> list[list[Reply]]:
    """All callers POST the same consumers on the same providers, each in an order of its own.

    Without generations, so that every write may succeed. Returns the answers of each round.
    """
    targets = [provider(racing.clients[0], 100_000) for _ in range(4)]
    consumers = [str(uuid.uuid4()) for _ in range(4)]

    def post(client: Client, number: int) -> Reply:
        choose = random.Random(number)
        body = {}
        for consumer in choose.sample(consumers, len(consumers)):
            entry = claim(choose.sample(targets, len(targets)), None)
            del entry['consumer_generation']
            body[consumer] = entry
        return client.request('POST', '/allocations', body, version='1.27')

    return [racing.all_at_once(post) for _ in range(rounds)]


def for_new_types(racing: Callers) -> tuple[list[Reply], dict[str, str], dict[str, str]]:
    """All callers POST three new consumers each, with the same three new types, in an order of their own.

    Returns the answers, and the types of the consumers: those that were written, and those that are shown.
    """
    target = provider(racing.clients[0], 100_000)
    types = [f'RACE_{uuid.uuid4().hex.upper()}' for _ in range(3)]
    types_by_consumer: dict[str, str] = {}

    def post(client: Client, number: int) -> Reply:
        chosen = {str(uuid.uuid4()): type_ for type_ in random.Random(number).sample(types, len(types))}
        types_by_consumer.update(chosen)
        body = {consumer: {**claim([target], None), 'consumer_type': type_} for consumer, type_ in chosen.items()}
        return client.request('POST', '/allocations', body, version='1.38')

    replies = racing.all_at_once(post)
    shown = {consumer: _shown(racing.clients[0], consumer)['consumer_type'] for consumer in types_by_consumer}
    return replies, types_by_consumer, shown


def for_one_type(racing: Callers) -> tuple[dict[int, str | None], int, str]:
    """All callers read one consumer and write it with a type of their own, every third without, several times.

    Returns the type of each accepted write, or None, by the generation that it led to; the generation and the type that
    are shown at the end.
    """
    target, consumer = provider(racing.clients[0], 100_000), str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    first = {**claim([target], None), 'consumer_type': 'FIRST'}
    fleet.demand(racing.clients[0], 'PUT', path, first, version='1.38')
    accepted: dict[int, str | None] = {}

    def write(client: Client, number: int) -> None:
        for turn in range(6):
            seen = _shown(client, consumer)['consumer_generation']
            type_ = f'OF_{number}_{turn}' if (number + turn) % 3 else None
            members = {'consumer_type': type_} if type_ else {}
            version = '1.38' if type_ else '1.28'
            reply = client.request('PUT', path, {**claim([target], seen), **members}, version=version)
            assert reply.status in (204, 409), reply
            if reply.status == 204:
                assert seen + 1 not in accepted
                accepted[seen + 1] = type_

    racing.all_at_once(write)
    state = _shown(racing.clients[0], consumer)
    return accepted, state['consumer_generation'], state['consumer_type']


def _shown(client: Client, consumer: str) -> Any:
    return fleet.demand(client, 'GET', f'/allocations/{consumer}', version='1.38')


# Reshapes --------------------------------------------------------------------------------------------------------


def reshape(inventories: dict[str, tuple[int, dict[str, int]]], claims: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body of a reshape: provider uuid to its generation and totals by class, and entries of consumers."""
    return {
        'inventories': {
            uuid: {
                'resource_provider_generation': generation,
                'inventories': {name: {'total': total} for name, total in totals.items()},
            }
            for uuid, (generation, totals) in inventories.items()
        },
        'allocations': claims or {},
    }


def of_reshapes(racing: Callers) -> tuple[list[Reply], list[int]]:
    """All callers move one consumer from a host to one of two cells, with the same generation of the providers.

    Returns the answers, and what is used of host and cells at the end.
    """
    first = racing.clients[0]
    host, cells = provider(first, UNITS), [provider(first, UNITS) for _ in range(2)]
    consumer = str(uuid.uuid4())
    fleet.demand(first, 'PUT', f'/allocations/{consumer}', claim([host], None))

    def move(client: Client, number: int) -> Reply:
        cell = cells[number % 2]
        # Half of the callers name the providers in the other order.
        named = [(host, (2, {'MEMORY_MB': 1})), (cell, (1, {'VCPU': UNITS}))][:: 1 if number % 4 < 2 else -1]
        entry = claim([cell], 1)
        return client.request('POST', '/reshaper', reshape(dict(named), {consumer: entry}), version='1.30')

    replies = racing.all_at_once(move)
    return replies, [_used(first, uuid_) for uuid_ in (host, *cells)]


def reshapes_and_claims(racing: Callers) -> tuple[list[Reply], list[Reply], dict[str, Any], int]:
    """Half of the callers claim of a host, the others replace its inventory by a smaller one of another class.

    Returns the answers to the claims and to the reshapes, and the inventories of the host and the used VCPU at the end.
    """
    first = racing.clients[0]
    host = provider(first, 1000)

    def act(client: Client, number: int) -> Reply:
        if number % 2:
            return client.request('PUT', f'/allocations/{uuid.uuid4()}', claim([host], None))
        shown = client.request('GET', f'/resource_providers/{host}').body
        body = reshape({host: (shown['generation'], {'MEMORY_MB': 1})})
        return client.request('POST', '/reshaper', body, version='1.30')

    replies = racing.all_at_once(act)
    remaining = fleet.demand(first, 'GET', f'/resource_providers/{host}/inventories')['inventories']
    return replies[1::2], replies[::2], remaining, _used(first, host)


def reshapes_and_deletions(racing: Callers) -> tuple[list[Reply], list[Reply], list[Reply], int]:
    """Callers give a cell a custom class and an allocation of it, delete the cell, or delete the class.

    Returns the answers to the reshapes, to the deletions of the cell and of the class, and what the consumer holds.
    """
    first = racing.clients[0]
    cell, consumer = provider(first, 1), str(uuid.uuid4())
    fleet.demand(first, 'DELETE', f'/resource_providers/{cell}/inventories')
    class_name = f'CUSTOM_{uuid.uuid4().hex.upper()}'
    fleet.demand(first, 'PUT', f'/resource_classes/{class_name}')
    entry = {'allocations': {cell: {'resources': {class_name: 1}}}, 'consumer_generation': None, **_OWNER}
    body = reshape({cell: (2, {class_name: 1})}, {consumer: entry})

    def act(client: Client, number: int) -> Reply:
        if number % 3 == 0:
            return client.request('POST', '/reshaper', body, version='1.30')
        path = f'/resource_providers/{cell}' if number % 3 == 1 else f'/resource_classes/{class_name}'
        return client.request('DELETE', path)

    replies = racing.all_at_once(act)
    allocations = fleet.demand(first, 'GET', f'/allocations/{consumer}')['allocations']
    return replies[::3], replies[1::3], replies[2::3], len(allocations)


def _used(client: Client, target: str) -> int:
    usages: dict[str, int] = fleet.demand(client, 'GET', f'/resource_providers/{target}/usages')['usages']
    return usages.get('VCPU', 0)
