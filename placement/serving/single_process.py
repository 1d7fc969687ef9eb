"""Serves an application from the current process alone: the exporter and the page of operators."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from wsgiref.types import WSGIApplication

from placement import exception
from placement.serving.channel import ConnectionTable

#: The limits for connections, like the limits of ``[server]`` for the API.
_MAX_CONNECTIONS, _REQUEST_READ_TIMEOUT, _KEEPALIVE_TIMEOUT = 100, 5.0, 75.0
_THREADS = 8


def listen(bind: str, host: str, port: int, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens on an address.

    :param bind: the address as the user wrote it, for the error.
    :param host: a name or an address without brackets.
    :raises ConfigurationInvalid: it cannot be listened on, for example because another process uses the port.
    """
    try:
        family, *_ = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OverflowError:
        reason = 'a port is a number below 65536'
    except socket.gaierror as error:
        reason = error.strerror or str(error)
    except OSError as error:
        # The text of the error repeats the address.
        reason = os.strerror(error.errno) if error.errno else str(error)
    raise exception.ConfigurationInvalid(reason=f'Cannot listen on {bind}: {reason}.')


def serve(
    application: WSGIApplication,
    listener: socket.socket,
    is_over: Callable[[], bool] = lambda: False,
    health_paths: Iterable[str] = (),
) -> None:
    """Serve until ``is_over``, which is called at least once a second.

    :param health_paths: paths of requests that do not wait for a thread.
    """
    connections = ConnectionTable(_MAX_CONNECTIONS, _REQUEST_READ_TIMEOUT, _KEEPALIVE_TIMEOUT)
    server = connections.listen(application, [listener], _THREADS, health_paths)
    while not is_over():
        connections.sockets.run_once(1.0)
        connections.reap()
        server.task_dispatcher.watch()
