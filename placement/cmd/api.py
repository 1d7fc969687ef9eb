"""``placement-api``: serves the API with gunicorn; with ``--dev`` it needs no configuration."""

from __future__ import annotations

import argparse
import gc
import ipaddress
import mmap
import os
import pathlib
import socket
import sys
from collections.abc import Sequence
from typing import Any, Optional

from gunicorn import util as gunicorn_util
from gunicorn.app.base import BaseApplication
from gunicorn.systemd import SD_LISTEN_FDS_START
from oslo_config import cfg
from oslo_log import log

from placement import conf as configuration
from placement import deploy, exception
from placement.cache.refresh import CacheVersion
from placement.cmd import command, exporter
from placement.serving.channel import Clients
from placement.serving.master import Master

LOG = log.getLogger(__name__)

DEFAULT_BIND = '127.0.0.1:8778'

#: Maximum number of connections that the kernel queues until a worker accepts them.
BACKLOG = 2048

#: Host and port of a listening socket, for IPv6 also flow and scope; None for a Unix socket.
_Address = Optional[tuple[Any, ...]]  # noqa: UP045

_DESCRIPTION = """\
Serves the Placement API. The configuration is placement.conf in the directory OS_PLACEMENT_CONFIG_DIR (by default
/etc/placement), and the environment: OS_<GROUP>__<OPTION>, such as OS_PLACEMENT_DATABASE__CONNECTION.
SIGTERM stops it after the requests in flight; SIGHUP reloads the configuration."""

_DEV_LOG = '%(asctime)s %(levelname)s %(message)s'

_DEV_GREETING = """\
Placement listens on {url}
Its data is in {database}
There is no authentication: the token is the user name, and the user admin may do everything. Try:

  curl -s -H 'X-Auth-Token: admin' {url}/resource_providers

Stop with Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal stops the process.

    :param argv: arguments; None takes those of the process.
    :returns: the exit status, 1 when the service cannot start; the reason is one line on standard error.
    """
    arguments = _parser().parse_args(argv)
    try:
        server = _Server(arguments)
    except exception.PlacementError as error:
        print(f'placement-api: {error.for_operators}', file=sys.stderr)
        return 1
    server.run()
    return 0


def _parser() -> command.CommandParser:
    parser = command.CommandParser(
        'placement-api', description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_information()
    parser.add_argument(
        '--dev',
        action='store_true',
        help='run without a configuration file: data in SQLite, no authentication, reachable from this machine only',
    )
    parser.add_path(
        '--database',
        metavar='PATH',
        type=pathlib.Path,
        help=f'SQLite file of --dev, created when missing (default: {command.DEV_DATABASE} in the current directory)',
    )
    parser.add_argument(
        '--bind',
        metavar='ADDRESS',
        default=DEFAULT_BIND,
        help='HOST:PORT, [IPV6]:PORT or unix:PATH to listen on (default: %(default)s); a socket passed by systemd'
        ' is used instead',
    )
    parser.add_argument(
        '--workers',
        metavar='N',
        type=_positive,
        help='worker processes (default: 1 with --dev, else [server] workers)',
    )
    parser.add_argument(
        '--threads', metavar='N', type=_positive, help='threads per process (default: [server] threads)'
    )
    parser.add_argument(
        '--allow-insecure-noauth',
        action='store_true',
        help='with auth_strategy noauth2 or --dev: serve also on an address that other machines can reach, although'
        ' every client is then an administrator',
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('must be at least 1')
    return number


class _Server(BaseApplication):
    """gunicorn with our settings.

    The master process builds an application once and closes it, which checks the configuration and, with
    sync_on_startup, upgrades the schema. It keeps the application's provider cache. Each worker builds its own
    application, so that processes share no database connections, and begins with the master's cache: the memory is
    shared until one of them writes to it.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        if arguments.database and not arguments.dev:
            raise exception.ConfigurationInvalid(reason='--database requires --dev.')
        if arguments.dev and (arguments.config_file or arguments.config_dir):
            raise exception.ConfigurationInvalid(reason='--dev does not accept a configuration file.')
        self._arguments = arguments
        self._inherited = _inherited_sockets()
        self._addresses = [_address_of(fd) for fd in self._inherited] or _resolve(arguments.bind)
        self._conf = self._load()
        configuration.set_up_log(self._conf)
        if conflict := configuration.package_conflict():
            LOG.warning(conflict)
        self._bind = self._url = arguments.bind
        if not self._inherited:
            self._listen()
        #: Shared with the workers: 1 when the service stops (``master.Master``).
        self.stopping = mmap.mmap(-1, 1)
        self._exporter = exporter.ExporterProcess() if self._conf.metrics.bind else None
        try:
            self._cache_version = self._prepare(self._conf)
        except exception.PlacementError:
            self._on_exit()
            raise
        super().__init__(prog='placement-api')

    def run(self) -> None:
        """Serve until a signal stops the process, then exit."""
        Master(self).run()

    def load_config(self) -> None:
        """Set gunicorn's options."""
        for name, value in self._settings().items():
            # Not every release of gunicorn has every option.
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> deploy.Application:
        """Build the application of a worker."""
        return deploy.loadapp(self._conf, self._cache_version)

    @property
    def clients(self) -> Clients:
        """The limits for the clients of one worker."""
        server = self._conf.server
        return Clients(server.max_connections, server.request_read_timeout, server.keepalive_timeout)

    @property
    def max_body(self) -> int:
        """The maximum size of a request body in bytes."""
        return int(self._conf.api.max_request_body_size)

    def reload(self) -> None:
        """Read the configuration and the cache again and restart the workers with them.

        If the configuration is invalid, the previous one and its cache stay.
        """
        try:
            conf = self._load()
            self._cache_version = self._prepare(conf)
        except exception.PlacementError as error:
            LOG.error('The previous configuration stays in use: %s', error.for_operators)
        else:
            self._conf = conf
        super().reload()

    def _settings(self) -> dict[str, Any]:
        dev = self._arguments.dev
        server = self._conf.server
        return {
            'bind': self._bind,
            # gunicorn uses it for a Unix socket, and for nothing else.
            'umask': 0o777 & ~int(server.socket_mode, 8),
            'worker_class': 'placement.serving.worker.WaitressWorker',
            'workers': self._arguments.workers or server.workers or (1 if dev else os.cpu_count() or 1),
            'threads': self._arguments.threads or server.threads,
            'backlog': BACKLOG,
            'loglevel': 'warning' if dev else 'info',
            'logger_class': 'placement.serving.master.ServiceLogger',
            'proc_name': 'placement-api',
            # After that time gunicorn kills the workers that have not ended. One second is left for gunicorn itself.
            'graceful_timeout': server.graceful_timeout - 1,
            'control_socket_disable': True,
            'when_ready': self._when_ready,
            'on_exit': self._on_exit,
        }

    def _load(self) -> cfg.ConfigOpts:
        if self._arguments.dev:
            conf = configuration.load(
                command.configuration_arguments(self._arguments), config_files=[], overrides=self._dev_overrides()
            )
        else:
            conf = configuration.load(command.configuration_arguments(self._arguments))
        insecure = conf.api.auth_strategy == 'noauth2' and not self._arguments.allow_insecure_noauth
        if insecure and not all(map(_is_local, self._addresses)):
            raise exception.ConfigurationInvalid(
                reason='Serving without authentication (auth_strategy noauth2) is not allowed on an address that other'
                f' machines may reach ({self._arguments.bind}). Use a loopback address, or pass'
                ' --allow-insecure-noauth.'
            )
        return conf

    def _dev_overrides(self) -> dict[str, dict[str, Any]]:
        return {
            'placement_database': {'connection': command.sqlite_url(self._database()), 'sync_on_startup': True},
            'api': {'auth_strategy': 'noauth2'},
            'metrics': {'bind': None},
            # Short lines, for a terminal.
            'DEFAULT': {
                'log_date_format': '%H:%M:%S',
                'logging_context_format_string': _DEV_LOG,
                'logging_default_format_string': _DEV_LOG,
            },
        }

    def _database(self) -> pathlib.Path:
        return (self._arguments.database or pathlib.Path(command.DEV_DATABASE)).absolute()

    def _listen(self) -> None:
        """Bind the address, unless it is a Unix socket, and pass the socket to gunicorn.

        gunicorn itself would try to bind five times, a second apart, and log ten lines if it fails.

        :raises ConfigurationInvalid: the address cannot be bound, for example because another process uses the port.
        """
        if (address := self._addresses[0]) is None:
            return
        host, port = address[:2]
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except (OSError, OverflowError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise exception.ConfigurationInvalid(reason=f'Cannot listen on {self._bind}: {reason}.') from error
        port = listener.getsockname()[1]
        self._url = f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'
        self._bind = f'fd://{listener.detach()}'

    @staticmethod
    def _prepare(conf: cfg.ConfigOpts) -> CacheVersion | None:
        """Build an application with ``conf`` and close it, and return its cache, None if it could not be loaded.

        The workers need not upgrade the schema again.
        """
        try:
            application = deploy.loadapp(conf)
            application.db.dispose()
            version = application.provider_cache.version
            del application
        finally:
            # The application has reference cycles, and was frozen with its cache, which would then stay in memory. The
            # rest is not traversed in the workers, which would copy it to each of them.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        conf.set_override('sync_on_startup', False, group='placement_database')
        return version

    def _on_exit(self, _arbiter: object = None) -> None:
        if self._exporter is not None:
            self._exporter.stop()

    def _when_ready(self, _arbiter: object) -> None:
        if self._exporter is not None:
            self._exporter.start(command.configuration_arguments(self._arguments))
        if not self._arguments.dev:
            address = 'sockets from systemd' if self._inherited else self._url
            LOG.info('%s, ready on %s', configuration.describe(self._conf), address)
            return
        print(_DEV_GREETING.format(url=self._url, database=self._database()), flush=True)


def _inherited_sockets() -> list[int]:
    """Return the listening sockets from systemd or a previous gunicorn process, which gunicorn uses directly."""
    if os.environ.get('LISTEN_PID') == str(os.getpid()):
        return list(range(SD_LISTEN_FDS_START, SD_LISTEN_FDS_START + int(os.environ.get('LISTEN_FDS', '0'))))
    return [int(fd) for fd in os.environ.get('GUNICORN_FD', '').split(',') if fd]


def _address_of(fd: int) -> _Address:
    with socket.socket(fileno=os.dup(fd)) as inherited:
        address = inherited.getsockname()
    return address if isinstance(address, tuple) else None


def _parse(bind: str) -> _Address:
    """Return the host and port of an address to listen on; None for the path of a Unix socket.

    :raises ConfigurationInvalid: it is not an address.
    """
    try:
        parsed = gunicorn_util.parse_address(bind, default_port='8778')
    except RuntimeError as error:
        raise exception.ConfigurationInvalid(reason=f'--bind {bind}: {error}') from error
    if not isinstance(parsed, tuple):
        return None
    if not 0 <= parsed[1] < 65536:
        raise exception.ConfigurationInvalid(reason=f'--bind {bind}: a port is a number below 65536.')
    return parsed


def _resolve(bind: str) -> list[_Address]:
    """Return the addresses and ports that ``bind`` resolves to; ``[None]`` for the path of a Unix socket.

    :raises ConfigurationInvalid: it is not an address, or the name cannot be resolved.
    """
    address = _parse(bind)
    if address is None:
        return [None]
    try:
        found = socket.getaddrinfo(address[0], address[1], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise exception.ConfigurationInvalid(reason=f'--bind {bind}: {error.strerror}') from error
    return [(str(name[0]), int(name[1])) for *_kind, name in found]


def _is_local(address: _Address) -> bool:
    return address is None or ipaddress.ip_address(str(address[0]).partition('%')[0]).is_loopback


if __name__ == '__main__':
    sys.exit(main())
