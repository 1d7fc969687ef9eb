"""The addresses on which placement-api listens.

The names of gunicorn are not documented. They were read in gunicorn 23.0.0 to 27.0.1.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from gunicorn import systemd, util

from placement import exception
from placement.serving import single_process

#: The address of a listening socket: host and port (for IPv6 also flow and scope), or the path of a Unix socket.
Address = tuple[Any, ...] | str


def inherited() -> list[Address]:
    """Return the addresses of the sockets that gunicorn takes from systemd or from a previous gunicorn process."""
    descriptors = [int(fd) for fd in os.environ.get('GUNICORN_FD', '').split(',') if fd]
    if count := systemd.listen_fds(unset_environment=False):
        descriptors = list(range(systemd.SD_LISTEN_FDS_START, systemd.SD_LISTEN_FDS_START + count))
    addresses = []
    for fd in descriptors:
        with socket.socket(fileno=os.dup(fd)) as listening:
            addresses.append(listening.getsockname())
    return addresses


def listen(bind: str, backlog: int) -> socket.socket | None:
    """Return a socket that listens on ``bind``; None for the path of a Unix socket, which gunicorn makes.

    :raises ConfigurationInvalid: it is not an address, or cannot be listened on.
    """
    try:
        address = util.parse_address(bind, default_port='8778')
    except RuntimeError as error:
        raise exception.ConfigurationInvalid(reason=f'--bind {bind}: {error}') from error
    if not isinstance(address, tuple):
        return None
    # gunicorn itself would try to bind five times in five seconds, and log ten lines about a failure.
    host, port = address
    return single_process.listen(bind, host, port, backlog)
