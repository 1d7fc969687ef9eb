"""Database servers on loopback, alone or as a cluster: for tests, and for trying things out at a Python prompt."""

from __future__ import annotations

import abc
import code
import contextlib
import os
import pathlib
import pwd
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

START_TIMEOUT_SECONDS = 120.0
#: What every server gets. A transaction survives the end of the process, not the end of the machine.
OPTIONS = {
    'bind-address': '127.0.0.1',
    'max-connections': '300',
    'innodb-buffer-pool-size': '64M',
    'innodb-flush-log-at-trx-commit': '2',
}
#: The end of a URL without TLS. Otherwise PyMySQL 1.2 reads all certificates of the system for each connection, which
#: takes 20 ms, before it asks whether the server has TLS.
WITHOUT_TLS = 'ssl_disabled=true'
#: The number of nodes, and of the ports of each: for clients, for the other nodes, and two to receive what it missed.
_NODES, _PORTS = 3, 4


class ServerError(Exception):
    """A server cannot be started or changed; the message says why."""


class Server:
    """A database server in the directory ``home``, which can be started and killed repeatedly."""

    #: The account that runs it. As root it does not start.
    account = 'mysql' if os.getuid() == 0 else None

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.data = home / 'data'
        self.log = home / 'server.log'
        self.process: subprocess.Popen[bytes] | None = None

    def files(self) -> dict[str, Any]:
        """Return the options of MariaDB or MySQL that name files. It deletes what it finds in its ``tmpdir``."""
        return {'datadir': self.data, 'socket': self.home / 'server.sock', 'tmpdir': self.home}

    def launch(self, command: Sequence[str], until: Callable[[], bool]) -> None:
        """Start the process, and wait until the condition is true."""
        with self.log.open('ab') as log:
            # A session of its own, so that Ctrl-C in the terminal does not end the server.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, user=self.account
            )
        self.wait(until)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until a condition is true of the server, which runs.

        :raises ServerError: it has ended, or the condition is not true in time.
        """
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        # If its port was taken meanwhile, it ends, and another server answers.
        while not self.is_running() or not until():
            if not self.is_running() or time.monotonic() > deadline:
                text = self.log.read_text(errors='replace')
                raise ServerError(f'{self.home} has ended, or is not ready in time. Its log:\n{text[-3000:]}')
            time.sleep(0.05)

    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End it with SIGKILL, and the programs of its session, as a power cut would."""
        if self.process is not None:
            if self.is_running():
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Node(Server):
    """A server of a cluster: its number (from 1), its directory, and its ports on 127.0.0.1."""

    def __init__(self, number: int, home: pathlib.Path, ports: range) -> None:
        super().__init__(home)
        self.number = number
        self.ports = ports

    @property
    def option_file(self) -> pathlib.Path:
        """The option file that this server is started with."""
        return self.home / 'my.cnf'

    def url(self, database: str = '') -> str:
        """Return the SQLAlchemy URL of ``database`` on this server."""
        return f'mysql+pymysql://root@127.0.0.1:{self.ports[0]}/{database}?{WITHOUT_TLS}'

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement as root and return its rows.

        :raises pymysql.MySQLError: it fails.
        """
        import pymysql

        address = {'host': '127.0.0.1', 'port': self.ports[0], 'user': 'root'}
        connection = pymysql.connect(**address, connect_timeout=2, ssl_disabled=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def value(self, query: str) -> Any:
        """Return the first value of a query; None if it has no row, or the server does not answer."""
        import pymysql

        with contextlib.suppress(pymysql.MySQLError, OSError):
            return next((row[0] for row in self.query(query)), None)


class Cluster(abc.ABC):
    """Three servers whose data are in ``directory``. What starts a server waits until it is ready.

    :param suspect_seconds: Galera removes a node that has been silent for this time.
    """

    #: A query that has a row if the server is a full member.
    ready_query: ClassVar[str]

    def __init__(self, directory: pathlib.Path, suspect_seconds: int) -> None:
        self.suspect_seconds = suspect_seconds
        first = _free_ports(_NODES * _PORTS)
        ports = [range(port, port + _PORTS) for port in range(first, first + _NODES * _PORTS, _PORTS)]
        self.nodes = [Node(number, directory / f'node{number}', of_node) for number, of_node in enumerate(ports, 1)]
        directory.chmod(0o755)
        for node in self.nodes:
            node.data.mkdir(parents=True)
            options = node.files() | {'port': node.ports[0]} | OPTIONS | self.options(node)
            lines = [f'{name}={value}' for name, value in options.items()]
            node.option_file.write_text('\n'.join(['[mysqld]', *lines, '']))
            give_to(node.account, node.home)

    @classmethod
    @contextlib.contextmanager
    def running(cls, suspect_seconds: int = 2) -> Iterator[Self]:
        """Start the servers in a new temporary directory; stop and delete them at the end.

        :raises ServerError: they cannot be started.
        """
        if reason := cls.missing():
            raise ServerError(reason)
        with tempfile.TemporaryDirectory(prefix='placement-cluster-') as directory:
            cluster = cls(pathlib.Path(directory), suspect_seconds)
            try:
                cluster.start()
                yield cluster
            finally:
                for node in cluster.nodes:
                    node.kill()

    @classmethod
    @abc.abstractmethod
    def missing(cls) -> str | None:
        """Return the reason why no cluster can be started on this machine, or None."""

    @abc.abstractmethod
    def program(self) -> list[str]:
        """Return the command that runs a server in the foreground, without options."""

    @abc.abstractmethod
    def options(self, node: Node) -> dict[str, Any]:
        """Return the options of a server that other kinds of clusters do not have."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start all servers for the first time."""

    @abc.abstractmethod
    def join(self, node: Node) -> None:
        """Start a server that was a member before. It fetches what it missed from the others."""

    def is_ready(self, node: Node) -> bool:
        """Return whether the server is a full member of the cluster."""
        return node.value(self.ready_query) is not None

    def print_status(self) -> None:
        """Print a line for each node."""
        for node in self.nodes:
            state = 'ready' if self.is_ready(node) else 'not ready' if node.is_running() else 'down'
            print(f'node {node.number}  {state:<10} {node.url()}')

    def launch(self, node: Node, *options: str, until: Callable[[Node], bool]) -> None:
        """Start one server, and wait until the condition is true."""
        node.launch([*self.command(node), *options], lambda: until(node))

    def command(self, node: Node) -> list[str]:
        """Return the command that runs a server in the foreground."""
        return [*self.program(), f'--defaults-file={node.option_file}']


def give_to(account: str | None, directory: pathlib.Path) -> None:
    """Make an account the owner of a directory and of all that is in it, unless it is None."""
    if account:
        owner = pwd.getpwnam(account).pw_uid
        for path in (directory, *directory.rglob('*')):
            # A link may lead out of the directory: dev/stdin of an installation leads to /dev/null of this machine.
            os.chown(path, owner, -1, follow_symlinks=False)


def run(*command: str, user: str | None = None) -> str:
    """Run a program and return its output.

    :raises ServerError: it cannot be run or fails.
    """
    try:
        process = subprocess.run(command, check=False, capture_output=True, text=True, user=user, cwd='/')
    except OSError as error:
        raise ServerError(f'{command[0]}: {error}') from error
    if process.returncode:
        raise ServerError(f'{command[0]} failed: {process.stderr or process.stdout}')
    return process.stdout


def _free_ports(count: int) -> int:
    """Return the first of ``count`` free ports in a row, below the ports of outgoing connections."""
    for _ in range(100):
        first = random.randrange(14000, 30000, 20)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(('127.0.0.1', port)))
            return first
    raise ServerError('No free ports found between 14000 and 30000.')


def try_out(cls: type[Cluster]) -> None:
    """Start a cluster, and open a Python prompt that can change it. The cluster ends with the prompt."""
    with cls.running() as cluster:
        cluster.print_status()
        banner = 'Try: node2.kill(), cluster.join(node2), cluster.print_status(). Ctrl-D stops the cluster.'
        local = {'cluster': cluster} | {f'node{node.number}': node for node in cluster.nodes}
        code.interact(banner, local=local, exitmsg='')
