"""A WSGI client that can send malformed requests, and a small topology whose state is compared around each request."""

from __future__ import annotations

import dataclasses
import io
import json
import sqlite3
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import webob

from tests.support import error_details

HOST = '4e8e5957-649f-477b-9e5b-f1f75b21c03c'
CHILD = '0c9d2f1e-7a3b-4d58-8e61-92b7c5a4d3f0'
EMPTY = 'b1d6c7a2-3f4e-4a90-9c8b-7e6d5f4a3b21'
AGGREGATE = '93f8a6b5-1c2d-4e3f-8a7b-6c5d4e3f2a1b'
CONSUMER = '8a3f2c7d-5e0b-4f61-9d2a-6b1c0e4f7a95'
OTHER_CONSUMER = 'd7c6b5a4-9382-4170-8f6e-5d4c3b2a1908'

GOOD_HEADERS = {
    'X-Auth-Token': 'admin',
    'OpenStack-API-Version': 'placement 1.29',
    'Content-Type': 'application/json',
    'Accept': 'application/json',
}


@dataclasses.dataclass(frozen=True)
class Request:
    """A request as it is sent. ``target`` is path and query, percent-encoded."""

    method: str
    target: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: GOOD_HEADERS)
    body: bytes = b''

    def __repr__(self) -> str:
        start = f'{self.method} {self.target[:300]!r} {dict(self.headers)!r:.600}'
        return f'{start} {self.body[:300]!r} ({len(self.body)} bytes)'


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        """The text of a JSON error."""
        text: str = self.json['errors'][0]['detail']
        return text


def send(app: Any, request: Request) -> Answer:
    """Send the request to the application, as an HTTP server would (PEP 3333), and read the whole answer."""
    path, _, query = request.target.partition('?')
    environ = {
        'REQUEST_METHOD': request.method,
        'PATH_INFO': unquote_to_bytes(path.encode('latin-1')).decode('latin-1'),
        'QUERY_STRING': query,
        'CONTENT_LENGTH': str(len(request.body)),
        'wsgi.input': io.BytesIO(request.body),
    }
    for name, value in request.headers.items():
        key = name.upper().replace('-', '_')
        environ[key if key in {'CONTENT_TYPE', 'CONTENT_LENGTH'} else f'HTTP_{key}'] = value
    status, headers, chunks = webob.Request.blank('/', environ).call_application(app)
    body = b''.join(chunks)
    if hasattr(chunks, 'close'):
        chunks.close()
    assert not any(mark in text for pair in headers for text in pair for mark in '\r\n\0'), headers
    return Answer(int(status.split()[0]), {name.lower(): value for name, value in headers}, body)


class Topology:
    """An application with a few providers and allocations, whose stored state is compared around each request."""

    def __init__(self, app: Any, database: str) -> None:
        """:param database: path of the application's SQLite file."""
        self.app = app
        self.sent = 0
        self.rejected = 0
        self._watch = sqlite3.connect(f'file:{database}?mode=ro', uri=True)
        self.populate()
        self._seen = self._version()
        self._state = self._rows()

    def close(self) -> None:
        self._watch.close()

    def _version(self) -> int:
        """A number that SQLite changes whenever another connection commits a change."""
        version: int = self._watch.execute('PRAGMA data_version').fetchone()[0]
        return version

    def _rows(self) -> dict[str, list[Any]]:
        names = [
            row[0] for row in self._watch.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        ]
        return {name: sorted(map(repr, self._watch.execute(f'SELECT * FROM "{name}"'))) for name in names}

    def request(self, method: str, target: str, body: Any = None) -> Answer:
        """Send a well-formed request, to set up the topology."""
        return send(self.app, Request(method, target, body=b'' if body is None else json.dumps(body).encode()))

    def populate(self) -> None:
        """Create what the templates of requests refer to, unless it exists."""
        for name, uuid, parent in (('host', HOST, None), ('child', CHILD, HOST), ('empty', EMPTY, None)):
            self.request('POST', '/resource_providers', {'name': name, 'uuid': uuid, 'parent_provider_uuid': parent})
        for target in ('/traits/CUSTOM_BLUE', '/resource_classes/CUSTOM_GOLD'):
            self.request('PUT', target)
        for name in ('VCPU', 'CUSTOM_GOLD'):
            self.request('POST', f'/resource_providers/{HOST}/inventories', {'resource_class': name, 'total': 100})
        generation = self.request('GET', f'/resource_providers/{HOST}').json['generation']
        aggregates = {'aggregates': [AGGREGATE], 'resource_provider_generation': generation}
        self.request('PUT', f'/resource_providers/{HOST}/aggregates', aggregates)
        claim = {'allocations': {HOST: {'resources': {'VCPU': 1}}}, 'project_id': 'p', 'user_id': 'u'}
        self.request('PUT', f'/allocations/{CONSUMER}', {**claim, 'consumer_generation': None})

    def attack(self, request: Request) -> Answer:
        """Send ``request``; check what holds for every answer, and that a rejected request changed nothing."""
        self.sent += 1
        answer = send(self.app, request)
        assert answer.status < 500, (answer.status, request)
        assert answer.headers['x-openstack-request-id'].startswith('req-'), request
        if answer.status >= 400:
            self.rejected += 1
            self._check_error(answer, request)
        self._check_state(answer, request)
        if self.sent % 100 == 0:
            self.populate()
            self._seen, self._state = self._version(), self._rows()
        return answer

    def _check_error(self, answer: Answer, request: Request) -> None:
        """The error has its status and a detail, in valid UTF-8."""
        if request.method == 'HEAD':
            assert answer.body == b'', request
            return
        text = answer.body.decode('utf-8')
        if answer.headers['content-type'].startswith('application/json'):
            (error,) = json.loads(text)['errors']
            assert error['status'] == answer.status, request
            error_details.check(json.loads(text))
        assert 'Traceback' not in text, request
        assert 'sqlalchemy' not in text.lower(), request

    def _check_state(self, answer: Answer, request: Request) -> None:
        version = self._version()
        if version == self._seen:
            return
        before, self._seen, self._state = self._state, version, self._rows()
        if answer.status >= 400 or request.method in {'GET', 'HEAD', 'OPTIONS'}:
            assert before == self._state, (answer.status, request)
