"""The master process of gunicorn, which starts, monitors and stops the workers and the exporter, and its logger.

The methods that it overrides are not documented. They were read in gunicorn 23.0.0 to 27.0.1.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import FrameType

from gunicorn import glogging
from gunicorn.arbiter import Arbiter
from gunicorn.config import Config
from oslo_log import log

LOG = log.getLogger(__name__)

#: The signals with which the master stops a worker.
WORKER_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGQUIT, signal.SIGINT})

#: The module of the exporter.
_EXPORTER = 'placement.cmd.exporter'
#: The minimum time between two starts, because an exporter whose port is in use ends immediately.
_RESTART_SECONDS = 5.0


class Master(Arbiter):
    """gunicorn's master, which also monitors the exporter, informs workers of a stop, and can stop during a reload.

    Its gunicorn application (``cmd.api``) has two attributes. ``exporter`` is None without metrics. ``stopping`` is a
    byte of memory shared with the workers. It becomes 1 before SIGTERM reaches them if no other process has their
    listening sockets, so that the workers accept the connections that wait there.
    """

    _reloading = False
    _terminated = False

    def signal(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM:
            self._terminated = True
        super().signal(sig, frame)

    def spawn_worker(self) -> int:
        """Start a worker. Block the signals that end it until it handles them itself.

        Before that, it has the handlers of the master, which would only queue the signal.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, WORKER_STOP_SIGNALS)
        try:
            return int(super().spawn_worker())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WORKER_STOP_SIGNALS)

    def manage_workers(self) -> None:
        """Restart workers and the exporter if they have ended. The master calls this once a second."""
        super().manage_workers()
        if self.app.exporter is not None:
            self.app.exporter.keep_running()

    def reload(self) -> None:
        """Replace the workers, and wait until the old ones have ended."""
        self._reloading = True
        try:
            super().reload()
        finally:
            self._reloading = False

    def reap_workers(self) -> None:
        """Collect ended workers. SIGTERM also ends the wait for them in a reload."""
        super().reap_workers()
        if self._reloading and self._terminated:
            # gunicorn raises this when it takes SIGTERM from its queue, but during a reload it takes nothing.
            raise StopIteration

    def stop(self, graceful: bool = True) -> None:
        """Stop the workers."""
        # systemd keeps its sockets, and after SIGUSR2 another master has them.
        if not (self.systemd or self.reexec_pid or self.master_pid):
            self.app.stopping[0] = 1
        super().stop(graceful)


class ExporterProcess:
    """The exporter as a child process of a server, and the directory with the metrics of the server's processes.

    Make it before prometheus_client is imported, because it sets ``PROMETHEUS_MULTIPROC_DIR``.

    :param arguments: the server's arguments that select the configuration.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, '-m', _EXPORTER, *arguments]
        self._directory = tempfile.mkdtemp(prefix='placement-metrics-')
        self._process: subprocess.Popen[bytes] | None = None
        self._started = -_RESTART_SECONDS
        os.environ['PROMETHEUS_MULTIPROC_DIR'] = self._directory

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


class ServiceLogger(glogging.Logger):
    """gunicorn's logger without its own handlers: its lines go to the log of the service."""

    def setup(self, cfg: Config) -> None:
        """Set the level, and remove the handlers of gunicorn."""
        super().setup(cfg)
        for logger in (self.error_log, self.access_log):
            logger.handlers.clear()
            logger.propagate = True
