"""TCP proxies between a service and its database: one counts round trips, others are silent or break connections."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Self

import sqlalchemy as sa

PORTS = {'postgresql': 5432, 'mysql': 3306}


class Proxy:
    """Forwards the bytes of both sides; ``trips`` counts how often the service sent after the database had.

    Listens at ``port`` of the loopback interface as long as the context lasts. Forwards nothing while ``is_silent``.
    """

    def __init__(self, host: str, port: int) -> None:
        self.trips = 0
        self.is_silent = False
        self._target = (host, port)
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._partners: dict[socket.socket, socket.socket] = {}
        #: Connections of services, and where each was forwarded to.
        self._services: dict[socket.socket, tuple[str, int]] = {}
        #: Connections whose service has sent and got no answer yet.
        self._asked: set[socket.socket] = set()
        self._stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping = True
        self._thread.join()
        for connection in [*self._partners, self._listener]:
            connection.close()
        self._selector.close()

    def move(self, host: str, port: int) -> None:
        """Forward new connections there. Those that are open stay, as behind a virtual address."""
        self._target = (host, port)

    def connections_to(self, host: str, port: int) -> int:
        """The number of open connections to a database."""
        return [self._services.get(connection) for connection in [*self._partners]].count((host, port))

    @property
    def connections(self) -> int:
        """The number of open connections of services."""
        return len(self._partners) // 2

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
        target = self._target
        try:
            database = socket.create_connection(target)
        except OSError:
            service.close()
            return
        self._services[service] = target
        self._partners |= {service: database, database: service}
        for connection in (service, database):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        other = self._partners[source]
        data = _received(source)
        if not data:
            for connection in (source, other):
                self._selector.unregister(connection)
                del self._partners[connection]
                connection.close()
            return
        if source not in self._services:
            self._asked.discard(other)
        elif source not in self._asked:
            # Several pieces without an answer in between are one round trip.
            self._asked.add(source)
            self.trips += 1
        # The other side may have closed the connection; that it has is read next.
        with contextlib.suppress(OSError):
            self.forward(data, source, other)

    def forward(self, data: bytes, source: socket.socket, target: socket.socket) -> None:  # noqa: ARG002
        """Send on what ``source`` said, unless this is silent."""
        if not self.is_silent:
            target.sendall(data)

    def end_silence(self) -> None:
        """Forward again, and close the connections from which something was withheld."""
        self.is_silent = False
        for connection in tuple(self._partners):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Breaker(Proxy):
    """Breaks the connection of a service at its next COMMIT, whose answer is lost; see ``next_commit``."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        #: What becomes of the next COMMIT: it is ``lost`` or ``delivered``, or it is ``late``, so that the database
        #: gets it when ``deliver`` is called.
        self.next_commit: str | None = None
        #: The number of these COMMITs.
        self.broken = 0
        self._held: tuple[socket.socket, bytes] | None = None
        #: Connections to the database whose service is gone.
        self._left: list[socket.socket] = []

    def deliver(self) -> None:
        """Send the late COMMIT to the database."""
        assert self._held is not None
        connection, data = self._held
        connection.sendall(data)

    def forward(self, data: bytes, source: socket.socket, target: socket.socket) -> None:
        """Send it on, unless it is the COMMIT."""
        if self.next_commit is None or source not in self._services or not _COMMIT.search(data):
            target.sendall(data)
            return
        fate, self.next_commit = self.next_commit, None
        for connection in (source, target):
            self._selector.unregister(connection)
            del self._partners[connection]
        source.close()
        if fate == 'lost':
            target.close()
        else:
            # The database gets no end of the connection before the COMMIT.
            self._left.append(target)
        if fate == 'late':
            self._held = target, data
        elif fate == 'delivered':
            target.sendall(data)
        self.broken += 1

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for connection in self._left:
            connection.close()


#: Not the name of an isolation level.
_COMMIT = re.compile(rb'(?<!READ )COMMIT')


@contextlib.contextmanager
def before(database: sa.URL) -> Iterator[tuple[Proxy, sa.URL]]:
    """A proxy before the server of ``database``, and the URL through it."""
    with Proxy(*_address(database)) as proxy:
        yield proxy, database.set(host='127.0.0.1', port=proxy.port)


@contextlib.contextmanager
def breaking(database: sa.URL) -> Iterator[tuple[Breaker, sa.URL]]:
    """A ``Breaker`` before the server of ``database``, and the URL through it, without encryption.

    PyMySQL uses TLS if the server offers it, as MySQL does.
    """
    plain = {'postgresql': {'sslmode': 'disable', 'gssencmode': 'disable'}, 'mysql': {'ssl_disabled': 'true'}}
    with Breaker(*_address(database)) as proxy:
        through = database.set(host='127.0.0.1', port=proxy.port)
        yield proxy, through.update_query_dict(plain[database.get_backend_name()])


def _address(database: sa.URL) -> tuple[str, int]:
    return database.host or '', database.port or PORTS[database.get_backend_name()]


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b''
