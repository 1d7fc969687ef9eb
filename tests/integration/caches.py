"""Checks of provider caches for every database: with writes from several processes, killed workers, several servers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from tests.integration import races
from tests.support import servers
from tests.support.cache_equality import compare
from tests.support.cache_histories import History, Send, Universe
from tests.support.history.client import Client, UnreachableError
from tests.support.http_client import claim_body
from tests.support.waiting import SECONDS

# Equality ------------------------------------------------------------------------------------------------


def sender(client: Client) -> Send:
    """Sends requests over HTTP; those with an unknown outcome have no status."""

    def send(method: str, path: str, body: Any, version: str) -> tuple[int | None, Any]:
        try:
            reply = client.request(method, path, body, version=version)
        except UnreachableError:
            time.sleep(0.05)
            return None, None
        return reply.status, reply.body

    return send


#: The writes that are accepted before and after each kill, the kills, and the comparisons.
_MIN_ACCEPTED = 40
_MIN_KILLS = 6
_MIN_COMPARISONS = 50


def stay_equal(running: Sequence[servers.Server], observed: Sequence[Database]) -> None:
    """Let 8 clients write at random, and meanwhile compare a cache on each of ``observed`` with the tables.

    The workers of the servers are killed, one after the other. It ends when enough was written, killed and compared.
    """
    caches = [(ProviderCache(db), db) for db in observed]
    for provider_cache, _ in caches:
        provider_cache.up_to_date()
    compared = kills = 0
    kill_at = _MIN_ACCEPTED
    victims = itertools.cycle(running)
    end = time.monotonic() + SECONDS
    with _written_to([server.url for server in running]) as histories:
        while compared < _MIN_COMPARISONS or kills < _MIN_KILLS or _accepted(histories) < kill_at:
            assert time.monotonic() < end, f'{compared=}, {_accepted(histories)=}, {kills=}'
            for provider_cache, db in caches:
                # What the normal update made of it is compared the next time.
                compare(provider_cache, db)
                provider_cache.up_to_date()
                compared += 1
            if kills < _MIN_KILLS and _accepted(histories) >= kill_at:
                with contextlib.suppress(IndexError, ProcessLookupError):
                    os.kill(next(victims).workers()[0], signal.SIGKILL)
                    kills += 1
                    kill_at = _accepted(histories) + _MIN_ACCEPTED
    for provider_cache, db in caches:
        compare(provider_cache, db)
    assert [history.errors for history in histories if history.errors] == []


@contextlib.contextmanager
def _written_to(urls: Sequence[str]) -> Iterator[list[History]]:
    """The histories that 8 threads send to several servers, as long as the context lasts."""
    histories: list[History] = []
    universe = Universe(random.randrange(2**32))
    stopping = threading.Event()

    def run(number: int) -> None:
        with contextlib.closing(Client(urls, token='admin', first=number)) as client:
            history = History(sender(client), universe, number)
            histories.append(history)
            if number == 0:
                history.populate()
            while not stopping.is_set():
                history.step()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        running = [pool.submit(run, number) for number in range(8)]
        try:
            yield histories
        finally:
            stopping.set()
        for thread in running:
            thread.result()


def _accepted(histories: list[History]) -> int:
    """The number of writes that have been accepted by now."""
    answers = [answer for history in histories for answer in [*history.answers.items()]]
    return sum(count for (_, was_accepted), count in answers if was_accepted)


# Read your writes ----------------------------------------------------------------------------------------


class Alternating:
    """One client that writes through one process and searches through another, on a provider of its own."""

    def __init__(self, clients: Sequence[Client]) -> None:
        #: The changes that a search did not find.
        self.missing: list[str] = []
        self._clients = itertools.cycle(clients)
        self._provider = races.provider(next(self._clients), 100)
        self._path = f'/resource_providers/{self._provider}'

    def change_everything(self) -> None:
        """Make one change of each kind of entry of the log after the other, and search for each."""
        # The number of requests is even, and each time the first one shall go to the other process.
        next(self._clients)
        consumer, name = str(uuid.uuid4()), str(uuid.uuid4())
        trait = f'CUSTOM_{uuid.uuid4().hex.upper()}'
        self._write('PUT', f'/allocations/{consumer}', claim_body({self._provider: {'VCPU': 100}}))
        self._search('resources=VCPU:1', is_present=False)
        self._write('DELETE', f'/allocations/{consumer}')
        self._search('resources=VCPU:100', is_present=True)
        self._write('PUT', self._path, {'name': name})
        self._search(f'name={name}', is_present=True)
        # A search for an unknown trait is an error.
        self._write('PUT', f'/traits/{trait}')
        self._search(f'required={trait}', is_present=False)

    def _write(self, method: str, path: str, body: Any = None) -> Any:
        return next(self._clients).demand(method, path, body)

    def _search(self, query: str, *, is_present: bool) -> None:
        """The provider is listed, and among the candidates for resources, or it is not."""
        listed = next(self._clients).demand('GET', f'/resource_providers?{query}')['resource_providers']
        presences = [self._provider in {row['uuid'] for row in listed}]
        if query.startswith('resources'):
            candidates = next(self._clients).demand('GET', f'/allocation_candidates?{query}')
            presences.append(self._provider in candidates['provider_summaries'])
        if set(presences) != {is_present}:
            self.missing.append(query)


def answered_changes_are_found(urls: Sequence[str], rounds: int = 5, callers: int = 4) -> None:
    """Several clients alternate between ``urls``. No search may lack a change that was answered before it was sent."""

    def run(number: int) -> list[str]:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(contextlib.closing(Client([url], token='admin'))) for url in urls]
            searcher = Alternating(clients[number % len(urls) :] + clients[: number % len(urls)])
            for _ in range(rounds):
                searcher.change_everything()
            return searcher.missing

    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        assert list(pool.map(run, range(callers))) == [[]] * callers
