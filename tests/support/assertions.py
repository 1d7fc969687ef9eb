"""Assertions about each race, the same for every database."""

from __future__ import annotations

import contextlib
import pathlib
from collections import Counter
from collections.abc import Iterable

import os_resource_classes
import os_traits

from tests.support import names_race, races, servers
from tests.support.history import fleet
from tests.support.history.client import Client, Reply


def exactly_ten_won(replies: list[Reply], used: int) -> None:
    """Ten callers got their unit, the others were refused for lack of capacity, and no caller waited too long."""
    assert Counter(reply.status for reply in replies) == {204: races.UNITS, 409: races.CALLERS - races.UNITS}
    assert all('would exceed the capacity' in reply.error['detail'] for reply in replies if reply.status == 409)
    assert used == races.UNITS
    nobody_waited(replies)


def exactly_one_won(replies: list[Reply], generation: int, *, expected: int) -> None:
    """One write was accepted, the others got a conflict, and the generation was incremented once."""
    assert Counter(reply.status for reply in replies) == {204: 1, 409: len(replies) - 1}
    codes = {reply.error['code'] for reply in replies if reply.status == 409}
    assert codes == {'placement.concurrent_update'}
    assert generation == expected
    nobody_waited(replies)


def made_progress(rounds: list[list[Reply]]) -> None:
    """Writes of the same rows in opposite orders all succeed, and none waited too long."""
    for replies in rounds:
        assert Counter(reply.status for reply in replies) == {204: len(replies)}
        nobody_waited(replies)


def nothing_landed_elsewhere(outcome: names_race.Outcome) -> None:
    """Every write changed what it named, no request failed, and every kind of request succeeded at least once."""
    assert outcome.wrong == []
    assert outcome.idle() == set(), outcome.statuses


def nobody_waited(replies: list[Reply]) -> None:
    """No caller waited longer than issue 4 allows."""
    assert max(reply.seconds for reply in replies) < races.PATIENCE


def last_units_are_given_once(server: servers.Server, rounds: int = 20) -> None:
    """Forty callers each claim one of ten units, repeatedly."""
    with races.callers([server.url]) as racing:
        for _ in range(rounds):
            exactly_ten_won(*races.for_the_last_units(racing))


def a_generation_is_moved_once(server: servers.Server, *, existing: bool) -> None:
    """Sixteen callers write one consumer, which exists or does not exist."""
    with races.callers([server.url], 16) as racing:
        for _ in range(5):
            replies, generation = races.for_one_generation(racing, existing=existing)
            exactly_one_won(replies, generation, expected=2 if existing else 1)


def opposite_orders_make_progress(server: servers.Server) -> None:
    """Eight callers name the same providers in opposite orders."""
    with races.callers([server.url], 8) as racing:
        made_progress(races.in_opposite_orders(racing, 10))


def names_keep_their_meaning(server: servers.Server, seconds: float = 5) -> None:
    """Twelve callers change names, and write and claim by name."""
    with races.callers([server.url], 12) as racing:
        nothing_landed_elsewhere(names_race.run(racing, seconds))


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
