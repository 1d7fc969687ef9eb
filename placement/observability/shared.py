"""The metrics of all processes that store them in one directory, and the figures of the system about these."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

#: The file for the ``livesum`` gauges of a process. Each process that serves requests has one, made by ``Saturation``.
_FILE = re.compile(r'gauge_livesum_(\d+)\.db')

_LABELS = ('process', 'pid')
_FAMILIES: tuple[Metric, ...] = (
    CounterMetricFamily('placement_process_cpu_seconds', 'Processor time of a process.', labels=_LABELS),
    GaugeMetricFamily('placement_process_resident_memory_bytes', 'Memory of a process.', labels=_LABELS),
    GaugeMetricFamily('placement_process_virtual_memory_bytes', 'Address space of a process.', labels=_LABELS),
    GaugeMetricFamily('placement_process_start_time_seconds', 'When a process was started.', labels=_LABELS),
    GaugeMetricFamily('placement_process_open_fds', 'Open files of a process.', labels=_LABELS),
    GaugeMetricFamily('placement_process_max_fds', 'Files that a process may have open.', labels=_LABELS),
)


def registry(directory: str) -> CollectorRegistry:
    """Make a registry from which the metrics of all processes can be read.

    :param directory: the value of ``PROMETHEUS_MULTIPROC_DIR`` of these processes.
    """
    made = CollectorRegistry()
    # Registered first, so that the files of ended processes are removed before the other collector reads them.
    made.register(Processes(pathlib.Path(directory)))
    MultiProcessCollector(made, directory)  # type: ignore[no-untyped-call]
    return made


class Processes(Collector):
    """Processor time, memory and open files of each process, as far as this process may read them.

    Collecting also removes the files with the gauges of processes that have ended.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples."""
        return _FAMILIES

    def collect(self) -> Iterable[Metric]:
        """Return the families with a sample for each process."""
        families = {family.name: Metric(family.name, family.documentation, family.type) for family in _FAMILIES}
        for pid in self._living():
            role = {os.getpid(): 'exporter', os.getppid(): 'server'}.get(pid, 'worker')
            labels = {'process': role, 'pid': str(pid)}
            for family in ProcessCollector('placement', functools.partial(int, pid), registry=None).collect():
                for sample in family.samples:
                    families[family.name].add_sample(sample.name, labels, sample.value)
        return families.values()

    def _living(self) -> Iterator[int]:
        found = (_FILE.fullmatch(path.name) for path in self._directory.iterdir())
        for pid in sorted(int(match[1]) for match in found if match):
            if _lives(pid):
                yield pid
            else:
                mark_process_dead(pid, str(self._directory))  # type: ignore[no-untyped-call]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
