"""The threads of a worker process: several for requests, and one for each health check.

The methods that it overrides are not documented. They were read in waitress 3.0.2.
"""

from __future__ import annotations

import collections
import sys
import time
import traceback
from collections.abc import Iterable
from typing import Any

from oslo_log import log
from waitress.task import ThreadedTaskDispatcher

from placement.web.health_check import METHODS

LOG = log.getLogger(__name__)

#: The threads are stuck if none has taken a request from the queue for this time.
STUCK_SECONDS = 2.0
#: What a thread waits for if its stack has a function of this package.
_BACKENDS = {'keystonemiddleware': 'Keystone', 'sqlalchemy': 'the database'}


class Threads(ThreadedTaskDispatcher):
    """The threads of a process. A health check does not wait for the threads that process requests.

    :param count: the number of threads that process requests.
    :param health_paths: the paths of the health checks. Each has its own thread.
    """

    def __init__(self, count: int, health_paths: Iterable[str]) -> None:
        super().__init__()
        #: A sentence if the threads are stuck, for example because Keystone does not respond.
        self.problem: str | None = None
        self._health_threads = {path: ThreadedTaskDispatcher() for path in health_paths}
        self._next_request: Any = None
        self._next_request_since = 0.0
        self.set_thread_count(count)
        for threads in self._health_threads.values():
            threads.set_thread_count(1)

    def add_task(self, task: Any) -> None:
        """Let a thread process the first request of a channel."""
        request = task.requests[0]
        is_check = not request.error and request.command in METHODS and request.path in self._health_threads
        if is_check:
            self._health_threads[request.path].add_task(task)
        else:
            super().add_task(task)

    def watch(self) -> None:
        """Find out whether the threads are stuck, and log it once. Call this about once a second."""
        with self.lock:
            request = self.queue[0].requests[0] if self.queue else None
            waiting = len(self.queue)
        now = time.monotonic()
        if request is not self._next_request:
            self._next_request, self._next_request_since = request, now
        seconds = now - self._next_request_since
        if request is not None and seconds >= STUCK_SECONDS:
            problem = f'No thread has become free for {seconds:.0f} seconds: {_occupations()}.'
            if self.problem is None:
                LOG.warning('%s Requests that wait for a thread: %d', problem, waiting)
            self.problem = problem
        elif self.problem is not None:
            self.problem = None
            LOG.info('Threads have become free again')


def _occupations() -> str:
    """Return what the busy threads do, such as ``8 wait for Keystone``."""
    occupations: collections.Counter[str] = collections.Counter()
    for top in sys._current_frames().values():  # noqa: SLF001
        modules = {frame.f_globals['__name__'] for frame, _ in traceback.walk_stack(top)}
        packages = {module.partition('.')[0] for module in modules}
        backend = next((backend for package, backend in _BACKENDS.items() if package in packages), None)
        if 'placement.serving.channel' in modules and backend:
            occupations[f'wait for {backend}'] += 1
    return ', '.join(f'{count} {occupation}' for occupation, count in occupations.items()) or 'all are busy'
