"""Clients that send requests while a server is restarted, and count every answer."""

from __future__ import annotations

import collections
import threading
import uuid
from typing import Self

import requests

from tests.support.waiting import wait_until

HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
CLIENTS = 4


class Load:
    """Clients that create one provider after another while the context lasts, or until ``stop``. None is sent twice.

    :param keep_alive: whether each client keeps its connection between requests, or opens one for each.
    """

    def __init__(self, url: str, keep_alive: bool) -> None:
        #: The number of answers by status, and of exceptions by text.
        self.outcomes: collections.Counter[str] = collections.Counter()
        #: The uuids of the providers that the server answered as created.
        self.created: set[str] = set()
        self._url = f'{url}/resource_providers'
        self._keep_alive = keep_alive
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the clients; return when each has its last answer."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        """Return once the clients have received ``count`` more answers."""
        goal = self.outcomes.total() + count
        wait_until(lambda: self.outcomes.total() >= goal, 'the answers stopped coming')

    def _work(self) -> None:
        with requests.Session() as session:
            while not self._stopped.is_set():
                if not self._keep_alive:
                    session.close()
                name = str(uuid.uuid4())
                body = {'name': name, 'uuid': name}
                try:
                    outcome = str(session.post(self._url, json=body, headers=HEADERS, timeout=60).status_code)
                except requests.RequestException as error:
                    outcome = f'{type(error).__name__}: {error}'
                self.outcomes[outcome] += 1
                if outcome == '200':
                    self.created.add(name)


def assert_nothing_lost(url: str, load: Load) -> None:
    """Every request succeeded, and every created provider exists."""
    assert set(load.outcomes) == {'200'}, load.outcomes
    listed = requests.get(f'{url}/resource_providers', headers=HEADERS, timeout=60).json()['resource_providers']
    assert {provider['uuid'] for provider in listed} >= load.created
