"""The parts of Keystone that keystonemiddleware uses, over real HTTP."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: A password that no user has.
WRONG_PASSWORD = 'wrong'


class Keystone(BaseHTTPRequestHandler):
    """The parts of Keystone that keystonemiddleware uses: discovery, a token of its own, validation."""

    roles: Mapping[str, list[str]] = {
        'good-admin': ['admin', 'reader'],
        'good-member': ['member'],
        'without-user': ['admin'],
        'good-service': ['service', 'auditor'],
        'other-service': ['service'],
    }

    def do_GET(self) -> None:
        subject = self.headers.get('X-Subject-Token')
        if subject is None:
            link = [{'rel': 'self', 'href': f'{self._url()}/v3/'}]
            version = {'id': 'v3.14', 'status': 'stable', 'links': link, 'media-types': []}
            single = self.path.startswith('/v3')
            self._send(200, {'version': version} if single else {'versions': {'values': [version]}})
        elif subject in self.roles:
            token = new_token(subject, self.roles[subject])
            if subject == 'without-user':
                token['user']['id'] = ''
            self._send(200, {'token': token})
        else:
            self._send(404, {'error': {'code': 404, 'title': 'Not Found', 'message': 'no such token'}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        user = body['auth']['identity'].get('password', {}).get('user', {})
        if user.get('password') == WRONG_PASSWORD:
            self._send(401, {'error': {'code': 401, 'title': 'Unauthorized', 'message': 'wrong password'}})
            return
        endpoints = [
            {'id': face, 'interface': face, 'region_id': 'R', 'url': self._url()}
            for face in ('public', 'internal', 'admin')
        ]
        token = new_token('service', ['service'])
        token['catalog'] = [{'id': 'k', 'type': 'identity', 'name': 'keystone', 'endpoints': endpoints}]
        self._send(201, {'token': token}, {'X-Subject-Token': 'service-token'})

    def _url(self) -> str:
        return f'http://{self.headers["Host"]}'

    def _send(self, status: int, content: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {
            'Content-Length': str(len(body)),
            'Content-Type': 'application/json',
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


def new_token(name: str, roles: list[str]) -> dict[str, Any]:
    """The data of a token of a user, in a project whose id is ``project-id``."""
    now = dt.datetime.now(dt.UTC)
    domain = {'id': 'default', 'name': 'Default'}
    return {
        'methods': ['password'],
        'user': {'id': f'{name}-id', 'name': name, 'domain': domain},
        'project': {'id': 'project-id', 'name': 'project', 'domain': domain},
        'roles': [{'id': role, 'name': role} for role in roles],
        'issued_at': now.strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
        'expires_at': (now + dt.timedelta(hours=1)).strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
        'catalog': [],
    }


@contextlib.contextmanager
def keystone(port: int = 0) -> Iterator[str]:
    """The URL of a Keystone that knows the tokens of ``Keystone.roles``, until the block ends.

    :param port: where it listens; 0 for a free port.
    """
    server = ThreadingHTTPServer(('127.0.0.1', port), Keystone)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_address[1]}'
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
