"""The worker process that gunicorn starts, watches and stops."""

from __future__ import annotations

import functools
import logging
import os
import resource
import sys
import time

import waitress
from gunicorn.workers.base import Worker
from oslo_log import log
from waitress import wasyncore
from waitress.server import BaseWSGIServer

from placement.serving.channel import Channel

LOG = log.getLogger(__name__)

#: Bytes of the longest request line and header together.
_MAX_HEAD = 128 * 1024
#: Bytes of a body or an answer that are kept in memory; the rest of a longer one is in a temporary file.
_MAX_IN, _MAX_OUT = 64 * 1024, 16 * 1024 * 1024
#: Bodies up to so many times the longest that is allowed are read, and refused by the application. It is also room
#: for what chunks add to a body.
_MAX_BODIES = 8
#: Files that a process needs besides connections to clients, and the files of a connection.
_OTHER_FILES, _FILES = 512, 2
#: Seconds before gunicorn kills a worker by which it has ended by itself.
_MARGIN = 1.0
#: Seconds for which connections are left to other processes while each thread of this one has a request.
_PAUSE = 0.1
#: Seconds for which a thread computes before another one may go on.
_SWITCH = 0.0005
#: Seconds between looks at the clock.
_TURN = 1.0


class WaitressWorker(Worker):
    """A worker in which waitress serves. Its application has attributes ``clients`` and ``max_body``."""

    def run(self) -> None:
        """Serve until told to stop, then finish what has begun, for as long as ``graceful_timeout`` lets it."""
        self._clients = clients = self.app.clients
        clients.max_connections = _with_files(clients.max_connections)
        self._start()
        while self.alive and self.ppid == os.getppid():
            self._turn()
        deadline = time.monotonic() + max(self.cfg.graceful_timeout - _MARGIN, self.cfg.graceful_timeout / 2)
        clients.stopped = time.monotonic()
        while clients.channels and time.monotonic() < deadline:
            self._turn()
        if count := sum(len(channel.requests) for channel in clients.channels):
            LOG.warning('Stopped without the answers to %d requests: graceful_timeout is over', count)
            self.log.info('Worker exiting (pid: %s)', self.pid)
            # The usual way would let the threads go on while the process is taken apart.
            os._exit(0)
        wasyncore.close_all(clients.sockets)

    def _start(self) -> None:
        # It warns whenever a request waits for a thread.
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)
        # The loop needs the interpreter for moments only, but twice for each request, and waits for it that long.
        sys.setswitchinterval(_SWITCH)
        clients = self._clients
        _Wakener(self.PIPE[0], clients.sockets)
        server = waitress.create_server(
            self.wsgi,
            map=clients.sockets,
            sockets=[listener.sock for listener in self.sockets],
            threads=self.cfg.threads,
            backlog=self.cfg.backlog,
            url_prefix=os.environ.get('SCRIPT_NAME', '').rstrip('/'),
            server_name='localhost',
            ident='',
            # What proxies say in headers is for oslo.middleware to believe or not.
            clear_untrusted_proxy_headers=False,
            # Clients that go away are nothing to log.
            log_socket_errors=False,
            max_request_header_size=_MAX_HEAD,
            max_request_body_size=_MAX_BODIES * self.app.max_body,
            inbuf_overflow=_MAX_IN,
            outbuf_overflow=_MAX_OUT,
            # A thread never waits for a client; Clients has all bounds.
            outbuf_high_watermark=sys.maxsize,
            connection_limit=sys.maxsize,
            channel_timeout=sys.maxsize,
        )
        self._dispatcher = server.task_dispatcher
        self._metrics = self.wsgi.db.metrics
        self._metrics.threads(self.cfg.threads)
        self._servers = [each for each in clients.sockets.values() if isinstance(each, BaseWSGIServer)]
        for each in self._servers:
            each.channel_class = functools.partial(Channel, clients)
        self._paused = False
        self._told = 0.0

    def _turn(self) -> None:
        """Do what there is to do, after waiting for it, but not for longer than a second."""
        busy = self._dispatcher.active_count >= self.cfg.threads
        self._paused = busy and not self._paused
        for server in self._servers:
            server.accepting = not self._paused and not self._clients.stopped
        wasyncore.loop(_PAUSE if busy else _TURN, use_poll=True, map=self._clients.sockets, count=1)
        now = time.monotonic()
        if now - self._told >= _TURN:
            self._told = now
            self.notify()
            self._metrics.requests_waiting(len(self._dispatcher.queue))
            self._clients.sweep()


class _Wakener(wasyncore.file_dispatcher):
    """The end of a pipe out of which the signals of the process come."""

    def writable(self) -> bool:
        return False

    def handle_read(self) -> None:
        self.recv(4096)


def _with_files(connections: int) -> int:
    """Let the process have as many open files as so many connections need, and return how many it can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections * _FILES + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return min(connections, max(wanted - _OTHER_FILES, wanted // 2) // _FILES)
