"""Runs placement-manage on a terminal of 80 columns."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys


def shown_by(*arguments: str, **environ: str) -> list[str]:
    """The lines that ``placement-manage`` prints, without colours. It must succeed."""
    leader, follower = pty.openpty()
    program = [sys.executable, '-m', 'placement.cmd.manage', *arguments]
    settings = {**os.environ, 'COLUMNS': '80', 'TERM': 'xterm', **environ}
    if 'LESS' not in environ:
        settings.pop('LESS', None)
    process = subprocess.Popen(program, stdin=follower, stdout=follower, env=settings, stderr=subprocess.DEVNULL)
    os.close(follower)
    printed = b''
    with contextlib.suppress(OSError):  # A closed terminal raises this error.
        while piece := os.read(leader, 65536):
            printed += piece
    os.close(leader)
    assert process.wait(60) == 0
    return [line.rstrip() for line in re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', printed.decode()).splitlines()]
