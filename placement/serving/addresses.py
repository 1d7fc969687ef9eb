"""The addresses on which placement-api listens.

The names of gunicorn are not documented. They were read in gunicorn 23.0.0 to 27.0.1.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from gunicorn import util
from gunicorn.systemd import SD_LISTEN_FDS_START

from placement import exception

#: The address of a listening socket: host and port (for IPv6 also flow and scope), or the path of a Unix socket.
Address = tuple[Any, ...] | str


def inherited() -> list[Address]:
    """Return the addresses of the sockets that gunicorn takes from systemd or from a previous gunicorn process."""
    descriptors = [int(fd) for fd in os.environ.get('GUNICORN_FD', '').split(',') if fd]
    if os.environ.get('LISTEN_PID') == str(os.getpid()):
        count = int(os.environ.get('LISTEN_FDS', '0'))
        descriptors = list(range(SD_LISTEN_FDS_START, SD_LISTEN_FDS_START + count))
    addresses = []
    for fd in descriptors:
        with socket.socket(fileno=os.dup(fd)) as listening:
            addresses.append(listening.getsockname())
    return addresses


def resolve(bind: str) -> list[Address]:
    """Return the addresses and ports that ``bind`` resolves to, or the path of a Unix socket.

    :raises ConfigurationInvalid: it is not an address, or the name cannot be resolved.
    """
    try:
        address = util.parse_address(bind, default_port='8778')
        if not isinstance(address, tuple):
            return [bind]
        host, port = address
        names = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (RuntimeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise exception.ConfigurationInvalid(reason=f'--bind {bind}: {reason}') from error
    # getaddrinfo would take other numbers modulo 65536.
    if not 0 <= port < 65536:
        raise exception.ConfigurationInvalid(reason=f'--bind {bind}: a port is a number below 65536.')
    return [name for *_kind, name in names]
