"""TCP proxies between a service and its database: one counts round trips, others are silent or interrupt statements."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any, Self

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
        """Send on what ``source`` said; for subclasses."""
        target.sendall(data)


class Silencer(Proxy):
    """Accepts connections, and while ``is_silent`` forwards nothing."""

    is_silent = False

    def forward(self, data: bytes, source: socket.socket, target: socket.socket) -> None:  # noqa: ARG002
        """Send it on, unless this is silent."""
        if not self.is_silent:
            target.sendall(data)

    def end_silence(self) -> None:
        """Forward again, and close the connections from which something was withheld."""
        self.is_silent = False
        for connection in tuple(self._partners):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Interrupter(Proxy):
    """Interrupts each statement of the service that begins with ``word``, in one of five ways (``way``).

    ``race``: the server is told to cancel what the connection executes, at the moment the statement is forwarded.
    ``kill``: at that moment the server is told to end the connection.
    ``itself``: the statement is replaced by one that cancels itself, so that it fails and the transaction stays open.
    ``certification``: it is replaced by one that fails as a COMMIT of Group Replication that failed certification does.
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
        elif self.way == 'certification':
            target.sendall(_mysql_query(self._random.choice(_FAILED_CERTIFICATIONS)))
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
        return _mysql_query('KILL QUERY CONNECTION_ID()')

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


#: They fail with the numbers and messages of MySQL 9.7.
_FAILED_CERTIFICATIONS = [
    f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{message}'"
    for number, message in (
        (1180, "Got error 149 - ''Lock deadlock; Retry transaction'' during COMMIT"),
        (3100, "Error on observer while running replication hook ''before_commit''."),
        (3101, 'Plugin instructed the server to rollback the current transaction.'),
    )
]


def _mysql_query(statement: str) -> bytes:
    """The packet that has the server of MariaDB or MySQL execute a statement."""
    text = b'\x03' + statement.encode()
    return len(text).to_bytes(3, 'little') + b'\0' + text


def _connection_number(data: bytes) -> int | None:
    """The number of a connection in the first packet of MariaDB, or in the message of PostgreSQL that has it."""
    if data[4:5] == b'\x0a':
        end = data.index(b'\x00', 5) + 1
        return int.from_bytes(data[end : end + 4], 'little')
    key_data = data.find(b'K\x00\x00\x00\x0c')
    return None if key_data < 0 else int.from_bytes(data[key_data + 5 : key_data + 9], 'big')


def legible(database: sa.URL, port: int) -> sa.URL:
    """The URL of ``database`` through a proxy that reads what is sent, so without encryption.

    PyMySQL uses TLS if the server offers it, as MySQL does.
    """
    plain = {'postgresql': {'sslmode': 'disable', 'gssencmode': 'disable'}, 'mysql': {'ssl_disabled': 'true'}}
    return database.set(host='127.0.0.1', port=port).update_query_dict(plain[database.get_backend_name()])


@contextlib.contextmanager
def counting(database: sa.URL) -> Iterator[tuple[Proxy, sa.URL]]:
    """A proxy before the server of ``database``, and the URL through it."""
    with Proxy(database.host or '', database.port or PORTS[database.get_backend_name()]) as proxy:
        yield proxy, database.set(host='127.0.0.1', port=proxy.port)


@contextlib.contextmanager
def silencing(database: sa.URL) -> Iterator[tuple[Silencer, sa.URL]]:
    """A ``Silencer`` before the server of ``database``, and the URL through it."""
    proxy = Silencer(database.host or '', database.port or PORTS[database.get_backend_name()])
    with proxy:
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
            yield proxy, legible(database, proxy.port)


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b''
