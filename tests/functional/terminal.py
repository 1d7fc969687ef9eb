"""Runs placement-manage on a terminal of 80 columns."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pty
import re

from tests.support import preforked


def shown_by(*arguments: str, **environ: str) -> list[str]:
    """The lines that ``placement-manage`` prints, without colors. It must succeed."""
    leader, follower = pty.openpty()
    settings = {**os.environ, 'COLUMNS': '80', 'TERM': 'xterm', **environ}
    if 'LESS' not in environ:
        settings.pop('LESS', None)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        printed = pool.submit(_read, leader)
        ended = preforked.run('placement-manage', arguments, settings, terminal=os.ttyname(follower))
        os.close(follower)
    assert ended.returncode == 0, ended.stderr
    text = re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', printed.result())
    return [line.rstrip() for line in text.splitlines()]


def _read(leader: int) -> str:
    """What is written to a terminal until it is closed; closes the other end as well."""
    printed = b''
    with contextlib.suppress(OSError):  # A closed terminal raises this error.
        while piece := os.read(leader, 65536):
            printed += piece
    os.close(leader)
    return printed.decode()
