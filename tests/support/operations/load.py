"""Clients that keep a server busy while something happens to it, and remember every answer."""

from __future__ import annotations

import collections
import contextlib
import threading
import uuid
from collections.abc import Iterator

import requests

from tests.support.operations import services

HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
CLIENTS = 4


class Load:
    """Clients that create providers, one after the other each, until told to stop. Nothing is sent twice.

    :param keep_alive: whether each client keeps its connection between requests, or opens one for each.
    """

    def __init__(self, url: str, keep_alive: bool) -> None:
        #: Statuses, and exceptions by their text, with how often they were seen.
        self.outcomes: collections.Counter[str] = collections.Counter()
        #: The uuids of the providers that the server said it created.
        self.created: set[str] = set()
        self._url = f'{url}/resource_providers'
        self._keep_alive = keep_alive
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]

    def start(self) -> None:
        """Let the clients begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return when every client has had its last answer."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        """Return once the clients have had ``count`` more answers than now."""
        goal = self.outcomes.total() + count
        services.wait_until(lambda: self.outcomes.total() >= goal, 'the answers stopped coming')

    def _work(self) -> None:
        with requests.Session() as session:
            while not self._stopped.is_set():
                if not self._keep_alive:
                    session.close()
                name = str(uuid.uuid4())
                outcome = self._create(session, name)
                self.outcomes[outcome] += 1
                if outcome == '200':
                    self.created.add(name)

    def _create(self, session: requests.Session, name: str) -> str:
        body = {'name': name, 'uuid': name}
        try:
            return str(session.post(self._url, json=body, headers=HEADERS, timeout=60).status_code)
        except requests.RequestException as error:
            return f'{type(error).__name__}: {error}'


@contextlib.contextmanager
def applied(url: str, keep_alive: bool) -> Iterator[Load]:
    """Load on the server at ``url`` while the block runs, or until it calls ``stop``."""
    load = Load(url, keep_alive)
    load.start()
    try:
        yield load
    finally:
        load.stop()


def assert_nothing_lost(url: str, load: Load) -> None:
    """Every request was granted, and what was granted is there."""
    assert set(load.outcomes) == {'200'}, load.outcomes
    listed = requests.get(f'{url}/resource_providers', headers=HEADERS, timeout=60).json()['resource_providers']
    assert {provider['uuid'] for provider in listed} >= load.created
