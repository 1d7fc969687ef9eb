"""Callers that send requests at the same moment, and what they send."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tests.support.history import fleet
from tests.support.history.client import Client, Reply

T = TypeVar('T')

CALLERS = 40
UNITS = 10
#: The largest number of seconds that a caller may wait in any race. A transaction that waits for a lock at each of its
#: eleven attempts would exceed it. On an idle machine no caller waits for 5 seconds.
MAX_REQUEST_SECONDS = 40.0
#: The largest number of seconds that callers go on until each kind of request has succeeded.
MAX_SECONDS = 60

_OWNER = {'project_id': 'race', 'user_id': 'race'}


@dataclasses.dataclass
class Outcome:
    """The counts of statuses by kind of request, and everything that was wrong."""

    statuses: Counter[tuple[str, int | None]] = dataclasses.field(default_factory=Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def idle(self) -> set[str]:
        """The kinds of requests of which none has succeeded."""
        # A copy, because other threads add to them.
        statuses = list(self.statuses)
        succeeded = {kind for kind, status in statuses if status is not None and status < 300}
        return {kind for kind, _ in statuses} - succeeded


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


def repeated(send: Callable[[], Reply]) -> Reply:
    """The response to a request that is repeated while other writes interrupt it, as its error asks for.

    On a cluster the retries of the service do not suffice if more callers than retries write the same rows.
    """
    for _ in range(10):
        response = send()
        if response.status != 409 or response.error['code'] != 'placement.concurrent_update':
            break
    return response


def provider(client: Client, total: int) -> str:
    """A new provider with ``total`` VCPU."""
    return fleet.create_provider(client, {'VCPU': {'total': total}})


def claim(providers: Sequence[str], expected: int | None) -> dict[str, Any]:
    """The entry of one consumer that claims one VCPU of each provider, in that order."""
    allocations = {uuid: {'resources': {'VCPU': 1}} for uuid in providers}
    return {'allocations': allocations, 'consumer_generation': expected, **_OWNER}


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
