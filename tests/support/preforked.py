"""Commands in processes of their own that begin with all modules imported, which takes most of the time otherwise."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pathlib
import pkgutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence

from placement import cmd
from placement.cmd import api, manage, status

# A command imports what it needs when it runs. Here the first process imports all of it, once for all commands.
for _module in pkgutil.iter_modules(cmd.__path__, f'{cmd.__name__}.'):
    importlib.import_module(_module.name)

_START = multiprocessing.get_context('forkserver')
_START.set_forkserver_preload([__name__])

#: The functions of the commands, which take the arguments.
MAINS: dict[str, Callable[[Sequence[str]], int]] = {
    'placement-api': api.main,
    'placement-manage': manage.main,
    'placement-status': status.main,
}
SECONDS = 60


def run(
    program: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    cwd: pathlib.Path | None = None,
    terminal: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of ``MAINS``; what it ended with and wrote. Warnings but for unclosed files are errors in it.

    :param terminal: the path of a terminal for its standard input and output; what it writes there is not returned.
    :raises TimeoutExpired: it goes on for longer than ``SECONDS``.
    """
    with tempfile.TemporaryDirectory() as directory:
        written = [pathlib.Path(directory, name) for name in ('stdout', 'stderr')]
        files = [terminal or os.devnull, terminal or str(written[0]), str(written[1])]
        process = _START.Process(target=_run, args=(program, list(arguments), dict(environ), cwd, files))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(program, SECONDS)
        texts = [file.read_text() if file.exists() else '' for file in written]
        return subprocess.CompletedProcess(list(arguments), process.exitcode, *texts)


def _run(
    program: str, arguments: list[str], environ: dict[str, str], cwd: pathlib.Path | None, files: list[str]
) -> None:
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOCTTY), number)
    sys.stdin = os.fdopen(0, closefd=False)
    if cwd:
        os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    warnings.simplefilter('error')
    warnings.simplefilter('ignore', ResourceWarning)
    # oslo.upgradecheck uses a constant that prettytable deprecates.
    warnings.filterwarnings('ignore', module='oslo_upgradecheck')
    sys.exit(MAINS[program](arguments))
