"""The SQL statements of requests, counted in this process, with the application of this checkout."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import webob

from bench import client
from bench.client import Request
from placement import conf as placement_conf
from placement import deploy


class Counter:
    """An application on a database, whose statements are counted.

    :param microversion: of requests that have none.
    """

    def __init__(self, url: str, microversion: str) -> None:
        overrides = {
            'placement_database': {'connection': url},
            'api': {'auth_strategy': 'noauth2'},
            'placement': {'max_microversion': client.MAX_MICROVERSION},
        }
        self._application = deploy.loadapp(placement_conf.load(config_files=[], overrides=overrides))
        self._microversion = microversion
        self._statements = 0
        sa.event.listen(self._application.db.engine, 'before_cursor_execute', self._count)

    def _count(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        self._statements += not statement.startswith('BEGIN')

    def send(self, request: Request) -> tuple[int, int]:
        """Send a request, and return the number of statements, without BEGIN and COMMIT, and the response's length."""
        self._statements = 0
        sent = webob.Request.blank(request.path, method=request.method)
        sent.headers['X-Auth-Token'] = 'admin'
        sent.headers['OpenStack-API-Version'] = f'placement {request.version or self._microversion}'
        if request.body:
            sent.content_type = 'application/json'
            sent.body = request.body.encode()
        response = sent.get_response(self._application)
        return self._statements, len(response.body)

    def close(self) -> None:
        """Close its connections."""
        self._application.db.dispose()
