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
import time
from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from tests.support import databases, servers

START_SECONDS = 60


class PrivateServer(abc.ABC):
    """A database server in ``home``, which can be started and crashed repeatedly.

    When ``home`` has a directory ``tls``, as ``certificates.make`` fills it, connections without TLS are rejected.
    """

    name: str
    account: str
    programs: Sequence[str]
    #: The administrator's URL, but for the port.
    address: str
    #: The signal that ends it at once, without clean-up.
    crash_signal: signal.Signals

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
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
    def initialise(self) -> None:
        """Fill the data directory."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    def start(self) -> None:
        """Start and wait until it answers."""
        with (self.home / 'log').open('ab') as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, user=self.user())
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self.home / 'log').read_text(errors='replace')
                raise servers.ServerError(f'{self.command()[0]} did not start:\n{log_text[-3000:]}')
            time.sleep(0.1)

    def start_unless_running(self) -> None:
        """Start it if it is not running."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def crash(self) -> None:
        """End it at once; connections break, nothing is flushed."""
        assert self._process is not None
        # A server that has only just been started may lose the signal.
        for signal_ in (*[self.crash_signal] * 5, signal.SIGKILL):
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
        """What the URL says for a connection with TLS."""
        return {'sslmode': 'require'}

    def initialise(self) -> None:
        """Fill the data directory."""
        self.run(_program('initdb'), '-D', str(self.data), '-U', 'postgres', '-A', 'trust', '--no-sync')
        if self.tls.exists():
            (self.data / 'pg_hba.conf').write_text(
                'hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n'
            )

    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""
        here = ['-c', f'unix_socket_directories={self.home}', '-c', 'listen_addresses=127.0.0.1']
        if self.tls.exists():
            files = [f'ssl_cert_file={self.tls}/server.pem', '-c', f'ssl_key_file={self.tls}/server.key']
            here += ['-c', 'ssl=on', '-c', *files]
        return [_program('postgres'), '-D', str(self.data), '-p', str(self.port), *here]


class MariaDB(PrivateServer):
    """MariaDB; as root without a password."""

    name = 'mariadb'
    account = 'mysql'
    programs = ('mariadbd', 'mariadb-install-db')
    address = 'mysql+pymysql://root@127.0.0.1:{}/'
    #: Like a power cut.
    crash_signal = signal.SIGKILL

    def tls_parameters(self) -> dict[str, str]:
        """What the URL says for a connection with TLS."""
        return {'ssl_ca': f'{self.tls}/ca.pem', 'ssl_check_hostname': 'false'}

    def initialise(self) -> None:
        """Fill the data directory."""
        self.run(
            _program('mariadb-install-db'),
            '--no-defaults',
            f'--datadir={self.data}',
            f'--tmpdir={self.home}',
            '--auth-root-authentication-method=normal',
            '--skip-test-db',
        )

    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""
        return [
            _program('mariadbd'),
            '--no-defaults',
            f'--datadir={self.data}',
            # A server deletes the temporary tables that it finds there when it starts, also those of other servers.
            f'--tmpdir={self.home}',
            f'--socket={self.home}/mariadbd.sock',
            f'--pid-file={self.home}/mariadbd.pid',
            f'--port={self.port}',
            '--bind-address=127.0.0.1',
            '--innodb-buffer-pool-size=64M',
            *self._tls_options(),
        ]

    def _tls_options(self) -> list[str]:
        if not self.tls.exists():
            return []
        return [
            f'--ssl-ca={self.tls}/ca.pem',
            f'--ssl-cert={self.tls}/server.pem',
            f'--ssl-key={self.tls}/server.key',
            '--require-secure-transport=ON',
        ]


KINDS: dict[str, type[PrivateServer]] = {'postgresql': PostgreSQL, 'mariadb': MariaDB}


@contextlib.contextmanager
def running(name: str, certificates: pathlib.Path | None = None) -> Iterator[PrivateServer]:
    """A started server of that kind, ended and deleted at the end; skips when its programs or driver are not installed.

    :param certificates: a directory as ``certificates.make`` fills it, for a server that asks for TLS.
    """
    kind = KINDS[name]
    if reason := databases.why_no_driver(sa.make_url(kind.address.format(0))):
        databases.unavailable(name, reason)
    for program in kind.programs:
        if not _find(program):
            databases.unavailable(name, f'the program {program} is not installed')
    # The account of the server must be able to enter it, which it is not for directories of pytest.
    with tempfile.TemporaryDirectory(prefix=f'placement-{name}-') as directory, contextlib.ExitStack() as stack:
        home = pathlib.Path(directory)
        server = kind(home)
        stack.callback(server.end)
        if certificates is not None:
            shutil.copytree(certificates, server.tls)
        if user := server.user():
            for path in (home, *home.rglob('*')):
                shutil.chown(path, user)
        server.initialise()
        server.start()
        yield server


def _program(name: str) -> str:
    found = _find(name)
    assert found is not None
    return found


def _find(name: str) -> str | None:
    """Debian keeps PostgreSQL's own programs below /usr/lib/postgresql/{version}."""
    versions = sorted(glob.glob('/usr/lib/postgresql/*/bin'), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ['PATH'], '/usr/sbin', *versions]))
