"""Placement itself, as an operator runs it: a configuration directory and ``placement-api``."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.integration import services
from tests.support import servers

LOG = 'placement-api.log'
BIN = pathlib.Path(sys.executable).parent
UWSGI_SAMPLE = pathlib.Path(__file__).parents[3] / 'etc' / 'uwsgi' / 'placement.ini'

#: Replaces itself by the program in its arguments, with a socket as file descriptor 3, as systemd passes it.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.close(int(sys.argv[1]))
os.environ |= {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""


def write_configuration(directory: pathlib.Path, **groups: Mapping[str, Any]) -> pathlib.Path:
    """Write ``placement.conf`` into a directory, and return the directory.

    Defaults: SQLite in that directory, the schema created at start, and the strategy ``noauth2``.
    """
    values: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': f'sqlite:///{directory}/placement.sqlite', 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    for group, options in groups.items():
        values.setdefault(group, {}).update(options)
    lines = [f'[{group}]\n' + ''.join(f'{k} = {v}\n' for k, v in options.items()) for group, options in values.items()]
    directory.joinpath('placement.conf').write_text('\n'.join(lines))
    return directory


def environ(directory: pathlib.Path, **extra: str) -> dict[str, str]:
    """The environment in which the programs of the service use the configuration in ``directory``."""
    return services.clean_environ(OS_PLACEMENT_CONFIG_DIR=str(directory), **extra)


@contextlib.contextmanager
def served(directory: pathlib.Path, *arguments: str, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run ``placement-api`` with the configuration in ``directory`` on a free port: its URL, and the process.

    The URL has no slash at the end. What the server prints is in ``placement-api.log`` in the directory.
    """
    address = f'127.0.0.1:{servers.free_port()}'
    command = [str(BIN / 'placement-api'), '--bind', address, *arguments]
    environment = environ(directory, **variables)
    with services.running(command, f'http://{address}', directory / LOG, environment) as process:
        yield f'http://{address}', process


@contextlib.contextmanager
def served_on(listener: socket.socket, directory: pathlib.Path, *arguments: str) -> Iterator[None]:
    """Run ``placement-api`` on a listening socket, passed as systemd does."""
    host, port = listener.getsockname()
    command = [sys.executable, '-c', HAND_OVER, str(listener.fileno()), str(BIN / 'placement-api'), *arguments]
    with services.running(
        command, f'http://{host}:{port}', directory / LOG, environ(directory), pass_fds=(listener.fileno(),)
    ):
        yield


def uwsgi_ini(home: pathlib.Path, port: int, programs: pathlib.Path) -> pathlib.Path:
    """The sample with other paths, and HTTP on a port of the test instead of the protocol of uWSGI on a socket."""
    text = UWSGI_SAMPLE.read_text()
    for sample, ours in (
        ('socket = /run/placement/uwsgi.sock\n', f'http-socket = 127.0.0.1:{port}\n'),
        ('chown-socket = placement:www-data\nchmod-socket = 660\n', ''),
        ('/run/placement/uwsgi.fifo', f'{home}/uwsgi.fifo'),
        ('/opt/placement/bin/python', f'{programs}/python'),
    ):
        assert text.count(sample) == 1, sample
        text = text.replace(sample, ours)
    home.joinpath('placement.ini').write_text(text)
    return home / 'placement.ini'
