"""placement-api in a process of its own that begins with all modules imported, for arguments that it rejects."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence

from placement.cmd import api

_START = multiprocessing.get_context('forkserver')
_START.set_forkserver_preload([__name__])


def placement_api(
    arguments: Sequence[str], cwd: pathlib.Path, environ: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run ``placement-api`` with these arguments; what it ended with and wrote. Warnings are errors in it.

    :raises TimeoutExpired: it goes on for longer than ``seconds``.
    """
    with tempfile.TemporaryDirectory() as directory:
        files = [pathlib.Path(directory, name) for name in ('stdout', 'stderr')]
        process = _START.Process(target=_run, args=(list(arguments), cwd, dict(environ), files))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired('placement-api', seconds)
        return subprocess.CompletedProcess(list(arguments), process.exitcode, *(file.read_text() for file in files))


def _run(arguments: list[str], cwd: pathlib.Path, environ: dict[str, str], files: list[pathlib.Path]) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    warnings.simplefilter('error')
    sys.exit(api.main(arguments))
