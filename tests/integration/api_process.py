"""A ``placement-api`` to which tests send bytes and signals."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.integration import services
from tests.support import servers
from tests.support.waiting import wait_until

PROGRAM = str(pathlib.Path(sys.executable).with_name('placement-api'))
#: The longest wait for an answer or an end.
SECONDS = 60
ROOT = b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'


def request(method: str, path: str, body: bytes = b'', *headers: str) -> bytes:
    """The bytes of a request of an administrator.

    :param headers: lines instead of those that belong to a JSON body.
    """
    of_body = [f'Content-Length: {len(body)}', 'Content-Type: application/json'] if body else []
    lines = [f'{method} {path} HTTP/1.1', 'Host: localhost', 'X-Auth-Token: admin', *(headers or of_body)]
    return '\r\n'.join([*lines, 'OpenStack-API-Version: placement 1.29', '', '']).encode() + body


def answer(connection: socket.socket) -> http.client.HTTPResponse:
    """The next answer on a connection, of which the whole body was received."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response


def settings(directory: pathlib.Path) -> dict[str, str]:
    """The variables of the environment that let it use an SQLite file in a directory, and ``noauth2``."""
    return {
        'OS_PLACEMENT_CONFIG_DIR': str(directory),
        'OS_PLACEMENT_DATABASE__CONNECTION': f'sqlite:///{directory}/placement.sqlite',
        'OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP': 'true',
        'OS_API__AUTH_STRATEGY': 'noauth2',
    }


@dataclasses.dataclass
class Service:
    """A running ``placement-api``. ``address`` is host and port, or the path of a Unix socket."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int] | str
    log: pathlib.Path

    def connect(self, data: bytes = b'', receive_buffer: int | None = None) -> socket.socket:
        """A new connection that has sent ``data``.

        :param receive_buffer: the number of bytes that the kernel receives before they are read; None for its default.
        """
        connection = socket.socket(socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET)
        connection.settimeout(SECONDS)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            connection.connect(self.address)
            # The service may answer and close the connection before it has read everything.
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(data)
        except OSError:
            connection.close()
            raise
        return connection

    def send(self, data: bytes) -> http.client.HTTPResponse:
        """Send a request, of which nothing follows, on a connection of its own; returns the answer."""
        with self.connect(data) as connection:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            return answer(connection)

    def answers(self, path: str = '/') -> bool:
        """Whether a new client gets an answer; False when it cannot connect. A connection that is reset is an error."""
        try:
            connection = self.connect(request('GET', path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        with connection:
            assert answer(connection).status == 200
        return True

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return servers.children(self.process.pid)

    def wait_for_line(self, text: str) -> None:
        """Return when the log has a line with ``text``."""
        wait_until(lambda: text in self.log.read_text(), self.log.read_text)

    def stop(self) -> int:
        """Stop it, and return its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextlib.contextmanager
def running(
    directory: pathlib.Path,
    *arguments: str,
    environ: Mapping[str, str],
    unix: bool = False,
    command: Sequence[str] = (PROGRAM,),
) -> Iterator[Service]:
    """Run it in a directory, which gets its log, on a free port or a Unix socket.

    :param command: the program, and what comes before the arguments.
    """
    port, log, path = servers.free_port(), directory / 'placement-api.log', directory / 'api.sock'
    bind = f'unix:{path}' if unix else f'127.0.0.1:{port}'
    started = [*command, '--bind', bind, *arguments]
    with services.running(started, f'http://127.0.0.1:{port}', log, environ, uds=path if unix else None) as process:
        yield Service(process, str(path) if unix else ('127.0.0.1', port), log)
