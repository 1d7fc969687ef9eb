"""The worker process that gunicorn starts, monitors and stops.

Not all names of the libraries are documented. They were read in gunicorn 23.0.0 to 27.0.1, and read in waitress 3.0.2.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time

from gunicorn.workers.base import Worker
from oslo_log import log
from waitress import wasyncore

from placement import units
from placement.serving.channel import ConnectionTable
from placement.serving.master import WORKER_STOP_SIGNALS
from placement.web.health_check import READY

LOG = log.getLogger(__name__)

#: Maximum size of the request line and headers together.
_MAX_HEAD_BYTES = 128 * 1024
#: From these sizes on, waitress stores a request body or the unsent part of a response in a temporary file.
_MAX_BODY_MEMORY_BYTES, _MAX_RESPONSE_MEMORY_BYTES = 64 * 1024, 16 * 1024 * 1024
#: waitress receives bodies up to this multiple of the allowed size, including chunk headers, so that the application
#: can reject them with its own error document.
_BODY_SIZE_FACTOR = 8
#: The numbers of file descriptors that a process needs in addition to connections, and for each connection.
_OTHER_FILE_DESCRIPTORS, _CLIENT_FILE_DESCRIPTORS = 512, 2
#: A stopping worker ends this long before gunicorn would kill it.
_STOP_MARGIN_SECONDS = 1.0
#: The pause in which a worker whose threads are all busy accepts no connections, so that other workers get them.
_ACCEPT_PAUSE_SECONDS = 0.1
#: The switch interval of the interpreter (``sys.setswitchinterval``).
_SWITCH_INTERVAL_SECONDS = 0.0005
#: ``M_ARENA_MAX`` of glibc: the parameter of ``mallopt`` that limits the number of arenas.
_MALLOC_ARENA_MAX = -8
#: ``SO_ATTACH_FILTER`` of Linux, and a filter of one instruction (``BPF_RET``) that keeps 0 bytes of a packet.
_ATTACH_FILTER, _DROP_ALL = 26, ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))
#: The maximum wait for sockets in the main loop, and the time between two checks of timeouts.
_LOOP_INTERVAL_SECONDS = 1.0


class WaitressWorker(Worker):
    """A worker of gunicorn that serves with waitress.

    Its gunicorn application (``cmd.api``) has the attributes ``conf`` and ``stopping`` (``master.Master``).
    """

    def init_signals(self) -> None:
        """Handle signals, including signals that were sent since the start of this process."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WORKER_STOP_SIGNALS)

    def load_wsgi(self) -> None:
        """Build the application.

        gunicorn kills a worker that does not notify it for 30 seconds. The worker may need longer to load its own cache
        if the cache of the master was not loaded or is too old to be refreshed.
        """
        # All threads have one arena of malloc. Of several arenas, each would keep the memory of the longest response of
        # its threads. Threads rarely allocate at the same time. Other C libraries have no ``mallopt``.
        if mallopt := getattr(ctypes.CDLL(None), 'mallopt', None):
            mallopt(_MALLOC_ARENA_MAX, 1)
        loaded = threading.Event()

        def notify() -> None:
            while not loaded.wait(_LOOP_INTERVAL_SECONDS):
                self.notify()

        threading.Thread(target=notify, name='notify', daemon=True).start()
        try:
            super().load_wsgi()
        finally:
            loaded.set()

    def run(self) -> None:
        """Serve until the service stops. Then finish the requests in flight within ``graceful_timeout``."""
        server = self.app.conf.server
        self._connections = connections = ConnectionTable(
            _raise_file_limit(server.max_connections), server.request_read_timeout, server.keepalive_timeout
        )
        self._start()
        self.wsgi.background_refresh.start()
        while self.alive and self.ppid == os.getppid():
            self._run_once()
        deadline = time.monotonic() + max(
            self.cfg.graceful_timeout - _STOP_MARGIN_SECONDS, self.cfg.graceful_timeout / 2
        )
        connections.stopped_at = time.monotonic()
        self._stop_listening()
        while connections.channels and time.monotonic() < deadline:
            self._run_once()
        if count := sum(len(channel.requests) for channel in connections.channels):
            LOG.warning('Stopped without a response to %s: graceful_timeout is over', units.plural(count, 'request'))
            self.log.info('Worker exiting (pid: %s)', self.pid)
            # A normal exit would let the threads run while the interpreter is being finalized.
            os._exit(0)
        connections.sockets.close()
        self.wsgi.background_refresh.stop()
        self.wsgi.db.dispose()

    def _start(self) -> None:
        # The main loop runs briefly twice for each request. Each time it may wait for the interpreter lock this long.
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        connections = self._connections
        _SignalPipe(self.PIPE[0], connections.sockets)
        prefix, health_path = os.environ.get('SCRIPT_NAME', '').rstrip('/'), self.app.conf.healthcheck.path
        server = connections.listen(
            self.wsgi,
            [listener.sock for listener in self.sockets],
            self.cfg.threads,
            [prefix + health_path, prefix + health_path + READY] if health_path else [],
            backlog=self.cfg.backlog,
            url_prefix=prefix,
            server_name='localhost',
            max_request_header_size=_MAX_HEAD_BYTES,
            max_request_body_size=_BODY_SIZE_FACTOR * self.app.conf.api.max_request_body_size,
            inbuf_overflow=_MAX_BODY_MEMORY_BYTES,
            outbuf_overflow=_MAX_RESPONSE_MEMORY_BYTES,
        )
        self._dispatcher = server.task_dispatcher
        self.wsgi.db.metrics.threads.set(self.cfg.threads)
        self._servers = connections.servers
        self._paused = False
        self._checked_at = 0.0

    def _stop_listening(self) -> None:
        """Close the listening sockets of this process. If no other process will, first accept the waiting connections.

        After all processes have closed the sockets, connections fail, and proxies immediately choose another server. In
        a reload the new workers also have the sockets, and accept the waiting connections. In a restart the next
        service accepts them if systemd keeps the sockets.
        """
        for server in self._servers:
            if self.app.stopping[0]:
                if sys.platform == 'linux' and server.socket.family != socket.AF_UNIX:
                    # The kernel would reset a connection that arrives between the last ``accept`` and ``close``. With
                    # this filter it drops the packets to the listener. So the client sends the first one again after a
                    # second, and the connection is refused. A Unix socket has no file by now.
                    program = struct.pack('HP', 1, ctypes.addressof(_DROP_ALL))
                    server.socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
                waiting = select.poll()
                waiting.register(server.socket, select.POLLIN)
                # The limit is necessary, because a connection keeps waiting if there is no file descriptor for it.
                for _ in range(self.cfg.backlog):
                    if not waiting.poll(0):
                        break
                    server.handle_accept()
            # The server's own method would also close objects that its connections need.
            wasyncore.dispatcher.close(server)

    def _run_once(self) -> None:
        """Wait at most a second for sockets, and handle their events. Check timeouts and threads once a second.

        While all threads are busy, accept connections only after a pause in which other workers may accept them.
        """
        busy = self._dispatcher.active_count >= self.cfg.threads
        self._paused = busy and not self._paused
        for server in self._servers:
            server.accepting = not self._paused and not self._connections.stopped_at
            self._connections.sockets.update(server)
        wait = _LOOP_INTERVAL_SECONDS
        if busy:
            wait = _ACCEPT_PAUSE_SECONDS if self._paused else 0.0
        self._connections.sockets.run_once(wait)
        now = time.monotonic()
        if now - self._checked_at >= _LOOP_INTERVAL_SECONDS:
            self._checked_at = now
            self.notify()
            self._dispatcher.watch()
            self._connections.reap()


class _SignalPipe(wasyncore.file_dispatcher):
    """Reads the pipe to which Python writes one byte for each signal. So a signal ends the wait for sockets."""

    def writable(self) -> bool:
        return False

    def handle_read(self) -> None:
        self.recv(4096)


def _raise_file_limit(connections: int) -> int:
    """Raise the limit of open files for ``connections``. Return the number of connections that it then allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = connections * _CLIENT_FILE_DESCRIPTORS + _OTHER_FILE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return min(connections, max(limit - _OTHER_FILE_DESCRIPTORS, limit // 2) // _CLIENT_FILE_DESCRIPTORS)
