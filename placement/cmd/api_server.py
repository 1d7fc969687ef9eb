"""Runs the API in gunicorn: the master process, its configuration and its listening sockets."""

from __future__ import annotations

import argparse
import gc
import ipaddress
import mmap
import pathlib
import sys
import threading
from typing import Any

from gunicorn.app.base import BaseApplication
from oslo_config import cfg
from oslo_log import log

from placement import conf as configuration
from placement import deploy, exception, observability
from placement.cmd import command
from placement.cmd.parser import DEV_DATABASE
from placement.serving import addresses
from placement.serving.master import ExporterProcess, Master
from placement.serving.processors import count_processors
from placement.web import keystone

# The module of the command, whose name is in the log files of operators and in doc/keystone.md.
LOG = log.getLogger('placement.cmd.api')

#: Maximum number of connections that the kernel queues until a worker accepts them.
BACKLOG = 2048

#: The mode of a Unix socket is 0660: a proxy is in the group of the service. Other users have no need to connect.
_SOCKET_UMASK = 0o117

_DEV_LOG = '%(asctime)s %(levelname)s %(message)s'

_DEV_GREETING = """\
Placement listens on {url}
Its data is in {database}
There is no authentication: the token is the user name, and the user admin may do everything. Try:

  curl -s -H 'X-Auth-Token: admin' {url}/resource_providers

Stop with Ctrl-C."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal stops the process. Return 1 if the service cannot start, for the reason that is printed."""
    try:
        server = _Server(arguments)
    except exception.PlacementError as error:
        print(f'placement-api: {error.for_operators}', file=sys.stderr)
        return 1
    server.run()
    return 0


class _Server(BaseApplication):
    """gunicorn with our settings.

    At its start and at each reload the master process builds an application and closes it. This checks the
    configuration and, with sync_on_startup, upgrades the schema. The master keeps the application's provider cache and
    policy. Each worker builds its own application, so that processes share no database connections. It begins with the
    master's cache, whose memory the processes share until one of them writes to it, and with its policy.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        if arguments.database and not arguments.dev:
            raise exception.ConfigurationInvalid(reason='--database requires --dev.')
        if arguments.dev and {'--config-file', '--config-dir'} & set(arguments.configuration_words):
            raise exception.ConfigurationInvalid(reason='--dev does not accept a configuration file.')
        self._arguments = arguments
        self._database = (arguments.database or pathlib.Path(DEV_DATABASE)).absolute()
        self._bind, self._ready_on = arguments.bind, arguments.bind
        self._addresses = addresses.inherited()
        if self._addresses:
            self._ready_on = 'sockets from systemd'
        elif listener := addresses.listen(arguments.bind, BACKLOG):
            self._addresses = [listener.getsockname()]
            host, port = listener.getsockname()[:2]
            self._ready_on = f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'
            self._bind = f'fd://{listener.detach()}'
        #: The configuration. A reload replaces it.
        self.conf = self._load()
        configuration.set_up_log(self.conf)
        if conflict := configuration.package_conflict():
            LOG.warning(conflict)
        #: The number of workers that were started with the configuration.
        self._workers = 0
        #: Memory shared with the workers: 1 if the service is stopping (``master.Master``).
        self.stopping = mmap.mmap(-1, 1)
        #: The exporter, which the master restarts like workers; None without metrics.
        self.exporter: ExporterProcess | None = None
        if self.conf.metrics.bind:
            self.exporter = ExporterProcess(arguments.configuration_words)
        try:
            self._state = self._prepare(self.conf)
        except exception.PlacementError:
            self._on_exit()
            raise
        super().__init__(prog='placement-api')

    def run(self) -> None:
        """Serve until a signal stops the process, then exit."""
        Master(self).run()

    def load_config(self) -> None:
        """Set gunicorn's options."""
        dev, server = self._arguments.dev, self.conf.server

        def pre_fork(_arbiter: object, _worker: object) -> None:
            self._workers += 1

        settings = {
            'bind': self._bind,
            # gunicorn uses this umask only for a Unix socket.
            'umask': _SOCKET_UMASK,
            'worker_class': 'placement.serving.worker.WaitressWorker',
            'workers': server.workers or (1 if dev else count_processors()),
            'threads': server.threads,
            'backlog': BACKLOG,
            'loglevel': 'warning' if dev else 'info',
            'logger_class': 'placement.serving.master.ServiceLogger',
            'proc_name': 'placement-api',
            # After this time gunicorn kills the remaining workers. One second is left for gunicorn itself.
            'graceful_timeout': server.graceful_timeout - 1,
            'control_socket_disable': True,
            'pre_fork': pre_fork,
            'when_ready': self._when_ready,
            'on_exit': self._on_exit,
        }
        for name, value in settings.items():
            # Some releases of gunicorn do not have all options.
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> deploy.Application:
        """Build the application of a worker. The first one asks Keystone whether it accepts the service."""

        def ask_keystone() -> None:
            if keystone.ask_keystone(self.conf, LOG):
                LOG.info('ready: Keystone accepts the user of the service')

        application = deploy.loadapp(self.conf, self._state)
        if self._workers == 1 and self.conf.api.auth_strategy == 'keystone':
            # The start does not wait for Keystone, nor does the end. The master cannot ask, because it forks.
            threading.Thread(target=ask_keystone, name='ask_keystone', daemon=True).start()
        return application

    def reload(self) -> None:
        """Read the configuration, the policy and the cache again, and restart the workers with them.

        If the configuration or the policy is invalid, keep the previous ones and their cache.
        """
        try:
            conf = self._load()
            self._state = self._prepare(conf)
        except exception.PlacementError as error:
            LOG.error('The previous configuration stays in use: %s', error.for_operators)
            observability.create(self.conf).config_reload_success.set(False)
        else:
            self.conf, self._workers = conf, 0
        super().reload()

    def _load(self) -> cfg.ConfigOpts:
        """Load the configuration, with the values of the command line.

        :raises ConfigurationInvalid: it is invalid, or would make every client that can reach the address an
            administrator.
        """
        arguments = self._arguments
        overrides: dict[str, dict[str, Any]] = {
            'server': {name: value for name in ('workers', 'threads') if (value := getattr(arguments, name))}
        }
        if arguments.dev:
            overrides |= {
                'placement_database': {'connection': command.sqlite_url(self._database), 'sync_on_startup': True},
                'api': {'auth_strategy': 'noauth2'},
                'metrics': {'bind': None},
                # Log lines are short, for a terminal.
                'DEFAULT': {
                    'log_date_format': '%H:%M:%S',
                    'logging_context_format_string': _DEV_LOG,
                    'logging_default_format_string': _DEV_LOG,
                },
            }
        conf = configuration.load(
            arguments.configuration_words, config_files=() if arguments.dev else None, overrides=overrides
        )
        if conf.api.auth_strategy == 'noauth2' and not arguments.allow_insecure_noauth:
            hosts = [str(address[0]).partition('%')[0] for address in self._addresses if isinstance(address, tuple)]
            if not all(ipaddress.ip_address(host).is_loopback for host in hosts):
                raise exception.ConfigurationInvalid(
                    reason='Serving without authentication (auth_strategy noauth2) is not allowed on an address that'
                    f' other machines may reach ({arguments.bind}). Use a loopback address, or pass'
                    ' --allow-insecure-noauth.'
                )
        return conf

    @staticmethod
    def _prepare(conf: cfg.ConfigOpts) -> deploy.State:
        """Build an application with ``conf``, and close it. Return its cache and its policy.

        The schema is upgraded only here, and not by the workers.
        """
        try:
            application = deploy.loadapp(conf)
            application.db.dispose()
            application.db.metrics.config_reload_success.set(True)
            state = application.state
            del application
        finally:
            # The application has reference cycles and was frozen with its cache, so without this both would stay in
            # memory. The rest is frozen again, because traversing it in the workers would copy it to each of them.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        conf.set_override('sync_on_startup', False, group='placement_database')
        return state

    def _on_exit(self, _arbiter: object = None) -> None:
        if self.exporter is not None:
            self.exporter.stop()

    def _when_ready(self, _arbiter: object) -> None:
        if self._arguments.dev:
            print(_DEV_GREETING.format(url=self._ready_on, database=self._database), flush=True)
        else:
            # With Keystone, the first worker finds out whether the service is ready.
            state = 'listening' if self.conf.api.auth_strategy == 'keystone' else 'ready'
            LOG.info('%s, %s on %s', configuration.describe(self.conf), state, self._ready_on)
