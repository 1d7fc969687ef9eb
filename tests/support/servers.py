"""Real ``placement-api`` processes for the tests: started on a database, watched, broken and stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.conf.options import MAX_MICROVERSIONS
from tests.support.waiting import wait_until

STOP_SECONDS = 60


class ServerError(Exception):
    """A server did not come up or did not stop; the message ends with its log."""


@dataclasses.dataclass
class Server:
    """One ``placement-api`` with its worker processes."""

    url: str
    #: None when it was started without metrics.
    metrics_url: str | None
    log: pathlib.Path
    process: subprocess.Popen[bytes]

    def wait_until_ready(self) -> None:
        """Return when the root document is answered. Raises ServerError."""

        def is_ready() -> bool:
            if self.process.poll() is not None:
                raise ServerError(f'placement-api ended with status {self.process.returncode}:\n{self.tail()}')
            return all(_answers(url) for url in (self.url, self.metrics_url) if url)

        wait_until(is_ready, self.tail)

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return [pid for pid in children(self.process.pid) if 'exporter' not in _command_line(pid)]

    def exporter(self) -> int | None:
        """The process id of the exporter, None while it does not run."""
        exporters = [pid for pid in children(self.process.pid) if 'exporter' in _command_line(pid)]
        return exporters[0] if exporters else None

    def retries(self) -> int:
        """The number of retried transactions of all workers since the start."""
        assert self.metrics_url is not None
        with urllib.request.urlopen(self.metrics_url, timeout=STOP_SECONDS) as answer:
            text = answer.read().decode()
        return int(sum(float(value) for value in re.findall(r'^\w*retries_total(?:{.*})? (\S+)$', text, re.MULTILINE)))

    def tail(self, lines: int = 40) -> str:
        """The end of the log."""
        return '\n'.join(self.log.read_text(errors='replace').splitlines()[-lines:])

    def stop(self) -> None:
        """Stop it and wait. Raises ServerError when it has to be killed or ends with an error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise ServerError(f'placement-api did not stop within {STOP_SECONDS} s:\n{self.tail()}') from None
        if status:
            raise ServerError(f'placement-api ended with status {status}:\n{self.tail()}')


def launch(
    database_url: str,
    directory: pathlib.Path,
    *,
    workers: int = 2,
    threads: int = 8,
    metrics: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start ``placement-api`` on a database, with every microversion; does not wait. ``directory`` keeps its log."""
    port = free_port()
    metrics_bind = f'127.0.0.1:{free_port()}' if metrics else None
    log = directory / f'placement-api-{port}.log'
    settings = {
        'OS_PLACEMENT_CONFIG_DIR': str(directory),
        'OS_PLACEMENT_DATABASE__CONNECTION': database_url,
        'OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP': 'true',
        'OS_API__AUTH_STRATEGY': 'noauth2',
        'OS_PLACEMENT__MAX_MICROVERSION': MAX_MICROVERSIONS[-1],
        **({'OS_METRICS__BIND': metrics_bind} if metrics_bind else {}),
        **(environment or {}),
    }
    bind = f'127.0.0.1:{port}'
    program = str(pathlib.Path(sys.executable).with_name('placement-api'))
    with log.open('wb') as output:
        process = subprocess.Popen(
            [program, '--bind', bind, '--workers', str(workers), '--threads', str(threads)],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(f'http://{bind}', f'http://{metrics_bind}/metrics' if metrics_bind else None, log, process)


@contextlib.contextmanager
def serving(database_url: str, directory: pathlib.Path, **options: Any) -> Iterator[Server]:
    """A ready server that ``launch`` started, stopped at the end. Its metrics take another process."""
    server = launch(database_url, directory, **options)
    with ready([server]):
        yield server


@contextlib.contextmanager
def ready(started: Sequence[Server]) -> Iterator[None]:
    """Wait until all of ``started`` are ready, and stop every one of them at the end."""
    with contextlib.ExitStack() as stack:
        for server in started:
            stack.callback(server.stop)
        for server in started:
            server.wait_until_ready()
        yield


def free_port() -> int:
    """A free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def children(pid: int) -> list[int]:
    """The process ids of the children of a process."""
    pids = []
    for status in pathlib.Path('/proc').glob('[0-9]*/stat'):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            # After the name of the program, which may have blanks: the state and the parent.
            if int(status.read_text().rpartition(')')[2].split()[1]) == pid:
                pids.append(int(status.parent.name))
    return sorted(pids)


def threads(pid: int) -> int:
    """The number of threads of a process; 0 once it has ended."""
    try:
        return len(list(pathlib.Path(f'/proc/{pid}/task').iterdir()))
    except OSError:
        return 0


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{pid}/cmdline').read_text()
    return ''


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
