"""A cluster of database servers on loopback whose data and state live in one directory, and its command line."""

from __future__ import annotations

import abc
import argparse
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
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import pymysql

LOG = logging.getLogger(__name__)
START_TIMEOUT_SECONDS = 120.0
#: The account that runs the servers, which do not run as root.
ACCOUNT = 'mysql' if os.getuid() == 0 else None
#: The number of nodes, and of the ports of each: for clients, for the other nodes, and two to receive what it missed.
_NODES, _PORTS = 3, 4
_STATE_FILE = 'first-port'


class ClusterError(Exception):
    """The servers cannot be started or changed; the message says why and where the log is."""


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

    def pid(self) -> int | None:
        """Return the process id of this server while it runs."""
        try:
            pid = int((self.home / 'server.pid').read_text())
            command = pathlib.Path(f'/proc/{pid}/cmdline').read_text()
        except (OSError, ValueError):
            return None
        return pid if str(self.option_file) in command else None

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
    """Servers whose data and state live in one directory. What starts a server waits until it is ready.

    :raises ClusterError: there is no cluster in ``directory``. All methods raise it if they fail.
    """

    #: The name of the script; queries for a value if the server is a full member, and for a few words for a person.
    name: ClassVar[str]
    ready_query: ClassVar[str]
    state_query: ClassVar[str]

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        try:
            first = int((directory / _STATE_FILE).read_text())
        except (OSError, ValueError) as error:
            raise ClusterError(f'There is no cluster in {directory}: {error}') from error
        ports = [range(port, port + _PORTS) for port in range(first, first + _NODES * _PORTS, _PORTS)]
        self.nodes = [Node(number, directory / f'node{number}', of_node) for number, of_node in enumerate(ports, 1)]

    @classmethod
    def create(cls, directory: pathlib.Path, **choices: Any) -> Self:
        """Create the files of the servers in ``directory``, which must be empty. Starts nothing."""
        if directory.exists() and any(directory.iterdir()):
            raise ClusterError(f'{directory} is not empty. Stop the cluster in it first, or choose another directory.')
        if reason := cls.missing():
            raise ClusterError(reason)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _STATE_FILE).write_text(str(_free_ports(_NODES * _PORTS)))
        cluster = cls(directory)
        for node in cluster.nodes:
            (node.home / 'data').mkdir(parents=True)
            files = {'datadir': 'data', 'socket': 'server.sock', 'pid-file': 'server.pid', 'log-error': 'server.log'}
            options = {name: str(node.home / file) for name, file in files.items()}
            options |= {'tmpdir': str(node.home), 'bind-address': '127.0.0.1', 'port': str(node.ports[0])}
            options |= cluster.options(node, **choices)
            node.option_file.write_text('\n'.join(['[mysqld]', *map('='.join, options.items()), '']))
        give_to_account(directory, *directory.rglob('*'))
        return cluster

    @classmethod
    @contextlib.contextmanager
    def running(cls, **choices: Any) -> Iterator[Self]:
        """Start the servers in a new temporary directory; stop and delete them at the end."""
        cluster = cls.create(pathlib.Path(tempfile.mkdtemp(prefix=f'placement-{cls.name}-')), **choices)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()

    @classmethod
    @abc.abstractmethod
    def missing(cls) -> str | None:
        """Return the reason why no cluster can be started on this machine, or None."""

    @abc.abstractmethod
    def program(self) -> list[str]:
        """Return the command that runs a server in the foreground, without options."""

    @abc.abstractmethod
    def options(self, node: Node, **choices: Any) -> dict[str, str]:
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
        if not 1 <= number <= len(self.nodes):
            raise ClusterError(f'There is no node {number}; the cluster has nodes 1 to {len(self.nodes)}.')
        return self.nodes[number - 1]

    def kill(self, number: int) -> None:
        """End one server with SIGKILL, and the programs that it runs, as a power cut would."""
        node = self.node(number)
        child = self._children.pop(number, None)
        pid = child.pid if child is not None and child.poll() is None else node.pid()
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)
        if child is not None:
            child.wait()
        while node.pid() is not None:
            time.sleep(0.05)

    def restart(self, number: int) -> None:
        """Bring a server that is down back into the cluster; it fetches what it missed from the others."""
        node = self.node(number)
        if node.pid() is not None:
            raise ClusterError(f'Node {number} runs already.')
        if not any(map(self.is_ready, self.nodes)):
            raise ClusterError('No node is ready, so there is nothing to join. Stop the cluster and start it again.')
        self.join(node)

    def print_status(self) -> None:
        """Print a line for each node. Fails if not all are ready."""
        for node in self.nodes:
            state = (node.value(self.state_query) or 'starting') if node.pid() else 'down'
            print(f'node {node.number}  {state:<30} {node.url()}')
        if not all(map(self.is_ready, self.nodes)):
            raise ClusterError('Not every node is ready.')

    def stop(self) -> None:
        """End every server and delete the directory."""
        for node in self.nodes:
            self.kill(node.number)
        shutil.rmtree(self.directory)

    def launch(self, node: Node, *options: str, until: Callable[[Node], bool]) -> None:
        """Start one server, and wait until the condition is true."""
        # A session of its own, so that Ctrl-C in the terminal does not end the cluster.
        self._children[node.number] = subprocess.Popen(
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
            if self._children[node.number].poll() is not None or time.monotonic() > deadline:
                log = node.home / 'server.log'
                text = log.read_text(errors='replace') if log.exists() else ''
                raise ClusterError(f'Node {node.number} has ended, or is not ready in time. {log}:\n{text[-2000:]}')
            time.sleep(0.2)


def give_to_account(*paths: pathlib.Path) -> None:
    """Make the account of the servers the owner of files and directories."""
    for path in paths:
        if ACCOUNT:
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


def main(
    cls: type[Cluster],
    description: str | None,
    argv: Sequence[str] | None = None,
    switch_primary: Callable[[Any, int], None] | None = None,
    install: Callable[[], None] | None = None,
) -> int:
    """Run the command line of a kind of cluster. Return the exit status: 0, or 1 with a message on standard error."""
    logging.basicConfig(level=logging.INFO, format='%(message)s')
    of_nodes: dict[str, Callable[[Any, int], None]] = {'kill-node': cls.kill, 'restart-node': cls.restart}
    if switch_primary:
        of_nodes['switch-primary'] = switch_primary
    parser = argparse.ArgumentParser(prog=f'tools/{cls.name}.py', description=description)
    default = pathlib.Path(tempfile.gettempdir()) / f'placement-{cls.name}'
    parser.add_argument('command', choices=['start', 'status', 'stop', *(['install'] if install else []), *of_nodes])
    parser.add_argument('node', type=int, nargs='?', help=f'number of the node, from 1: {", ".join(of_nodes)}')
    parser.add_argument('--directory', type=pathlib.Path, default=default, help='default: %(default)s')
    arguments = parser.parse_args(argv)
    command, directory = arguments.command, arguments.directory
    if (arguments.node is not None) != (command in of_nodes):
        parser.error(f'only these commands have a node: {", ".join(of_nodes)}')
    try:
        if command == 'install' and install:
            install()
        elif command == 'start':
            cluster = cls.create(directory)
            try:
                cluster.start()
            except BaseException:
                cluster.stop()
                raise
            cluster.print_status()
        elif command == 'status':
            cls(directory).print_status()
        elif command == 'stop':
            cls(directory).stop()
        else:
            of_nodes[command](cls(directory), arguments.node)
    except ClusterError as error:
        print(f'{parser.prog}: {error}', file=sys.stderr)
        return 1
    return 0
