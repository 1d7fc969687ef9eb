"""A TCP proxy between a service and its database that counts round trips."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator

import sqlalchemy as sa

PORTS = {'postgresql': 5432, 'mysql': 3306}


class Proxy:
    """Forwards the bytes of both sides; ``trips`` counts how often the service sent after the database had.

    Listens at ``port`` of the loopback interface as long as the context lasts.
    """

    def __init__(self, host: str, port: int) -> None:
        self.trips = 0
        self._target = (host, port)
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._partners: dict[socket.socket, socket.socket] = {}
        self._services: set[socket.socket] = set()
        #: Connections whose service has sent and got no answer yet.
        self._asked: set[socket.socket] = set()
        self._stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Proxy:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping = True
        self._thread.join()
        for one in [*self._partners, self._listener]:
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(timeout=0.1):
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    self._accept()
                elif source in self._partners:
                    self._pass_on(source)

    def _accept(self) -> None:
        service, _ = self._listener.accept()
        database = socket.create_connection(self._target)
        self._partners |= {service: database, database: service}
        self._services.add(service)
        for one in (service, database):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        other = self._partners[source]
        said = _received(source)
        if not said:
            for one in (source, other):
                self._selector.unregister(one)
                del self._partners[one]
                one.close()
            return
        if source not in self._services:
            self._asked.discard(other)
        elif source not in self._asked:
            # Several pieces without an answer in between are one round trip.
            self._asked.add(source)
            self.trips += 1
        other.sendall(said)


@contextlib.contextmanager
def counting(database: sa.URL) -> Iterator[tuple[Proxy, sa.URL]]:
    """A proxy before the server of ``database``, and the URL through it."""
    with Proxy(database.host or '', database.port or PORTS[database.get_backend_name()]) as proxy:
        yield proxy, database.set(host='127.0.0.1', port=proxy.port)


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b''
