"""Callers that send requests at the same moment, and what they send."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
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
