"""``python -m placement.cmd.exporter``: serves the metrics and health of a service on ``[metrics] bind``."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from oslo_log import log

from placement import conf as configuration
from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cmd import command
from placement.db.api import Database
from placement.db.health import TimedCheck

LOG = log.getLogger(__name__)

PROGRAM = 'placement.cmd.exporter'
_DIRECTORY_VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'
#: The minimum time between two starts, because an exporter whose port is in use ends immediately.
_RESTART_SECONDS = 5.0
DESCRIPTION = """
Serve /metrics (for Prometheus), /healthcheck and /healthcheck/ready on the address in [metrics] bind.
placement-api starts this automatically. Under another WSGI server run it beside the server, with the same configuration
and the same PROMETHEUS_MULTIPROC_DIR. It ends when the process that started it ends.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent process has ended.

    :param argv: the arguments; None for the arguments of the process.
    :returns: the exit status: 1 if the metrics cannot be served. One line on standard error has the reason.
    """
    args = command.CommandParser(prog=f'python -m {PROGRAM}', description=DESCRIPTION).parse_args(argv)
    return command.run_command(PROGRAM, 1, functools.partial(_serve, args))


def _serve(args: argparse.Namespace) -> int:
    conf = command.load_configuration(args)
    configuration.set_up_log(conf)
    bind, directory = conf.metrics.bind, os.environ.get(_DIRECTORY_VARIABLE, '')
    if not bind:
        raise exception.ConfigurationInvalid(reason='[metrics] bind is not set.')
    if not os.path.isdir(directory):
        reason = f'{_DIRECTORY_VARIABLE} does not name the directory in which the service keeps its counts.'
        raise exception.ConfigurationInvalid(reason=reason)
    # This import is not at the top, because prometheus_client reads PROMETHEUS_MULTIPROC_DIR when it is imported.
    from placement.observability import processes
    from placement.ops import metrics
    from placement.serving import metrics_listener

    database = Database(conf)
    check = TimedCheck(database)
    registry = processes.registry(directory)
    provider_cache = ProviderCache(database)
    registry.register(metrics.DatabaseCollector(database, provider_cache, conf.metrics, check))
    page = None
    if conf.metrics.page:
        # This is not at the top, because placement-api also imports this module: its start would take a tenth longer.
        from placement.ops.page.application import Page, host_names
        from placement.ops.page.view import Sources, log_file

        sources = Sources(conf, database, provider_cache, check, log_file(conf), processes.registry(directory))
        # If other machines can reach the address, the page accepts any host name.
        page = Page(sources, host_names(bind.rpartition(':')[0].strip('[]')))
    try:
        metrics_listener.serve(metrics_listener.application(check.problem, registry, page), bind)
    except (OSError, OverflowError) as error:
        problem = error.strerror if isinstance(error, OSError) else 'a port is a number below 65536'
        raise exception.ConfigurationInvalid(reason=f'Cannot listen on {bind}: {problem}.') from error
    finally:
        database.dispose()
    return 0


class ExporterProcess:
    """The exporter as a child process of a server, and the directory with the metrics of the server's processes.

    Make it before prometheus_client is imported, because it sets ``PROMETHEUS_MULTIPROC_DIR``.

    :param arguments: the server's arguments that select the configuration.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, '-m', PROGRAM, *arguments]
        self._directory = tempfile.mkdtemp(prefix='placement-metrics-')
        self._process: subprocess.Popen[bytes] | None = None
        self._started = -_RESTART_SECONDS
        os.environ[_DIRECTORY_VARIABLE] = self._directory

    def keep_running(self) -> None:
        """Start the process unless it runs. It reports errors, such as a port in use, on standard error."""
        now = time.monotonic()
        if (self._process and self._process.poll() is None) or now - self._started < _RESTART_SECONDS:
            return
        if self._process:
            LOG.warning('The exporter of the metrics (pid: %d) has ended and is started again', self._process.pid)
        self._started = now
        # In its own session it does not get the SIGINT of Ctrl-C; the server stops it.
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603

    def stop(self) -> None:
        """Stop the process, wait until it has ended, and delete the directory."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
