"""An HTTP client that distinguishes answered requests, lost ones, and those that were never sent."""

from __future__ import annotations

import dataclasses
import http.client
import itertools
import json
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

#: The newest microversion of the service; consumer generations need 1.28.
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
    #: Names are in lower case.
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


class Client:
    """One keep-alive connection, which moves to the next address when the current one stops answering."""

    def __init__(self, urls: Sequence[str], *, token: str, first: int = 0, timeout: float = 30.0) -> None:
        self._urls = itertools.islice(itertools.cycle(urls), first % len(urls), None)
        self._addresses = len(urls)
        self._token = token
        self._timeout = timeout
        self._prefix = ''
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: Any = None, *, version: str = MICROVERSION) -> Reply:
        """Send one request, once. Raises UnreachableError when no address accepts a connection."""
        connection = self._connected()
        headers = {'x-auth-token': self._token, 'openstack-api-version': f'placement {version}'}
        encoded = None
        if body is not None:
            encoded = json.dumps(body).encode()
            headers['content-type'] = 'application/json'
        start = time.monotonic()
        try:
            connection.request(method, self._prefix + path, encoded, headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return Reply(None, None, start, time.monotonic())
        end = time.monotonic()
        if response.will_close:
            self.close()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, _decoded(raw), start, end, received)

    def close(self) -> None:
        """Drop the connection; the next request opens one to the next address."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None:
            return self._connection
        for url in itertools.islice(self._urls, self._addresses):
            parts = urllib.parse.urlsplit(url)
            kind = http.client.HTTPSConnection if parts.scheme == 'https' else http.client.HTTPConnection
            connection = kind(parts.hostname or '127.0.0.1', parts.port, timeout=self._timeout)
            try:
                connection.connect()
            except OSError:
                connection.close()
                continue
            self._prefix, self._connection = parts.path.rstrip('/'), connection
            return connection
        raise UnreachableError


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors='replace')
