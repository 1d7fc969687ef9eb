"""An HTTP client that distinguishes answered requests, lost ones, and those that were never sent."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import urllib3

#: The newest microversion that every service serves; consumer generations need 1.28.
MICROVERSION = '1.29'


class UnreachableError(Exception):
    """No address accepts connections, so the request was not sent."""


@dataclasses.dataclass(frozen=True)
class Reply:
    """``status`` is None when the connection was lost after the request was sent. Times are monotonic seconds."""

    status: int | None
    body: Any
    start: float
    end: float
    #: Names in any case.
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the answer is a success."""
        return self.status is not None and self.status < 300

    @property
    def unknown(self) -> bool:
        """Whether nobody knows what became of the request: a database may have committed before a 5xx."""
        return self.status is None or self.status >= 500

    @property
    def seconds(self) -> float:
        """How long the caller waited."""
        return self.end - self.start

    @property
    def error(self) -> Mapping[str, Any]:
        """The first error of the error document, empty when the answer is none."""
        if isinstance(self.body, Mapping) and self.body.get('errors'):
            error: Mapping[str, Any] = self.body['errors'][0]
            return error
        return {}


class RejectedError(Exception):
    """A request failed that had to succeed."""


class Client:
    """One keep-alive connection, which moves to the next address when the current one stops answering."""

    def __init__(self, urls: Sequence[str], *, token: str = 'admin', first: int = 0) -> None:
        self._urls = itertools.islice(itertools.cycle(url.rstrip('/') for url in urls), first % len(urls), None)
        self._url = next(self._urls)
        self._addresses = len(urls)
        self._token = token
        self._pool = urllib3.PoolManager(timeout=30.0, retries=False)

    def request(self, method: str, path: str, body: Any = None, *, version: str = MICROVERSION) -> Reply:
        """Send one request, once. Raises UnreachableError when no address accepts a connection."""
        headers = {'X-Auth-Token': self._token, 'OpenStack-API-Version': f'placement {version}'}
        sent = None if body is None else json.dumps(body)
        if sent is not None:
            headers['Content-Type'] = 'application/json'
        for _ in range(self._addresses):
            start = time.monotonic()
            try:
                # urllib3 1.26, until 2026.1 is the oldest supported OpenStack release, has no argument ``json``.
                response = self._pool.request(method, self._url + path, body=sent, headers=headers)
            except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError):
                self.close()
            except urllib3.exceptions.HTTPError:
                self.close()
                return Reply(None, None, start, time.monotonic())
            else:
                end = time.monotonic()
                is_json = 'json' in response.headers.get('Content-Type', '')
                shown = json.loads(response.data) if is_json else response.data.decode(errors='replace')
                return Reply(response.status, shown, start, end, response.headers)
        raise UnreachableError

    def demand(self, method: str, path: str, body: Any = None, *, version: str = MICROVERSION) -> Any:
        """Send a request that has to succeed, and return the decoded answer. Raises RejectedError."""
        reply = self.request(method, path, body, version=version)
        if not reply.accepted:
            raise RejectedError(f'{method} {path} was answered {reply.status}: {reply.body}')
        return reply.body

    def create_provider(self, inventories: Mapping[str, Any] | None = None, parent: str | None = None) -> str:
        """Create a provider with a fresh name and give it ``inventories`` (class -> record). Returns its uuid."""
        identity = str(uuid.uuid4())
        body: dict[str, Any] = {'name': identity, 'uuid': identity, 'parent_provider_uuid': parent}
        self.demand('POST', '/resource_providers', body)
        if inventories:
            body = {'resource_provider_generation': 0, 'inventories': inventories}
            self.demand('PUT', f'/resource_providers/{identity}/inventories', body)
        return identity

    def move(self, provider: str, parent: str | None) -> Reply:
        """Give a provider that ``create_provider`` named another parent, or none. Its name has to be sent along."""
        body = {'name': provider, 'parent_provider_uuid': parent}
        return self.request('PUT', f'/resource_providers/{provider}', body, version='1.37')

    def close(self) -> None:
        """Drop the connection; the next request opens one to the next address."""
        self._pool.clear()
        self._url = next(self._urls)
