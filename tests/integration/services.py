"""What tests beside real servers share: their programs and virtual environments, and commands that must succeed."""

from __future__ import annotations

import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import httpx
import pytest

import placement
from tests.support import servers

#: Longer than an installation, and than any other command, takes on a busy machine.
INSTALL_SECONDS = 600
START_SECONDS = 60
#: Sends a request. By default httpx waits for five seconds, which is too short on a busy machine.
fetch = functools.partial(httpx.request, timeout=START_SECONDS)
ROOT = str(pathlib.Path(placement.__file__).parents[1])


def unavailable(part: str, reason: str) -> NoReturn:
    """Fail a test that needs ``part`` (a word such as ``nginx``)."""
    pytest.fail(f'{part} is missing: {reason}')


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


def run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return its standard output. The test fails when the command does."""
    ran = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        env=servers.clean_environ() if environ is None else dict(environ),
    )
    if ran.returncode:
        pytest.fail(f'{" ".join(command)} ended with {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}')
    return ran.stdout


def import_path() -> str:
    """``PYTHONPATH`` with which another interpreter of the same version can import the same modules."""
    return os.pathsep.join(
        dict.fromkeys(path for path in [ROOT, *sys.path] if path == ROOT or path.endswith('site-packages'))
    )
