"""The application in this process, to count the SQL statements of a request and to read its response."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import webob

from bench import client
from bench.client import Request
from placement import conf as placement_conf
from placement import deploy


class Probe:
    """An application on a database, whose statements are counted.

    :param url: the database.
    :param microversion: the microversion of requests that have none of their own.
    """

    def __init__(self, url: str, microversion: str) -> None:
        overrides = {
            'placement_database': {'connection': url},
            'api': {'auth_strategy': 'noauth2'},
            'placement': {'max_microversion': client.MAX_MICROVERSION},
        }
        self._app = deploy.loadapp(placement_conf.load(environ={}, config_files=[], overrides=overrides))
        self._microversion = microversion
        self._statements = 0
        sa.event.listen(self._app.db.engine, 'before_cursor_execute', self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        self._statements += not statement.startswith('BEGIN')

    def send(self, request: Request) -> tuple[int, bytes, int]:
        """Status and body of the answer, and the number of statements, without BEGIN and COMMIT."""
        self._statements = 0
        sent = webob.Request.blank(request.path, method=request.method)
        sent.headers['X-Auth-Token'] = 'admin'
        sent.headers['OpenStack-API-Version'] = f'placement {request.version or self._microversion}'
        if request.body:
            sent.content_type = 'application/json'
            sent.body = request.body.encode()
        response = sent.get_response(self._app)
        return response.status_code, response.body, self._statements

    def close(self) -> None:
        """Close its connections."""
        self._app.db.dispose()
