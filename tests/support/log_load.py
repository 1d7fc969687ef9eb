"""A process that writes, and notes it in the log, until it is killed. Arguments: URL SEED PROVIDER..."""

from __future__ import annotations

import contextlib
import random
import sys
import threading

import sqlalchemy as sa

from placement import exception
from placement.db.api import Database
from placement.db.errors import RetryTransaction
from tests.support import logs

THREADS = 3


def write(db: Database, choose: random.Random, providers: list[int]) -> None:
    """One transaction: on a few providers; some are rolled back, some tried again."""
    chosen = choose.sample(providers, choose.choice([1, 1, 1, 2, 5]))
    fate = choose.random()
    attempts: list[int] = []

    def work(tx: sa.Connection) -> None:
        logs.move(tx, chosen)
        attempts.append(1)
        if fate < 0.1:
            raise ZeroDivisionError
        if fate < 0.2 and len(attempts) < 3:
            raise RetryTransaction

    with contextlib.suppress(ZeroDivisionError, exception.PlacementError):
        db.write(work)


def main(url: str, seed: str, *providers: str) -> None:
    """Write from several threads, without an end."""
    db = logs.opened(url)

    def run(number: int) -> None:
        choose = random.Random(f'{seed} {number}')
        while True:
            write(db, choose, [int(provider) for provider in providers])

    for number in range(THREADS):
        threading.Thread(target=run, args=(number,)).start()


if __name__ == '__main__':
    main(*sys.argv[1:])
