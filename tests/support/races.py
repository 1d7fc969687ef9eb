"""Races that are run on every database; each returns all answers, which the tests check."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tests.support.history import fleet
from tests.support.history.client import Client, Reply

T = TypeVar('T')

CALLERS = 40
UNITS = 10
#: The longest time in seconds that a caller may wait in any race (issue 4).
PATIENCE = 5.0

_OWNER = {'project_id': 'race', 'user_id': 'race'}


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

    def close(self) -> None:
        """End the threads and close the connections."""
        self._pool.shutdown()
        for client in self.clients:
            client.close()


@contextlib.contextmanager
def callers(urls: Sequence[str], count: int = CALLERS) -> Iterator[Callers]:
    """So many callers, closed at the end."""
    made = Callers(urls, count)
    try:
        yield made
    finally:
        made.close()


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
