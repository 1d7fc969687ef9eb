"""Processes that serve HTTP for the tests, above all ``placement-api``: started, watched, broken and stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import sqlalchemy as sa

from placement.conf.options import MICROVERSION_CHOICES
from tests.support import raw_http
from tests.support.waiting import wait_until

#: The directory of the commands of the service and of its clients.
BIN = pathlib.Path(sys.executable).parent
PROGRAM = str(BIN / 'placement-api')
#: Until the oldest supported OpenStack release is 2026.2: oslo.log 8.1 imports eventlet, which gives warnings.
IMPORTS_EVENTLET = tuple(map(int, metadata.version('oslo.log').split('.')[:2])) < (8, 2)
#: ``PYTHONWARNINGS`` for processes that must give no warning of ours.
STRICT_WARNINGS = 'error,ignore::DeprecationWarning' if IMPORTS_EVENTLET else 'error'
#: The longest wait for an answer or an end.
SECONDS = 60


class ServerError(Exception):
    """A server did not come up or did not stop; the message ends with its log."""


@dataclasses.dataclass
class Server:
    """One server with the processes that it has started."""

    process: subprocess.Popen[bytes]
    log: pathlib.Path
    url: str
    #: Empty when it was started without metrics.
    metrics_url: str = ''
    #: The path of the Unix socket on which it listens instead of the port of ``url``.
    socket_path: str | None = None

    def wait_until_ready(self) -> None:
        """Return when its URLs are answered. Raises ServerError."""

        def is_ready() -> bool:
            if self.process.poll() is not None:
                raise ServerError(f'{self.process.args!r} ended with {self.process.returncode}:\n{self.tail()}')
            if self.socket_path:
                return self.answers()
            return all(_answers(url) for url in (self.url, self.metrics_url) if url)

        wait_until(is_ready, self.tail)

    def connect(self, data: bytes = b'', receive_buffer: int | None = None) -> socket.socket:
        """A new connection that has sent ``data``.

        :param receive_buffer: the number of bytes that the kernel receives before they are read; None for its default.
        """
        connection = socket.socket(socket.AF_UNIX if self.socket_path else socket.AF_INET)
        connection.settimeout(SECONDS)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            connection.connect(self.socket_path or ('127.0.0.1', int(self.url.rpartition(':')[2])))
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
            return raw_http.answer(connection)

    def answers(self, path: str = '/') -> bool:
        """Whether a new client gets an answer; False when it cannot connect. A connection that is reset is an error."""
        try:
            connection = self.connect(raw_http.request('GET', path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        with connection:
            assert raw_http.answer(connection).status == 200
        return True

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return [pid for pid in children(self.process.pid) if 'exporter' not in _command_line(pid)]

    def exporter(self) -> int | None:
        """The process id of the exporter, None while it does not run."""
        return next((pid for pid in children(self.process.pid) if 'exporter' in _command_line(pid)), None)

    def wait_for_line(self, text: str) -> None:
        """Return when the log has a line with ``text``."""
        wait_until(lambda: text in self.log.read_text(), self.tail)

    def tail(self) -> str:
        """The last lines of the log."""
        return '\n'.join(self.log.read_text(errors='replace').splitlines()[-40:])

    def stop(self, *, any_status: bool = False) -> None:
        """Stop it. Raises ServerError if it has to be killed, or ends with an error that matters.

        The end of the log is printed, so pytest shows it if the test fails that stops the server.
        """
        print(self.tail())
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise ServerError(f'{self.process.args!r} did not stop within {SECONDS} s:\n{self.tail()}') from None
        finally:
            self.kill()
        if status and not any_status:
            raise ServerError(f'{self.process.args!r} ended with {status}:\n{self.tail()}')

    def kill(self) -> None:
        """End all its processes at once, also those that it has left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def clean_environ(**extra: str) -> dict[str, str]:
    """The variables of this process without any ``OS_*``, plus ``extra``. Without files of an installed service."""
    directory = 'OS_PLACEMENT_CONFIG_DIR'
    environ = {name: value for name, value in os.environ.items() if name == directory or not name.startswith('OS_')}
    return environ | extra


def settings(database_url: str | sa.URL, directory: pathlib.Path) -> dict[str, str]:
    """The variables with which the service uses a database, ``noauth2`` and every microversion.

    :param directory: may have a ``placement.conf``, whose other options apply.
    """
    if isinstance(database_url, sa.URL):
        database_url = database_url.render_as_string(hide_password=False)
    return {
        'OS_PLACEMENT_CONFIG_DIR': str(directory),
        'OS_PLACEMENT_DATABASE__CONNECTION': database_url,
        'OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP': 'true',
        'OS_API__AUTH_STRATEGY': 'noauth2',
        'OS_PLACEMENT__MAX_MICROVERSION': MICROVERSION_CHOICES[-1],
    }


def variables(**groups: Mapping[str, object]) -> dict[str, str]:
    """The variables of the environment for options of the service, by group."""
    pairs = [(f'OS_{group}__{name}', value) for group, options in groups.items() for name, value in options.items()]
    return {name.upper(): str(value) for name, value in pairs}


def start(
    command: Sequence[str], url: str, log: pathlib.Path, environ: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> Server:
    """Start any server; does not wait. It runs in the directory of its log, and inherits ``pass_fds``."""
    with log.open('ab') as output:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # So that its workers end with it.
            start_new_session=True,
            pass_fds=pass_fds,
        )
    return Server(process, log, url)


def start_api(
    directory: pathlib.Path,
    *arguments: str,
    environ: Mapping[str, str],
    unix: bool = False,
    command: Sequence[str] = (PROGRAM,),
) -> Server:
    """Start ``placement-api`` in a directory, which gets its log, on a free port or a Unix socket; does not wait.

    :param command: the program, and what comes before the arguments.
    """
    port, path = free_port(), str(directory / 'api.sock')
    address = f'127.0.0.1:{port}'
    bind = f'unix:{path}' if unix else address
    log = directory / f'placement-api-{port}.log'
    server = start([*command, '--bind', bind, *arguments], f'http://{address}', log, environ)
    return dataclasses.replace(server, socket_path=path if unix else None)


def launch(
    database_url: str | sa.URL,
    directory: pathlib.Path,
    *,
    workers: int = 2,
    threads: int = 8,
    metrics: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start ``placement-api`` on a database, with ``settings``; does not wait. ``directory`` keeps its log.

    :param environment: further variables.
    """
    metrics_bind = f'127.0.0.1:{free_port()}' if metrics else ''
    environ = clean_environ(**settings(database_url, directory))
    if metrics:
        environ['OS_METRICS__BIND'] = metrics_bind
    arguments = (f'--workers={workers}', f'--threads={threads}')
    server = start_api(directory, *arguments, environ=environ | dict(environment or {}))
    return dataclasses.replace(server, metrics_url=f'http://{metrics_bind}/metrics' if metrics else '')


@contextlib.contextmanager
def serving(database_url: str | sa.URL, directory: pathlib.Path, **options: Any) -> Iterator[Server]:
    """A ready server that ``launch`` started, stopped at the end. Its metrics take another process."""
    server = launch(database_url, directory, **options)
    with ready(server):
        yield server


@contextlib.contextmanager
def ready(*started: Server) -> Iterator[Server]:
    """Wait until all are ready, and return the first one; stop all of them at the end.

    Raises ServerError if one ends with an error.
    """
    with contextlib.ExitStack() as stack:
        for server in started:
            stack.callback(server.stop)
        for server in started:
            server.wait_until_ready()
        yield started[0]


@contextlib.contextmanager
def running(command: Sequence[str], url: str, log: pathlib.Path, environ: Mapping[str, str]) -> Iterator[Server]:
    """Run another server, ready, until the block ends. Its status does not matter then."""
    server = start(command, url, log, environ)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop(any_status=True)


def free_port() -> int:
    """A free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def children(pid: int) -> list[int]:
    """The process ids of the children of a process."""
    pids = []
    for status in pathlib.Path('/proc').glob('[0-9]*/stat'):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            # After the name of the program, which may have blanks: the state and the parent.
            if int(status.read_text().rpartition(')')[2].split()[1]) == pid:
                pids.append(int(status.parent.name))
    return sorted(pids)


def threads(pid: int) -> int:
    """The number of threads of a process; 0 once it has ended."""
    try:
        return len(list(pathlib.Path(f'/proc/{pid}/task').iterdir()))
    except OSError:
        return 0


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{pid}/cmdline').read_text()
    return ''


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return bool(answer.status == 200)
    return False
