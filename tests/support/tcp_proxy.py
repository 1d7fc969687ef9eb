"""TCP proxies between a service and its database: one counts round trips, one interrupts statements."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

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
        data = _received(source)
        if not data:
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
        # The other side may have closed the connection; that it has is read next.
        with contextlib.suppress(OSError):
            self.forward(data, source, other)

    def forward(self, data: bytes, source: socket.socket, target: socket.socket) -> None:  # noqa: ARG002
        """Send on what ``source`` said; for subclasses."""
        target.sendall(data)


class Interrupter(Proxy):
    """Interrupts each statement of the service that begins with ``word``, in one of four ways (``way``).

    ``race``: the server is told to cancel what the connection executes, at the moment the statement is forwarded.
    ``kill``: at that moment the server is told to end the connection.
    ``itself``: the statement is replaced by one that cancels itself, so that it fails and the transaction stays open.
    ``silence``: the statement is executed, and the connection is closed instead of the answer.

    :param administrator: a connection of the driver that may cancel statements of others.
    """

    def __init__(self, host: str, port: int, administrator: Any, seed: int = 0) -> None:
        super().__init__(host, port)
        #: The word, such as ``COMMIT``; None for no interruptions.
        self.word: str | None = None
        self.way = 'race'
        #: How many statements were interrupted, or may have been.
        self.interrupted = 0
        self._administrator = administrator
        self._is_postgresql = type(administrator).__module__.startswith('psycopg')
        self._random = random.Random(seed)
        #: The number that the server has given to the connection of each service.
        self._numbers: dict[socket.socket, int] = {}
        #: Connections to the database whose next answer is not forwarded.
        self._silenced: set[socket.socket] = set()

    def forward(self, data: bytes, source: socket.socket, target: socket.socket) -> None:
        """Send it on, and interrupt it if it is a statement to be interrupted."""
        if source not in self._services:
            if target not in self._numbers and (number := _connection_number(data)) is not None:
                self._numbers[target] = number
            if source in self._silenced:
                self._silenced.discard(source)
                target.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)
        # On both databases the text of a query follows five bytes: length and kind.
        elif self.word is None or not data[5:].startswith(self.word.encode()) or source not in self._numbers:
            target.sendall(data)
        # So that some succeed.
        elif self.way in ('race', 'kill') or self._random.random() < 0.5:
            self.interrupted += 1
            self._interrupt(data, source, target)
        else:
            target.sendall(data)

    def _interrupt(self, data: bytes, source: socket.socket, target: socket.socket) -> None:
        if self.way == 'silence':
            self._silenced.add(target)
            target.sendall(data)
        elif self.way == 'itself':
            target.sendall(self._cancelling_itself())
        else:
            # What can be interrupted takes some 0.01 ms.
            times = self._random.choice([1, 5, 20])
            if self._random.random() < 0.5:
                self._begin_to_cancel(self._numbers[source], times)
                target.sendall(data)
            else:
                target.sendall(data)
                self._begin_to_cancel(self._numbers[source], times)
            self._end_cancelling()

    def _cancelling_itself(self) -> bytes:
        if self._is_postgresql:
            text = b'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)\0'
            return b'Q' + (len(text) + 4).to_bytes(4, 'big') + text
        text = b'\x03KILL QUERY CONNECTION_ID()'
        return len(text).to_bytes(3, 'little') + b'\0' + text

    def _begin_to_cancel(self, number: int, times: int) -> None:
        """Send what cancels, and wait for nothing."""
        if self._is_postgresql:
            function = 'pg_terminate_backend' if self.way == 'kill' else 'pg_cancel_backend'
            text = f'SELECT {function}({number}) FROM generate_series(1, {times})'
            self._administrator.pgconn.send_query(text.encode())
            self._administrator.pgconn.flush()
        else:
            statement = f'KILL {number}' if self.way == 'kill' else f'KILL QUERY {number}'
            self._administrator._execute_command(3, '; '.join([statement] * times))

    def _end_cancelling(self) -> None:
        if self._is_postgresql:
            while self._administrator.pgconn.get_result() is not None:
                pass
            return
        # The connection may have ended by then.
        with contextlib.suppress(self._administrator.Error):
            self._administrator._read_query_result()
            while self._administrator._result.has_next:
                self._administrator._read_query_result()


def _connection_number(data: bytes) -> int | None:
    """The number of a connection in the first packet of MariaDB, or in the message of PostgreSQL that has it."""
    if data[4:5] == b'\x0a':
        end = data.index(b'\x00', 5) + 1
        return int.from_bytes(data[end : end + 4], 'little')
    key_data = data.find(b'K\x00\x00\x00\x0c')
    return None if key_data < 0 else int.from_bytes(data[key_data + 5 : key_data + 9], 'big')


@contextlib.contextmanager
def counting(database: sa.URL) -> Iterator[tuple[Proxy, sa.URL]]:
    """A proxy before the server of ``database``, and the URL through it."""
    with Proxy(database.host or '', database.port or PORTS[database.get_backend_name()]) as proxy:
        yield proxy, database.set(host='127.0.0.1', port=proxy.port)


@contextlib.contextmanager
def interrupting(database: sa.URL) -> Iterator[tuple[Interrupter, sa.URL]]:
    """An ``Interrupter`` before the server of ``database``, and the URL through it."""
    backend = database.get_backend_name()
    several = {} if backend == 'postgresql' else {'client_flag': str(1 << 16)}
    engine = sa.create_engine(database.update_query_dict(several), isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
    with engine.connect() as connection:
        administrator = connection.connection.dbapi_connection
        proxy = Interrupter(database.host or '', database.port or PORTS[backend], administrator)
        with proxy:
            through = database.set(host='127.0.0.1', port=proxy.port)
            if backend == 'postgresql':
                # The proxy reads what is sent.
                through = through.update_query_dict({'sslmode': 'disable', 'gssencmode': 'disable'})
            yield proxy, through


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b''
