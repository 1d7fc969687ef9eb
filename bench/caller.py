"""A caller in a process of its own, so that several do not share one interpreter: ``python -m bench.caller``.

It reads a job as one line of JSON, writes ``ready``, waits for a line, works, and writes a line of JSON about it.
A job has ``port``, ``microversion`` and ``requests`` (of method, path, body, microversion or null), and may have:

* ``repeat``: send the requests again and again until standard input ends;
* ``interval``: the seconds between the starts of two requests, instead of one after the other;
* ``reconnect``: send each request over a new connection, so that any process of the service may accept it;
* that of a floor, ``database`` (the driver's module and its arguments), ``row``, and ``statements``, one number for
  each request of a cycle: so many statements, in a transaction of the bare driver, are run before it.
"""

from __future__ import annotations

import collections
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench import client, driver


def main() -> None:
    """Do one job."""
    job = json.loads(sys.stdin.readline())
    connection = client.Connection(job['port'])
    encoded = [client.Request(*request).encode(job['microversion']) for request in job['requests']]
    before = _transactions(job)
    print('ready', flush=True)
    sys.stdin.readline()
    work = _work(job, connection, before, _endless(encoded) if job.get('repeat') else encoded)
    print(json.dumps(work), flush=True)


def _endless(encoded: list[bytes]) -> Iterable[bytes]:
    """Repeat the requests until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    # Whole rounds only, so that every claim is deleted.
    return itertools.chain.from_iterable(iter(lambda: [] if ended.is_set() else encoded, []))


def _transactions(job: dict[str, Any]) -> Iterable[Callable[[], None]]:
    """The transaction before each request."""
    if not job.get('database'):
        return itertools.repeat(lambda: None)
    database = driver.Driver(*job['database'])

    def transaction(statements: int) -> Callable[[], None]:
        return lambda: database.transaction(statements, job['row']) if statements else None

    return map(transaction, itertools.cycle(job['statements']))


def _work(
    job: dict[str, Any], connection: client.Connection, before: Iterable[Callable[[], None]], encoded: Iterable[bytes]
) -> dict[str, Any]:
    interval, reconnect = job.get('interval', 0.0), job.get('reconnect')
    statuses: collections.Counter[int] = collections.Counter()
    milliseconds = []
    started = time.monotonic()
    for number, (prepare, request) in enumerate(zip(before, encoded, strict=False)):
        if interval:
            time.sleep(max(0.0, started + number * interval - time.monotonic()))
        if reconnect:
            connection.close()
        begun = time.perf_counter()
        prepare()
        statuses[connection.send(request).status] += 1
        milliseconds.append((time.perf_counter() - begun) * 1000)
    return {'started': started, 'ended': time.monotonic(), 'statuses': statuses, 'milliseconds': milliseconds}


if __name__ == '__main__':
    main()
