"""What tests beside real servers share: virtual environments for these, and processes that end with the test."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import httpx
import pytest

import placement
from tests.support import stages
from tests.support.waiting import wait_until

#: Longer than an installation, and than any other command, takes on a busy machine.
INSTALL_SECONDS = 600
START_SECONDS = 60
#: Sends a request. By default httpx waits for five seconds, which is too short on a busy machine.
fetch = functools.partial(httpx.request, timeout=START_SECONDS)
ROOT = str(pathlib.Path(placement.__file__).parents[1])


def unavailable(part: str, reason: str) -> NoReturn:
    """Report that the test needs ``part`` (a word such as ``nginx``) and cannot run.

    Skips with the reason. When ``PLACEMENT_TEST_REQUIRE`` (comma-separated words) names the part or ``operations``,
    it fails instead.
    """
    if {part, 'operations'} & stages.required():
        pytest.fail(f'{part} is required by PLACEMENT_TEST_REQUIRE: {reason}')
    pytest.skip(f'not run, {part} is missing: {reason}')


def program(part: str, name: str) -> str:
    """The full path of an installed program; ``unavailable`` if there is none."""
    path = shutil.which(name, path=f'{os.environ["PATH"]}:/usr/sbin:/sbin')
    if path is None:
        unavailable(part, f'no program {name}; tools/install-operations.sh installs it')
    return path


def environment(part: str, packages: Sequence[str]) -> pathlib.Path:
    """The ``bin`` directory of a virtual environment of its own that has ``packages``.

    It is kept below ``$XDG_CACHE_HOME/placement-tests``, one per interpreter, so only the first run installs.
    """
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'placement-tests'
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f'{part}-{sys.implementation.cache_tag}'
    with open(cache / f'{home.name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install(part, home, packages)
    return home / 'bin'


def _install(part: str, home: pathlib.Path, packages: Sequence[str]) -> None:
    done = home / 'installed.txt'
    requirements = '\n'.join(packages)
    if done.exists() and done.read_text() == requirements:
        return
    shutil.rmtree(home, ignore_errors=True)
    for command in (
        [sys.executable, '-m', 'venv', str(home)],
        [str(home / 'bin' / 'pip'), 'install', '-q', *packages],
    ):
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if ran.returncode:
            unavailable(part, f'{" ".join(command)} failed:\n{ran.stderr[-2000:]}')
    done.write_text(requirements)


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    """A TCP port of the loopback interface that is taken while the block runs."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        yield int(listener.getsockname()[1])


def clean_environ(**extra: str) -> dict[str, str]:
    """The variables of this process without any ``OS_*``, plus ``extra``."""
    return {name: value for name, value in os.environ.items() if not name.startswith('OS_')} | extra


def run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return its standard output. The test fails when the command does."""
    ran = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        env=clean_environ() if environ is None else dict(environ),
    )
    if ran.returncode:
        pytest.fail(f'{" ".join(command)} ended with {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}')
    return ran.stdout


def import_path() -> str:
    """``PYTHONPATH`` with which another interpreter of the same version can import the same modules."""
    return os.pathsep.join(
        dict.fromkeys(path for path in [ROOT, *sys.path] if path == ROOT or path.endswith('site-packages'))
    )


@contextlib.contextmanager
def running(
    command: Sequence[str],
    url: str,
    log: pathlib.Path,
    environ: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    uds: pathlib.Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; enter the block when ``url`` answers, whatever the status.

    ``uds`` is the Unix socket to ask on, when it does not listen on a port. The server inherits ``pass_fds``. Its
    output goes to ``log``. It gets a session of its own, so that its workers end with it.
    """
    with open(log, 'ab') as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            cwd=log.parent,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    try:
        _wait_until_it_answers(process, url, uds, log)
        yield process
    finally:
        _end(process)


def _wait_until_it_answers(
    process: subprocess.Popen[bytes], url: str, uds: pathlib.Path | None, log: pathlib.Path
) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(uds) if uds else None)) as client:

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                if uds is None or _is_listening(uds):
                    client.get(url)
                    return True
            return process.poll() is not None

        wait_until(answers, lambda: f'{process.args!r} answers at {url}:\n{log.read_text()[-4000:]}', pause=0.1)
    if process.poll() is not None:
        pytest.fail(f'{process.args!r} ended:\n{log.read_text()[-4000:]}')


def _is_listening(uds: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(uds)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
