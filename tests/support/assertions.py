"""Assertions about each race, the same for every database."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import os_resource_classes
import os_traits

from tests.support import names_race, races, servers
from tests.support.history import fleet, report
from tests.support.history.client import Client, Reply
from tests.support.history.record import History
from tests.support.history.workload import Load


def last_units_are_given_once(urls: Sequence[str]) -> None:
    """Forty callers each claim one of ten units, repeatedly: ten succeed, the others are refused for capacity."""
    with races.callers(urls) as racing:
        for _ in range(20):
            replies, used = races.for_the_last_units(racing)
            assert Counter(reply.status for reply in replies) == {204: races.UNITS, 409: races.CALLERS - races.UNITS}
            refused = [reply.error['detail'] for reply in replies if reply.status == 409]
            assert all('would exceed the capacity' in detail for detail in refused)
            assert used == races.UNITS
            _nobody_waited(replies)


def a_generation_is_moved_once(urls: Sequence[str], *, existing: bool) -> None:
    """Sixteen callers write one consumer: one write is accepted and increments its generation, the others conflict."""
    with races.callers(urls, 16) as racing:
        for _ in range(5):
            replies, generation = races.for_one_generation(racing, existing=existing)
            assert Counter(reply.status for reply in replies) == {204: 1, 409: len(replies) - 1}
            codes = {reply.error['code'] for reply in replies if reply.status == 409}
            assert codes == {'placement.concurrent_update'}
            assert generation == (2 if existing else 1)
            _nobody_waited(replies)


def opposite_orders_make_progress(urls: Sequence[str]) -> None:
    """Eight callers write the same rows in opposite orders, and all succeed."""
    with races.callers(urls, 8) as racing:
        for replies in races.in_opposite_orders(racing, 10):
            assert Counter(reply.status for reply in replies) == {204: len(replies)}
            _nobody_waited(replies)


def names_keep_their_meaning(urls: Sequence[str]) -> None:
    """Twelve callers change names, and write and claim by name: everything is written to what it named.

    Every kind of request succeeds now and then, and nothing fails.
    """
    # On a cluster a request takes longer.
    seconds = 5 if len(urls) == 1 else 8
    with races.callers(urls, 12) as racing:
        outcome = names_race.run(racing, seconds)
    assert outcome.wrong == []
    assert outcome.idle() == set(), outcome.statuses


def _nobody_waited(replies: list[Reply]) -> None:
    assert max(reply.seconds for reply in replies) < races.PATIENCE


#: What has to hold on every database, whatever the addresses through which it is reached.
RACES: dict[str, Callable[[Sequence[str]], None]] = {
    'forty claims for ten units': last_units_are_given_once,
    'writes with one consumer generation': functools.partial(a_generation_is_moved_once, existing=True),
    'writes of one new consumer': functools.partial(a_generation_is_moved_once, existing=False),
    'writes in opposite orders': opposite_orders_make_progress,
    'names that are created, renamed and deleted': names_keep_their_meaning,
}


def history_is_flawless(
    load: Load,
    history: History,
    record_property: Callable[[str, str], None],
    *,
    name: str,
    retries: int,
    databases: Sequence[str],
    interrupted: bool = False,
) -> None:
    """A random load that did something was answered rightly; its report is kept for the summary under ``name``.

    :param interrupted: whether requests were cut off, so that nobody knows what became of some; else of none.
    """
    judged = report.of(history, unsent=load.unsent, retries=retries, databases=databases)
    record_property('history', f'{name}\n{judged.text()}')
    assert judged.violations == []
    assert judged.server_errors == 0
    assert (judged.unknown > 0) == interrupted
    assert judged.accepted > 100


def random_load_is_answered_rightly(
    server: servers.Server, record_property: Callable[[str, str], None], *, name: str, database: str
) -> None:
    """Ten callers claim, move and release at random for some seconds."""
    before = server.retries()
    load = Load.start([server.url], clients=10)
    time.sleep(6)
    history = load.finish()
    retries = server.retries() - before
    history_is_flawless(load, history, record_property, name=name, retries=retries, databases=[database])


def all_came_up(database_urls: Iterable[str], directory: pathlib.Path) -> None:
    """Servers that start at once on an empty database, one for each URL, become ready with the same standard names."""
    started = [servers.launch(url, directory, workers=1, threads=2, metrics=False) for url in database_urls]
    traits, classes = set(), set()
    with servers.ready(started):
        for server in started:
            with contextlib.closing(Client([server.url], token='admin')) as client:
                traits.add(tuple(sorted(fleet.demand(client, 'GET', '/traits')['traits'])))
                listed = fleet.demand(client, 'GET', '/resource_classes')['resource_classes']
                classes.add(tuple(one['name'] for one in listed))
    assert traits == {tuple(sorted(os_traits.get_traits()))}
    assert classes == {tuple(os_resource_classes.STANDARDS)}
