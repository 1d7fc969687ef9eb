"""A cluster of database servers on loopback, for tests, and for trying things out at a Python prompt."""

from __future__ import annotations

import abc
import code
import contextlib
import dataclasses
import logging
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import pymysql

LOG = logging.getLogger(__name__)
START_TIMEOUT_SECONDS = 120.0
#: The account that runs the servers, which do not run as root.
ACCOUNT = 'mysql' if os.getuid() == 0 else None
#: What every server gets. A transaction survives the end of the process, not the end of the machine.
OPTIONS = {
    'bind-address': '127.0.0.1',
    'max-connections': '300',
    'innodb-buffer-pool-size': '64M',
    'innodb-flush-log-at-trx-commit': '2',
}
#: The number of nodes, and of the ports of each: for clients, for the other nodes, and two to receive what it missed.
_NODES, _PORTS = 3, 4


class ClusterError(Exception):
    """The servers cannot be started or changed; the message says why."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One database server: its number (from 1), its directory, and its ports on 127.0.0.1."""

    number: int
    home: pathlib.Path
    ports: range

    @property
    def option_file(self) -> pathlib.Path:
        """The option file that this server is started with."""
        return self.home / 'my.cnf'

    def url(self, database: str = '') -> str:
        """Return the SQLAlchemy URL of ``database`` on this server."""
        return f'mysql+pymysql://root@127.0.0.1:{self.ports[0]}/{database}'

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement as root and return its rows.

        :raises pymysql.MySQLError: it fails.
        """
        connection = pymysql.connect(host='127.0.0.1', port=self.ports[0], user='root', connect_timeout=2)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def value(self, query: str) -> Any:
        """Return the first value of a query; None if it has no row, or the server does not answer."""
        with contextlib.suppress(pymysql.MySQLError, OSError):
            return next((row[0] for row in self.query(query)), None)


class Cluster(abc.ABC):
    """Three servers whose data are in ``directory``. What starts a server waits until it is ready.

    :param suspect_seconds: Galera removes a node that has been silent for this time.
    """

    #: Queries for a value if the server is a full member, and for a few words for a person.
    ready_query: ClassVar[str]
    state_query: ClassVar[str]

    def __init__(self, directory: pathlib.Path, suspect_seconds: int) -> None:
        self.suspect_seconds = suspect_seconds
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        first = _free_ports(_NODES * _PORTS)
        ports = [range(port, port + _PORTS) for port in range(first, first + _NODES * _PORTS, _PORTS)]
        self.nodes = [Node(number, directory / f'node{number}', of_node) for number, of_node in enumerate(ports, 1)]
        for node in self.nodes:
            (node.home / 'data').mkdir(parents=True)
            files = {'datadir': 'data', 'socket': 'server.sock', 'log-error': 'server.log'}
            options = {name: str(node.home / file) for name, file in files.items()}
            options |= {'tmpdir': str(node.home), 'port': str(node.ports[0])}
            options |= OPTIONS | self.options(node)
            node.option_file.write_text('\n'.join(['[mysqld]', *map('='.join, options.items()), '']))
        give_to_account(directory)

    @classmethod
    @contextlib.contextmanager
    def running(cls, suspect_seconds: int = 2) -> Iterator[Self]:
        """Start the servers in a new temporary directory; stop and delete them at the end.

        :raises ClusterError: they cannot be started.
        """
        if reason := cls.missing():
            raise ClusterError(reason)
        with tempfile.TemporaryDirectory(prefix='placement-cluster-') as directory:
            cluster = cls(pathlib.Path(directory), suspect_seconds)
            try:
                cluster.start()
                yield cluster
            finally:
                for node in cluster.nodes:
                    cluster.kill(node.number)

    @classmethod
    @abc.abstractmethod
    def missing(cls) -> str | None:
        """Return the reason why no cluster can be started on this machine, or None."""

    @abc.abstractmethod
    def program(self) -> list[str]:
        """Return the command that runs a server in the foreground, without options."""

    @abc.abstractmethod
    def options(self, node: Node) -> dict[str, str]:
        """Return the options of a server that other kinds of clusters do not have."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start all servers for the first time."""

    @abc.abstractmethod
    def join(self, node: Node) -> None:
        """Start a server that was a member before, and bring it back into the cluster."""

    def is_ready(self, node: Node) -> bool:
        """Return whether the server is a full member of the cluster."""
        return node.value(self.ready_query) is not None

    def node(self, number: int) -> Node:
        """Return the server with that number, counted from 1."""
        return self.nodes[number - 1]

    def kill(self, number: int) -> None:
        """End one server with SIGKILL, and the programs that it runs, as a power cut would."""
        if process := self._processes.pop(number, None):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def restart(self, number: int) -> None:
        """Bring a server that was killed back into the cluster; it fetches what it missed from the others."""
        self.join(self.node(number))

    def print_status(self) -> None:
        """Print a line for each node."""
        for node in self.nodes:
            state = (node.value(self.state_query) or 'starting') if node.number in self._processes else 'down'
            print(f'node {node.number}  {state:<30} {node.url()}')

    def launch(self, node: Node, *options: str, until: Callable[[Node], bool]) -> None:
        """Start one server, and wait until the condition is true."""
        LOG.info('starting node %d', node.number)
        # A session of its own, so that Ctrl-C in the terminal does not end the server.
        self._processes[node.number] = subprocess.Popen(
            [*self.program(), f'--defaults-file={node.option_file}', *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=ACCOUNT,
        )
        self.wait(node, until)

    def wait(self, node: Node, until: Callable[[Node], bool]) -> None:
        """Wait until a condition is true of a server that was launched."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not until(node):
            if self._processes[node.number].poll() is not None or time.monotonic() > deadline:
                log = node.home / 'server.log'
                text = log.read_text(errors='replace') if log.exists() else ''
                raise ClusterError(f'Node {node.number} has ended, or is not ready in time. Its log:\n{text[-2000:]}')
            time.sleep(0.2)


def give_to_account(directory: pathlib.Path) -> None:
    """Make the account of the servers the owner of a directory and of all that is in it."""
    if ACCOUNT:
        for path in (directory, *directory.rglob('*')):
            shutil.chown(path, ACCOUNT)


def run(*command: str, user: str | None = None) -> str:
    """Run a program and return its output.

    :raises ClusterError: it cannot be run or fails.
    """
    try:
        process = subprocess.run(command, check=False, capture_output=True, text=True, user=user, cwd='/')
    except OSError as error:
        raise ClusterError(f'{command[0]}: {error}') from error
    if process.returncode:
        raise ClusterError(f'{command[0]} failed: {process.stderr or process.stdout}')
    return process.stdout


def _free_ports(count: int) -> int:
    """Return the first of ``count`` free ports in a row, below the ports of outgoing connections."""
    for _ in range(100):
        first = random.randrange(14000, 30000, 20)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(('127.0.0.1', port)))
            return first
    raise ClusterError('No free ports found between 14000 and 30000.')


def try_out(cls: type[Cluster]) -> None:
    """Start a cluster, and open a Python prompt that can change it. The cluster ends with the prompt."""
    logging.basicConfig(level=logging.INFO, format='%(message)s')
    with cls.running() as cluster:
        cluster.print_status()
        banner = 'Try: cluster.kill(2), cluster.restart(2), cluster.print_status(). Ctrl-D stops the cluster.'
        code.interact(banner, local={'cluster': cluster}, exitmsg='')
