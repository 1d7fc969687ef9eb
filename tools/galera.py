#!/usr/bin/env python3
"""Start, inspect, break and stop a MariaDB Galera cluster on loopback, for tests and for trying things out."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import pymysql
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

DEFAULT_DIRECTORY = pathlib.Path(tempfile.gettempdir()) / 'placement-galera'
PROVIDERS = ('/usr/lib/galera/libgalera_smm.so', '/usr/lib64/galera-4/libgalera_smm.so')
STATE_FILE = 'cluster.json'
START_TIMEOUT = 120.0

CONFIGURATION = """\
[mariadbd]
datadir={data}
socket={home}/mariadbd.sock
pid-file={home}/mariadbd.pid
log-error={home}/mariadbd.log
tmpdir={home}
bind-address=127.0.0.1
port={client_port}
skip-name-resolve
max_connections=200
performance_schema=OFF
character-set-server=utf8mb4
default-storage-engine=InnoDB
binlog_format=ROW
innodb_autoinc_lock_mode=2
# A committed transaction is on the other nodes; a node that dies gets it back from there.
innodb_flush_log_at_trx_commit=2
innodb_buffer_pool_size=64M
innodb_log_file_size=32M
wsrep_on=ON
wsrep_provider={provider}
wsrep_cluster_name=placement
wsrep_cluster_address=gcomm://{members}
wsrep_node_name=node{number}
wsrep_node_address=127.0.0.1:{group_port}
wsrep_slave_threads=2
wsrep_sst_method=rsync
wsrep_sst_receive_address=127.0.0.1:{sst_port}
wsrep_provider_options="gmcast.listen_addr=tcp://127.0.0.1:{group_port};ist.recv_addr=127.0.0.1:{ist_port};\
gcache.size=64M;evs.keepalive_period=PT0.5S;evs.inactive_check_period=PT0.25S;evs.suspect_timeout=PT{suspect}S;\
evs.inactive_timeout=PT{inactive}S;evs.install_timeout=PT{inactive}S"
"""


#: All nodes are on one machine, so a silent one is dead rather than far away.
SUSPECT_SECONDS = 2


class GaleraError(Exception):
    """The cluster cannot be started or changed; the message says why and where the log is."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One database server: its number (from 1), its directory and its four ports on 127.0.0.1."""

    number: int
    home: pathlib.Path
    client_port: int
    group_port: int
    ist_port: int
    sst_port: int

    @property
    def log(self) -> pathlib.Path:
        """The error log of this node's mariadbd."""
        return self.home / 'mariadbd.log'

    @property
    def configuration(self) -> pathlib.Path:
        """The option file that this node is started with."""
        return self.home / 'my.cnf'

    def url(self, database: str = '') -> str:
        """SQLAlchemy URL of ``database`` on this node."""
        return f'mysql+pymysql://root@127.0.0.1:{self.client_port}/{database}'

    def pid(self) -> int | None:
        """Process id of this node's server while it runs, else None."""
        try:
            pid = int((self.home / 'mariadbd.pid').read_text())
        except (OSError, ValueError):
            return None
        command = ['ps', '-ww', '-o', 'stat=,args=', '-p', str(pid)]
        listed = subprocess.run(command, check=False, capture_output=True, text=True)
        alive = str(self.configuration) in listed.stdout and not listed.stdout.lstrip().startswith('Z')
        return pid if alive else None

    def query(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement as root and return its rows. Raises pymysql.MySQLError."""
        connection = pymysql.connect(host='127.0.0.1', port=self.client_port, user='root', connect_timeout=2)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def status(self) -> dict[str, str]:
        """The wsrep status variables by name; empty when the node does not answer."""
        with contextlib.suppress(pymysql.MySQLError, OSError):
            return {str(name): str(value) for name, value in self.query("SHOW STATUS LIKE 'wsrep_%'")}
        return {}

    def is_ready(self) -> bool:
        """Whether the node accepts writes: it is a synced member of a primary component."""
        status = self.status()
        return status.get('wsrep_ready') == 'ON' and status.get('wsrep_local_state_comment') == 'Synced'


def _free_ports(count: int) -> list[int]:
    """A range of free ports, below the ports of outgoing connections."""
    for _ in range(100):
        first = random.randrange(14000, 30000, 20)
        wanted = list(range(first, first + count))
        if all(_is_free(port) for port in wanted):
            return wanted
    raise GaleraError('No free ports found between 14000 and 30000.')


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('127.0.0.1', port))
        except OSError:
            return False
    return True


def _provider() -> str:
    for path in PROVIDERS:
        if os.path.exists(path):
            return path
    raise GaleraError('The Galera library is missing. On Debian and Ubuntu: apt-get install galera-4')


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path='/usr/sbin:/usr/local/sbin')
    if found is None:
        raise GaleraError(f'{name} is missing. On Debian and Ubuntu: apt-get install mariadb-server galera-4 rsync')
    return found


def missing() -> str | None:
    """The reason why no cluster can be started on this machine, or None."""
    try:
        _provider()
        for name in ('mariadbd', 'mariadb-install-db', 'rsync'):
            _program(name)
    except GaleraError as error:
        return str(error)
    return None


class Cluster:
    """A Galera cluster whose data and state live in one directory.

    Every method that starts something waits until it is ready, and raises GaleraError when it does not become ready.
    """

    def __init__(self, directory: pathlib.Path, nodes: Sequence[Node]) -> None:
        self.directory = directory
        self.nodes = list(nodes)
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @classmethod
    def create(cls, directory: pathlib.Path, size: int = 3, suspect_seconds: int = SUSPECT_SECONDS) -> Cluster:
        """Create the files of ``size`` nodes in ``directory``, which must be empty. Starts nothing.

        :param suspect_seconds: the cluster removes a node that has been silent for so long.
        """
        if directory.exists() and any(directory.iterdir()):
            raise GaleraError(f'{directory} is not empty. Stop the cluster in it first, or choose another directory.')
        provider = _provider()
        ports = _free_ports(4 * size)
        nodes = [
            Node(number + 1, directory / f'node{number + 1}', *ports[4 * number : 4 * number + 4])
            for number in range(size)
        ]
        members = ','.join(f'127.0.0.1:{node.group_port}' for node in nodes)
        for node in nodes:
            node.home.mkdir(parents=True)
            values = {
                **dataclasses.asdict(node),
                'data': node.home / 'data',
                'provider': provider,
                'members': members,
                'suspect': suspect_seconds,
                'inactive': 3 * suspect_seconds,
            }
            node.configuration.write_text(CONFIGURATION.format(**values))
        described = [{**dataclasses.asdict(node), 'home': str(node.home)} for node in nodes]
        (directory / STATE_FILE).write_text(json.dumps(described, indent=2))
        if os.getuid() == 0:
            shutil.chown(directory, 'mysql')
            for node in nodes:
                shutil.chown(node.home, 'mysql')
        return cls(directory, nodes)

    @classmethod
    def load(cls, directory: pathlib.Path) -> Cluster:
        """The cluster that was created in ``directory``."""
        try:
            described = json.loads((directory / STATE_FILE).read_text())
        except (OSError, ValueError) as error:
            raise GaleraError(f'There is no cluster in {directory}: {error}') from error
        return cls(directory, [Node(**{**one, 'home': pathlib.Path(one['home'])}) for one in described])

    def node(self, number: int) -> Node:
        """The node with that number, counted from 1."""
        if not 1 <= number <= len(self.nodes):
            raise GaleraError(f'There is no node {number}; the cluster has nodes 1 to {len(self.nodes)}.')
        return self.nodes[number - 1]

    def start(self, progress: Callable[[str], None]) -> None:
        """Fill the first node's data directory, start it as a new cluster, and let the others join one by one.

        ``progress`` is called with a few words at the beginning of each step.
        """
        first = self.nodes[0]
        progress('creating the system tables')
        self._install(first)
        for node in self.nodes:
            progress(f'starting node {node.number}')
            self._launch(node, ['--wsrep-new-cluster'] if node is first else [])
        progress('waiting for the cluster')
        self._wait(first, lambda: first.status().get('wsrep_cluster_size') == str(len(self.nodes)))

    def kill(self, number: int) -> None:
        """End one node at once with SIGKILL, as a power cut would."""
        node = self.node(number)
        pid = node.pid()
        if pid is None:
            raise GaleraError(f'Node {number} does not run.')
        os.kill(pid, signal.SIGKILL)
        self._reap(node)

    def restart(self, number: int) -> None:
        """Bring a node that is down back into the cluster; it fetches what it missed from the others."""
        node = self.node(number)
        if node.pid() is not None:
            raise GaleraError(f'Node {number} runs already.')
        if not any(other.is_ready() for other in self.nodes):
            raise GaleraError(
                'No node of the cluster is ready, so there is nothing to join. Stop it and start it again.'
            )
        self._launch(node, self._recovered_position(node))

    def stop(self) -> None:
        """End every node and delete the directory."""
        for node in self.nodes:
            pid = node.pid()
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
        for node in self.nodes:
            self._end(node)
        shutil.rmtree(self.directory)

    def _end(self, node: Node) -> None:
        """Wait for a node that was asked to stop, and kill it when it does not."""
        deadline = time.monotonic() + 20
        while (pid := self._running(node)) is not None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        self._reap(node)

    def _running(self, node: Node) -> int | None:
        child = self._children.get(node.number)
        if child is not None:
            return child.pid if child.poll() is None else None
        return node.pid()

    def _reap(self, node: Node) -> None:
        child = self._children.pop(node.number, None)
        if child is not None:
            child.wait()

    def _install(self, node: Node) -> None:
        command = [
            _program('mariadb-install-db'),
            f'--defaults-file={node.configuration}',
            '--auth-root-authentication-method=normal',
            '--skip-test-db',
            *_user(),
        ]
        done = subprocess.run([*command, '--wsrep-on=OFF'], check=False, capture_output=True, text=True)
        if done.returncode:
            raise GaleraError(f'mariadb-install-db failed: {done.stderr or done.stdout}')

    def _launch(self, node: Node, options: Sequence[str]) -> None:
        command = [_program('mariadbd'), f'--defaults-file={node.configuration}', *_user(), *options]
        (node.home / 'data').mkdir(exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(node.home / 'data', 'mysql')
        # A session of its own, so that Ctrl-C in the terminal does not end the cluster.
        self._children[node.number] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait(node, node.is_ready)

    def _wait(self, node: Node, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            if self._running(node) is None:
                self._reap(node)
                raise GaleraError(f'Node {node.number} ended. The last lines of {node.log}:\n{_tail(node.log)}')
            if time.monotonic() > deadline:
                raise GaleraError(
                    f'Node {node.number} was not ready after {START_TIMEOUT:.0f} s. '
                    f'The last lines of {node.log}:\n{_tail(node.log)}'
                )
            time.sleep(0.2)

    def _recovered_position(self, node: Node) -> list[str]:
        """The last transaction of a crashed node, as InnoDB recovers it. With it the node needs no full copy."""
        log = node.home / 'recover.log'
        command = [_program('mariadbd'), f'--defaults-file={node.configuration}', *_user(), '--wsrep-recover']
        subprocess.run([*command, f'--log-error={log}'], check=False, capture_output=True, timeout=START_TIMEOUT)
        found = re.findall(r'Recovered position:\s*(\S+)', log.read_text() if log.exists() else '')
        return [f'--wsrep-start-position={found[-1]}'] if found else []


def _user() -> list[str]:
    return ['--user=mysql'] if os.getuid() == 0 else []


def _tail(log: pathlib.Path, lines: int = 15) -> str:
    try:
        return '\n'.join(log.read_text(errors='replace').splitlines()[-lines:])
    except OSError as error:
        return f'(no log: {error})'


@contextlib.contextmanager
def running(size: int = 3, suspect_seconds: int = SUSPECT_SECONDS) -> Iterator[Cluster]:
    """A started cluster in a new temporary directory, stopped and deleted at the end."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix='placement-galera-'))
    cluster = Cluster.create(directory, size, suspect_seconds)
    try:
        cluster.start(logging.getLogger(__name__).info)
        yield cluster
    finally:
        cluster.stop()


# The command -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal after two seconds. Yields the function to call at the beginning of each step."""
    columns = (TextColumn('{task.description}'), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, transient=True, disable=not sys.stdout.isatty())
    task = bar.add_task('', total=total)
    started = time.monotonic()

    def step(description: str) -> None:
        bar.update(task, advance=1, description=description)
        if time.monotonic() - started > 2:
            bar.start()

    try:
        yield step
    finally:
        bar.stop()


def _start(arguments: argparse.Namespace) -> None:
    cluster = Cluster.create(arguments.directory, arguments.nodes)
    try:
        with _progress(arguments.nodes + 2) as progress:
            cluster.start(progress)
    except BaseException:
        cluster.stop()
        raise
    _status(arguments)


def _status(arguments: argparse.Namespace) -> None:
    cluster = Cluster.load(arguments.directory)
    for node in cluster.nodes:
        status = node.status()
        state = status.get('wsrep_local_state_comment', 'starting') if node.pid() else 'down'
        size = status.get('wsrep_cluster_size', '-')
        print(f'node {node.number}  {state:<12} cluster size {size}  {node.url()}')
    if not all(node.is_ready() for node in cluster.nodes):
        raise GaleraError('Not every node is ready.')


def _stop(arguments: argparse.Namespace) -> None:
    Cluster.load(arguments.directory).stop()
    print(f'Stopped; {arguments.directory} is deleted.')


def _kill_node(arguments: argparse.Namespace) -> None:
    Cluster.load(arguments.directory).kill(arguments.node)
    print(f'Node {arguments.node} is killed.')


def _restart_node(arguments: argparse.Namespace) -> None:
    Cluster.load(arguments.directory).restart(arguments.node)
    print(f'Node {arguments.node} is back.')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='tools/galera.py', description=__doc__)
    parser.add_argument('--directory', type=pathlib.Path, default=DEFAULT_DIRECTORY, help='default: %(default)s')
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    start = commands.add_parser('start', help='create and start a cluster')
    start.add_argument('--nodes', type=int, default=3, help='how many nodes (default: %(default)s)')
    start.set_defaults(run=_start)
    commands.add_parser('status', help='list the nodes and their URLs').set_defaults(run=_status)
    commands.add_parser('stop', help='stop every node and delete the data').set_defaults(run=_stop)
    for name, run, text in (
        ('kill-node', _kill_node, 'end one node with SIGKILL'),
        ('restart-node', _restart_node, 'bring a node back into the cluster'),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument('node', type=int, help='number of the node, from 1')
        command.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 with a message on standard error."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except GaleraError as error:
        print(f'galera: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
