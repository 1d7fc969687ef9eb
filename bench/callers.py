"""Several callers at once, each a process of its own (``bench.caller``)."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench.client import Request

#: The directory of the package, for processes that import it.
ROOT = pathlib.Path(__file__).parents[1]


class Caller:
    """One caller."""

    def __init__(self, port: int, microversion: str, requests: Sequence[Request], **more: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-m', 'bench.caller'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            # Ctrl-C must reach the command only, which ends its callers.
            start_new_session=True,
        )
        self._write_line(json.dumps({'port': port, 'microversion': microversion, 'requests': requests, **more}))

    def wait_until_ready(self) -> None:
        """Return when it is connected and ready to begin."""
        self._read_line()

    def go(self) -> None:
        """Start it."""
        self._write_line('go')

    def result(self) -> dict[str, Any]:
        """Its result, when it is done; stops one that repeats its requests."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return dict(json.loads(self._read_line()))

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.wait()

    def _write_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + '\n')
        self._process.stdin.flush()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError('a caller ended early; its output is above')
        return line


class Round(NamedTuple):
    """The result of several callers."""

    seconds: float
    #: Of the requests of each caller.
    milliseconds: list[list[float]]

    @property
    def requests(self) -> int:
        """The number of requests of all callers."""
        return sum(map(len, self.milliseconds))


def run(
    port: int, microversion: str, scripts: Sequence[Sequence[Request]], floor: dict[str, Any] | None = None
) -> Round:
    """Run one caller for each script that is not empty, all at once, and wait for them.

    :param floor: further members of the jobs of callers of a floor: ``database`` and ``statements``.
    :raises RuntimeError: a response was not 2xx.
    """
    jobs = [{'port': port, 'requests': requests} for requests in scripts if requests]
    return run_jobs(microversion, [{**job, 'row': row, **(floor or {})} for row, job in enumerate(jobs)])


def run_jobs(microversion: str, jobs: Sequence[dict[str, Any]]) -> Round:
    """Run one caller for each job (``bench.caller``), all at once, and wait for them.

    :raises RuntimeError: a response was not 2xx.
    """
    with contextlib.ExitStack() as stack:
        callers = []
        for job in jobs:
            callers.append(Caller(microversion=microversion, **job))
            stack.callback(callers[-1].close)
        for caller in callers:
            caller.wait_until_ready()
        for caller in callers:
            caller.go()
        done = [caller.result() for caller in callers]
    _check(done)
    seconds = max(one['ended'] for one in done) - min(one['started'] for one in done)
    return Round(seconds, [one['milliseconds'] for one in done])


@contextlib.contextmanager
def repeating(port: int, microversion: str, requests: Sequence[Request]) -> Iterator[None]:
    """One caller that repeats the same requests as long as the context lasts.

    :raises RuntimeError: at the end, a response was not 2xx.
    """
    caller = Caller(port, microversion, requests, repeat=True)
    try:
        caller.wait_until_ready()
        caller.go()
        yield
        _check([caller.result()])
    finally:
        caller.close()


def _check(done: Sequence[dict[str, Any]]) -> None:
    failed = {status for one in done for status in one['statuses'] if not status.startswith('2')}
    if failed:
        counts = [one['statuses'] for one in done]
        raise RuntimeError(f'requests that should all succeed were answered with {counts}')
