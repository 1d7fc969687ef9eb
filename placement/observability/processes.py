"""The metrics of all processes with one directory, and the system's figures about these processes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector


def registry(directory: str) -> CollectorRegistry:
    """Make a registry with the metrics of all processes.

    :param directory: the value of ``PROMETHEUS_MULTIPROC_DIR`` of these processes.
    """
    all_processes = CollectorRegistry()
    # This comes first, so that it removes the gauges of ended processes before the other collector reads them.
    all_processes.register(Processes(pathlib.Path(directory)))
    all_processes.register(_Counts(directory))
    return all_processes


class _Counts(MultiProcessCollector):
    """The metrics in the files of all processes."""

    def __init__(self, directory: str) -> None:
        super().__init__(None, directory)  # type: ignore[no-untyped-call]
        self._directory = pathlib.Path(directory)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. Skip files that a starting process has created but not yet filled."""
        paths = []
        for path in self._directory.glob('*.db'):
            # The process may have ended, and another one may have removed its gauges.
            with contextlib.suppress(FileNotFoundError):
                # For an empty file prometheus_client would raise struct.error, and the scrape would fail.
                if path.stat().st_size:
                    paths.append(str(path))
        return self.merge(paths)  # type: ignore[no-untyped-call]


class ProcessNumber:
    """The unique number of this process in the names of the files with its values.

    prometheus_client would use the process id, and each process would leave files that every scrape reads. Instead, the
    next process takes the number of an ended process, and continues its counts.

    A process has a number as long as it locks the file of the number. The file contains the process id.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._pid: int | None = None
        self._lock = -1

    def __call__(self) -> int:
        """Return the number. A forked process gets another one."""
        if self._pid != os.getpid():
            if self._pid is not None:
                # The lock belongs to the parent process.
                os.close(self._lock)
            self._pid = os.getpid()
            locks = ((number, _locked(self._directory / f'{number}.lock')) for number in itertools.count())
            self._number, self._lock = next((number, lock) for number, lock in locks if lock is not None)
            os.truncate(self._lock, 0)
            os.write(self._lock, str(self._pid).encode())
            mark_process_dead(self._number, str(self._directory))  # type: ignore[no-untyped-call]
        return self._number


def _locked(path: pathlib.Path) -> int | None:
    """Lock a file until the returned descriptor is closed. Return None if another process has locked it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


class Processes(Collector):
    """The processor time, memory and open files of each process that this process may read.

    Collecting also removes the files with the gauges of ended processes.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        """Return the families with a sample for each process."""
        families: dict[str, Metric] = {}
        for pid in self._living():
            role = {os.getpid(): 'exporter', os.getppid(): 'server'}.get(pid, 'worker')
            labels = {'process': role, 'pid': str(pid)}
            for family in ProcessCollector('placement', functools.partial(int, pid), registry=None).collect():
                all_processes = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    all_processes.add_sample(sample.name, labels, sample.value)
        return families.values()

    def _living(self) -> Iterator[int]:
        for path in self._directory.glob('*.lock'):
            lock = _locked(path)
            if lock is not None:
                mark_process_dead(path.stem, str(self._directory))  # type: ignore[no-untyped-call]
                os.close(lock)
            elif pid := path.read_text():
                yield int(pid)
