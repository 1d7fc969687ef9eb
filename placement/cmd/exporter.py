"""``python -m placement.cmd.exporter``: serves the metrics and health of a service on ``[metrics] bind``."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from oslo_config import cfg

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cmd import command
from placement.db.api import Database
from placement.observability.sliding_window import SlidingWindow
from placement.web.wsgi import WSGIApplication

PROGRAM = 'placement.cmd.exporter'
VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'
DESCRIPTION = """
Serve /metrics (for Prometheus), /healthcheck and /healthcheck/ready on the address in [metrics] bind.
placement-api starts this automatically. Under another WSGI server run it beside the server, with the same configuration
and the same PROMETHEUS_MULTIPROC_DIR. It ends when the process that started it ends.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent process has ended.

    :param argv: arguments; None takes those of the process.
    :returns: the exit status, 1 when the metrics cannot be served; the reason is one line on standard error.
    """
    args = command.CommandParser(prog=f'python -m {PROGRAM}', description=DESCRIPTION).parse_args(argv)
    try:
        conf = command.load_configuration(args)
        bind = conf.metrics.bind
    except exception.ConfigurationInvalid as error:
        return _failed(str(error))
    if not bind:
        return _failed('[metrics] bind is not set.')
    if not os.path.isdir(os.environ.get(VARIABLE, '')):
        return _failed(f'{VARIABLE} does not name the directory in which the service keeps its counts.')
    try:
        _serve(conf)
    except exception.ConfigurationInvalid as error:
        return _failed(str(error))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else 'a port is a number below 65536'
        return _failed(f'Cannot listen on {bind}: {reason}.')
    return 0


def _serve(conf: cfg.ConfigOpts) -> None:
    # Not imported at the top, because prometheus_client reads PROMETHEUS_MULTIPROC_DIR when it is imported.
    from placement.observability import shared
    from placement.serving import collectors, metrics_listener

    database = Database(conf)
    registry = shared.registry(os.environ[VARIABLE])
    provider_cache = ProviderCache(database)
    registry.register(collectors.DatabaseCollector(database, provider_cache, conf.metrics))
    recent = SlidingWindow(shared.registry(os.environ[VARIABLE]))
    page = _page(conf, database, provider_cache, recent) if conf.metrics.page else None
    try:
        app = metrics_listener.application(database, registry, page)
        metrics_listener.serve(app, conf.metrics.bind, functools.partial(_sample, recent) if page else lambda: None)
    finally:
        database.dispose()


def _sample(recent: SlidingWindow) -> None:
    """Take a sample of the metrics. It may fail while processes add or remove their files; it is left out then."""
    with contextlib.suppress(Exception):
        recent.sample()


def _page(
    conf: cfg.ConfigOpts, database: Database, provider_cache: ProviderCache, recent: SlidingWindow
) -> WSGIApplication:
    """Return the page, under any host name unless only this machine can reach the address."""
    # Not at the top: it takes a tenth of the time of a start of placement-api, which imports this module, too.
    from placement.page import hosts
    from placement.page.application import Page
    from placement.page.sources import Sources, log_file

    host = conf.metrics.bind.rpartition(':')[0].strip('[]')
    return Page(Sources(conf, database, provider_cache, log_file(conf), recent), hosts.names(host))


class ExporterProcess:
    """The exporter as a child process of a server, and the directory for the metrics of the server's processes.

    Make it before prometheus_client is imported, because it sets ``PROMETHEUS_MULTIPROC_DIR``.
    """

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix='placement-metrics-')
        self._process: subprocess.Popen[bytes] | None = None
        os.environ[VARIABLE] = self._directory

    def start(self, arguments: Sequence[str]) -> None:
        """Start the process. It reports errors, such as a port that is in use, on standard error.

        :param arguments: those of the configuration that the server has.
        """
        command = [sys.executable, '-m', PROGRAM, *arguments]
        # In a session of its own it does not get the SIGINT of Ctrl-C; the server stops it.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603

    def stop(self) -> None:
        """Stop the process, wait until it has ended, and delete the directory."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _failed(reason: str) -> int:
    print(f'{PROGRAM}: {reason}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
