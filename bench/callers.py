"""Several callers at once, each a process, so that they do not share one interpreter."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.synchronize import Barrier, Event
from typing import Any

from bench.client import Connection

_CONTEXT = multiprocessing.get_context('forkserver')
#: The longest time until all callers are ready to start.
_START_SECONDS = 300.0

#: In the process of a caller: where the callers wait for each other, and what tells them to stop.
_start: Barrier
_stop: Event


@contextlib.contextmanager
def running(*calls: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """Make each call in a process of its own; they have started when the context begins, and are stopped at its end.

    :param calls: partials of functions of modules. Each calls ``wait_for_start`` once, when it is ready.
    :raises Exception: that of a call.
    """
    start, stop = _CONTEXT.Barrier(len(calls) + 1), _CONTEXT.Event()
    with ProcessPoolExecutor(len(calls), _CONTEXT, _initialize, (start, stop)) as executor:
        futures = [executor.submit(_call, call) for call in calls]
        try:
            # Broken by a caller that has failed, whose exception says why.
            with contextlib.suppress(threading.BrokenBarrierError):
                start.wait(_START_SECONDS)
                yield futures
        finally:
            stop.set()
        for future in futures:
            future.result()


def _call(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except threading.BrokenBarrierError:
        # Another caller has failed.
        return None
    except BaseException:
        _start.abort()
        raise


def _initialize(start: Barrier, stop: Event) -> None:
    global _start, _stop
    _start, _stop = start, stop
    # Ctrl-C is for the command, which stops its callers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def wait_for_start() -> None:
    """Return when all callers are ready, in the process of a caller."""
    _start.wait(_START_SECONDS)


def is_stopped() -> bool:
    """Return whether the context of this caller has ended."""
    return _stop.is_set()


def send_all(port: int, requests: Sequence[bytes]) -> float:
    """Send requests over one connection, and return the time of the last response on the monotonic clock."""
    with Connection(port) as connection:
        wait_for_start()
        for request in requests:
            connection.send(request)
    return time.monotonic()


def repeat(port: int, requests: Sequence[bytes]) -> None:
    """Send the same requests over one connection until the caller is stopped, the last time to the end."""
    with Connection(port) as connection:
        wait_for_start()
        while not is_stopped():
            for request in requests:
                connection.send(request)


def seconds(port: int, scripts: Sequence[Sequence[bytes]]) -> float:
    """Run one caller for each script, all at once, and return the time until the last response."""
    with running(*(functools.partial(send_all, port, script) for script in scripts if script)) as futures:
        started = time.monotonic()
        return max(future.result() for future in futures) - started
