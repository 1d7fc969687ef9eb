"""Database servers that a test may stop: started for one test, on loopback, with data in a temporary directory."""

from __future__ import annotations

import abc
import contextlib
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support import databases, servers
from tools import mysql, nodes


class PrivateServer(nodes.Server, abc.ABC):
    """A database server in ``home``.

    When ``home`` has a directory ``tls`` with ``ca.pem``, ``server.pem`` and ``server.key``, it rejects connections
    without TLS.

    :param primary: the server that this one replicates, on PostgreSQL.
    """

    name: str
    #: The administrator's URL, but for the port.
    address: str
    #: The signal that ends it at once, without clean-up.
    crash_signal: signal.Signals

    def __init__(self, home: pathlib.Path, primary: PrivateServer | None = None) -> None:
        super().__init__(home)
        self.primary = primary
        self.tls = home / 'tls'
        self.port = servers.free_port()

    @property
    def url(self) -> sa.URL:
        """The administrator's URL."""
        return sa.make_url(f'{self.address.format(self.port)}?{self.parameters()}')

    @abc.abstractmethod
    def parameters(self) -> str:
        """The end of the URL, for a connection with TLS if the server has certificates."""

    @abc.abstractmethod
    def initialize(self) -> None:
        """Fill the data directory."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self.is_running():
            self.wait(self._answers)
        else:
            self.launch(self.command(), self._answers)

    def crash(self, crash_signal: signal.Signals | None = None) -> None:
        """End it at once, or as ``crash_signal`` does; connections break, nothing is flushed."""
        assert self.process is not None
        # A server that has only just been started may lose the signal.
        for signal_ in (*[crash_signal or self.crash_signal] * 5, signal.SIGKILL):
            self.process.send_signal(signal_)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
                return

    def kill(self) -> None:
        if self.is_running():
            # PostgreSQL would leave shared memory behind after SIGKILL, and processes that are in other sessions.
            self.crash()

    def _answers(self) -> bool:
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with contextlib.suppress(sa.exc.OperationalError), engine.connect():
            return True
        return False


class PostgreSQL(PrivateServer):
    """PostgreSQL; as the superuser postgres without a password."""

    name = 'postgresql'
    account = 'postgres' if os.getuid() == 0 else None
    address = 'postgresql+psycopg://postgres@127.0.0.1:{}/postgres'
    #: Immediate shutdown: all its processes end, and the next start recovers.
    crash_signal = signal.SIGQUIT

    def parameters(self) -> str:
        return 'sslmode=require' if self.tls.exists() else ''

    def initialize(self) -> None:
        if self.primary is not None:
            source = f'host=127.0.0.1 port={self.primary.port} user=postgres'
            copy = ['--pgdata', str(self.data), '--checkpoint=fast', '--no-sync', '--write-recovery-conf']
            nodes.run(_find('pg_basebackup'), '--dbname', source, *copy, user=self.account)
            return
        options = ['-D', str(self.data), '-U', 'postgres', '-A', 'trust', '--no-sync']
        nodes.run(_find('initdb'), *options, user=self.account)
        if self.tls.exists():
            (self.data / 'pg_hba.conf').write_text(
                'hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n'
            )

    def command(self) -> list[str]:
        options = ['-c', f'unix_socket_directories={self.home}', '-c', 'listen_addresses=127.0.0.1']
        if self.tls.exists():
            files = [f'ssl_cert_file={self.tls}/server.pem', '-c', f'ssl_key_file={self.tls}/server.key']
            options += ['-c', 'ssl=on', '-c', *files]
        return [_find('postgres'), '-D', str(self.data), '-p', str(self.port), *options]


class MariaDB(PrivateServer):
    """MariaDB; as root without a password."""

    name = 'mariadb'
    address = 'mysql+pymysql://root@127.0.0.1:{}/'
    #: Like a power cut.
    crash_signal = signal.SIGKILL

    def parameters(self) -> str:
        return f'ssl_ca={self.tls}/ca.pem&ssl_check_hostname=false' if self.tls.exists() else nodes.WITHOUT_TLS

    def initialize(self) -> None:
        options = ['--no-defaults', f'--datadir={self.data}', f'--tmpdir={self.home}']
        options += ['--auth-root-authentication-method=normal', '--skip-test-db']
        nodes.run(_find('mariadb-install-db'), *options, user=self.account)

    def command(self) -> list[str]:
        return [_find('mariadbd'), '--no-defaults', *(f'--{name}={value}' for name, value in self.options().items())]

    def options(self) -> dict[str, Any]:
        """The options of this server."""
        options = self.files() | {'port': self.port} | nodes.OPTIONS
        if self.tls.exists():
            files = {'ssl-ca': 'ca.pem', 'ssl-cert': 'server.pem', 'ssl-key': 'server.key'}
            options |= {name: self.tls / file for name, file in files.items()} | {'require-secure-transport': 'ON'}
        return options


class MySQL(MariaDB):
    """MySQL, which ``tools.mysql`` has installed, in the place of MariaDB."""

    def initialize(self) -> None:
        mysql.create_data(self.data)

    def command(self) -> list[str]:
        return mysql.program({**self.options(), **mysql.OPTIONS})


def _kind(name: str) -> type[PrivateServer]:
    if name == 'postgresql':
        return PostgreSQL
    return MySQL if databases.on_mysql() else MariaDB


def replace_mariadb_by_mysql() -> Callable[[], None]:
    """Start a MySQL server and let the tests of MariaDB run on it; returns what ends it.

    :raises pytest.UsageError: MySQL is not installed.
    """
    if reason := mysql.Cluster.missing():
        raise pytest.UsageError(f'mysql: {reason}')
    os.environ[databases.ON_MYSQL] = '1'
    stack = contextlib.ExitStack()
    server = stack.enter_context(running('mariadb'))
    os.environ['PLACEMENT_TEST_MARIADB_URL'] = server.url.render_as_string(hide_password=False)
    return stack.close


@contextlib.contextmanager
def running(
    name: str, certificates: pathlib.Path | None = None, primary: PrivateServer | None = None
) -> Iterator[PrivateServer]:
    """A started server of that kind, ended and deleted at the end.

    :param primary: the server that it replicates.
    :param certificates: a directory with ``ca.pem``, ``server.pem`` and ``server.key``, for a server that asks for TLS.
    """
    kind = _kind(name)
    # The account of the server must be able to enter it, which it is not for directories of pytest.
    with tempfile.TemporaryDirectory(prefix=f'placement-{name}-') as directory, contextlib.ExitStack() as stack:
        server = kind(pathlib.Path(directory), primary)
        stack.callback(server.kill)
        if certificates is not None:
            shutil.copytree(certificates, server.tls)
        nodes.give_to(server.account, server.home)
        server.initialize()
        server.start()
        yield server


def _find(name: str) -> str:
    """The path of a program. Debian keeps PostgreSQL's below /usr/lib/postgresql."""
    versions = sorted(glob.glob('/usr/lib/postgresql/*/bin'), reverse=True)
    path = shutil.which(name, path=os.pathsep.join([os.environ['PATH'], '/usr/sbin', *versions]))
    assert path, f'the program {name} is not installed'
    return path
