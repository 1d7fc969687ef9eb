"""Database servers that a test may stop: started for one test, on loopback, with data in a temporary directory."""

from __future__ import annotations

import abc
import contextlib
import glob
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import pytest
import sqlalchemy as sa

from tests.support import databases, servers
from tests.support.waiting import wait_until


class PrivateServer(abc.ABC):
    """A database server in ``home``, which can be started and crashed repeatedly.

    When ``home`` has a directory ``tls`` with ``ca.pem``, ``server.pem`` and ``server.key``, it rejects connections
    without TLS.

    :param primary: the server that this one replicates, on PostgreSQL.
    """

    name: str
    account: str
    programs: Sequence[str]
    #: The administrator's URL, but for the port.
    address: str
    #: The signal that ends it at once, without clean-up.
    crash_signal: signal.Signals

    def __init__(self, home: pathlib.Path, primary: PrivateServer | None = None) -> None:
        self.home = home
        self.primary = primary
        self.data = home / 'data'
        self.tls = home / 'tls'
        self.port = servers.free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> sa.URL:
        """The administrator's URL."""
        url = sa.make_url(self.address.format(self.port))
        return url.update_query_dict(self.tls_parameters()) if self.tls.exists() else url

    @abc.abstractmethod
    def tls_parameters(self) -> dict[str, str]:
        """What the URL says for a connection with TLS."""

    @abc.abstractmethod
    def initialize(self) -> None:
        """Fill the data directory."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self.has_ended():
            with (self.home / 'log').open('ab') as log:
                self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, user=self.user())

        def is_ready() -> bool:
            if self.has_ended():
                raise servers.ServerError(f'{self.command()[0]} did not start:\n{self.log_text()}')
            return self._answers()

        wait_until(is_ready, self.log_text)

    def log_text(self) -> str:
        """The end of the log."""
        return (self.home / 'log').read_text(errors='replace')[-3000:]

    def has_ended(self) -> bool:
        """Whether it does not run."""
        return self._process is None or self._process.poll() is not None

    def crash(self, crash_signal: signal.Signals | None = None) -> None:
        """End it at once, or as ``crash_signal`` does; connections break, nothing is flushed."""
        assert self._process is not None
        # A server that has only just been started may lose the signal.
        for signal_ in (*[crash_signal or self.crash_signal] * 5, signal.SIGKILL):
            self._process.send_signal(signal_)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
                return

    def end(self) -> None:
        """End it if it runs, also when it is frozen."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.crash()

    def freeze(self) -> None:
        """Stop it from answering, without closing connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def run(self, *command: str) -> None:
        """Run a helper program as the server's account."""
        subprocess.run(command, check=True, capture_output=True, user=self.user(), cwd='/')

    def user(self) -> str | None:
        """Database servers do not run as root."""
        return self.account if os.getuid() == 0 else None

    def _answers(self) -> bool:
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with contextlib.suppress(sa.exc.OperationalError), engine.connect():
            return True
        return False


class PostgreSQL(PrivateServer):
    """PostgreSQL; as the superuser postgres without a password."""

    name = 'postgresql'
    account = 'postgres'
    programs = ('postgres', 'initdb')
    address = 'postgresql+psycopg://postgres@127.0.0.1:{}/postgres'
    #: Immediate shutdown: all its processes end, and the next start recovers.
    crash_signal = signal.SIGQUIT

    def tls_parameters(self) -> dict[str, str]:
        return {'sslmode': 'require'}

    def initialize(self) -> None:
        if self.primary is not None:
            source = f'host=127.0.0.1 port={self.primary.port} user=postgres'
            copy = ['--pgdata', str(self.data), '--checkpoint=fast', '--no-sync', '--write-recovery-conf']
            self.run(_program('pg_basebackup'), '--dbname', source, *copy)
            return
        self.run(_program('initdb'), '-D', str(self.data), '-U', 'postgres', '-A', 'trust', '--no-sync')
        if self.tls.exists():
            (self.data / 'pg_hba.conf').write_text(
                'hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n'
            )

    def command(self) -> list[str]:
        options = ['-c', f'unix_socket_directories={self.home}', '-c', 'listen_addresses=127.0.0.1']
        if self.tls.exists():
            files = [f'ssl_cert_file={self.tls}/server.pem', '-c', f'ssl_key_file={self.tls}/server.key']
            options += ['-c', 'ssl=on', '-c', *files]
        return [_program('postgres'), '-D', str(self.data), '-p', str(self.port), *options]


class MariaDB(PrivateServer):
    """MariaDB; as root without a password."""

    name = 'mariadb'
    account = 'mysql'
    programs: Sequence[str] = ('mariadbd', 'mariadb-install-db')
    address = 'mysql+pymysql://root@127.0.0.1:{}/'
    #: Like a power cut.
    crash_signal = signal.SIGKILL

    def tls_parameters(self) -> dict[str, str]:
        return {'ssl_ca': f'{self.tls}/ca.pem', 'ssl_check_hostname': 'false'}

    def initialize(self) -> None:
        files = [f'--datadir={self.data}', f'--tmpdir={self.home}']
        account = '--auth-root-authentication-method=normal'
        self.run(_program('mariadb-install-db'), '--no-defaults', *files, account, '--skip-test-db')

    def command(self) -> list[str]:
        return [_program('mariadbd'), '--no-defaults', *(f'--{name}={value}' for name, value in self.options().items())]

    def options(self) -> dict[str, object]:
        """The options of this server."""
        options = {
            'datadir': self.data,
            # A server deletes the temporary tables that it finds there when it starts, also those of other servers.
            'tmpdir': self.home,
            'socket': self.home / 'sock',
            'pid-file': self.home / 'pid',
            'port': self.port,
            'bind-address': '127.0.0.1',
            'innodb-buffer-pool-size': '64M',
        }
        if self.tls.exists():
            files = {'ssl-ca': 'ca.pem', 'ssl-cert': 'server.pem', 'ssl-key': 'server.key'}
            options |= {name: self.tls / file for name, file in files.items()} | {'require-secure-transport': 'ON'}
        return options


class MySQL(MariaDB):
    """MySQL, which ``tools/mysql.py`` has installed, in the place of MariaDB."""

    programs = ()

    def initialize(self) -> None:
        _mysql().create_data(self.data)

    def command(self) -> list[str]:
        command: list[str] = _mysql().program({**_mysql().OPTIONS, **self.options()})
        return command


def _mysql() -> ModuleType:
    return importlib.import_module('tools.mysql')


def _kind(name: str) -> type[PrivateServer]:
    if name == 'postgresql':
        return PostgreSQL
    return MySQL if databases.on_mysql() else MariaDB


def replace_mariadb_by_mysql() -> Callable[[], None]:
    """Start a MySQL server and let the tests of MariaDB run on it; returns what ends it.

    :raises pytest.UsageError: MySQL is not installed.
    """
    if importlib.util.find_spec('pymysql') is None:
        raise pytest.UsageError('mysql: the driver pymysql is not installed')
    if reason := _mysql().Cluster.missing():
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
    """A started server of that kind, ended and deleted at the end; skips when its programs or driver are not installed.

    :param primary: the server that it replicates.
    :param certificates: a directory with ``ca.pem``, ``server.pem`` and ``server.key``, for a server that asks for TLS.
    """
    kind = _kind(name)
    if reason := databases.why_no_driver(sa.make_url(kind.address.format(0))):
        databases.unavailable(name, reason)
    for program in kind.programs:
        if not _find(program):
            databases.unavailable(name, f'the program {program} is not installed')
    # The account of the server must be able to enter it, which it is not for directories of pytest.
    with tempfile.TemporaryDirectory(prefix=f'placement-{name}-') as directory, contextlib.ExitStack() as stack:
        home = pathlib.Path(directory)
        server = kind(home, primary)
        stack.callback(server.end)
        if certificates is not None:
            shutil.copytree(certificates, server.tls)
        if user := server.user():
            for path in (home, *home.rglob('*')):
                shutil.chown(path, user)
        server.initialize()
        server.start()
        yield server


def _program(name: str) -> str:
    path = _find(name)
    assert path is not None
    return path


def _find(name: str) -> str | None:
    """Debian keeps PostgreSQL's own programs below /usr/lib/postgresql/{version}."""
    versions = sorted(glob.glob('/usr/lib/postgresql/*/bin'), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ['PATH'], '/usr/sbin', *versions]))
