"""PostgreSQL with a limit on how long the driver waits for the server."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server sends nothing for ``socket_timeout`` seconds; 0 for no limit.

    TCP does not detect this, because the kernel acknowledges packets even if the server or a proxy does not respond.
    """

    socket_timeout = 0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for the server as the driver does."""
        return super().wait(self._limited(gen) if self.socket_timeout else gen, *args, **kwargs)

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Pass on what ``gen`` waits for. The driver sends 0 if nothing has happened for a tenth of a second."""
        ready, deadline = None, time.monotonic() + self.socket_timeout
        while True:
            try:
                event = gen.send(ready)
            except StopIteration as end:
                return end.value
            ready = yield event
            if ready:
                deadline = time.monotonic() + self.socket_timeout
            elif time.monotonic() > deadline:
                self.close()
                raise psycopg.OperationalError(f'The server has not answered for {self.socket_timeout} seconds')
