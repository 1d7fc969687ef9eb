"""Assertions about each race, the same for every database."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement import exception
from placement.db.api import Database
from tests.support import applications, names_race, races, servers, trees_race
from tests.support.history import fleet, report
from tests.support.history.client import Client, Reply
from tests.support.history.record import History
from tests.support.history.workload import Load
from tests.support.objects import claim, create_provider


def last_units_are_given_once(urls: Sequence[str], divisor: int = 1) -> None:
    """Forty callers each claim one of ten units, repeatedly: ten succeed, the others are rejected for capacity."""
    with races.callers(urls) as racing:
        for _ in range(20 // divisor):
            replies, used = races.for_the_last_units(racing)
            assert Counter(reply.status for reply in replies) == {204: races.UNITS, 409: races.CALLERS - races.UNITS}
            rejected = [reply.error['detail'] for reply in replies if reply.status == 409]
            assert all('would exceed the capacity' in detail for detail in rejected)
            assert used == races.UNITS
            _nobody_waited(replies)


def a_generation_is_moved_once(urls: Sequence[str], divisor: int = 1, *, existing: bool) -> None:
    """Sixteen callers write one consumer: one write is accepted and increments its generation, the others conflict."""
    with races.callers(urls, 16) as racing:
        for _ in range(max(5 // divisor, 1)):
            replies, generation = races.for_one_generation(racing, existing=existing)
            assert Counter(reply.status for reply in replies) == {204: 1, 409: len(replies) - 1}
            codes = {reply.error['code'] for reply in replies if reply.status == 409}
            assert codes == {'placement.concurrent_update'}
            assert generation == (2 if existing else 1)
            _nobody_waited(replies)


def new_types_are_created_once(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers claim with types that nobody has named before, each in an order of its own: all succeed."""
    with races.callers(urls, 16) as racing:
        for _ in range(max(5 // divisor, 1)):
            replies, written, shown = races.for_new_types(racing)
            assert Counter(reply.status for reply in replies) == {204: len(replies)}
            assert shown == written
            _nobody_waited(replies)


def a_type_belongs_to_the_last_write(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers replace the type of one consumer, or write it below 1.38: the type is that of an accepted write.

    Each change names the generation that it saw, so the types follow one another in the order of the generations.
    """
    with races.callers(urls, 16) as racing:
        for _ in range(max(3 // divisor, 1)):
            accepted, generation, shown = races.for_one_type(racing)
            assert sorted(accepted) == list(range(2, generation + 1))
            last = max((number for number, type_ in accepted.items() if type_ is not None), default=None)
            assert shown == ('FIRST' if last is None else accepted[last])


def opposite_orders_make_progress(urls: Sequence[str], divisor: int = 1) -> None:
    """Eight callers write the same rows in opposite orders, and all succeed."""
    with races.callers(urls, 8) as racing:
        for replies in races.in_opposite_orders(racing, 10 // divisor):
            assert Counter(reply.status for reply in replies) == {204: len(replies)}
            _nobody_waited(replies)


def names_keep_their_meaning(urls: Sequence[str], divisor: int = 1) -> None:
    """Twelve callers change names, and write and claim by name: everything is written to what it named.

    Every kind of request succeeds now and then, and nothing fails.
    """
    # On a cluster a request takes longer.
    seconds = 5 if len(urls) == 1 else 8
    with races.callers(urls, 12) as racing:
        outcome = names_race.run(racing, seconds / divisor)
    assert outcome.wrong == []
    assert outcome.idle() == set(), outcome.statuses


def moves_make_no_loop(urls: Sequence[str], divisor: int = 1, *, one_tree: bool) -> None:
    """Two or three moves that together would make a loop: all succeed but one, which is rejected as a loop."""
    for count in (2, 3):
        with races.callers(urls, count) as racing:
            for _ in range(10 // divisor):
                replies = trees_race.in_a_ring(racing, one_tree=one_tree)
                assert Counter(reply.status for reply in replies) == {200: count - 1, 400: 1}
                assert sum(map(trees_race.is_loop, replies)) == 1
                _nobody_waited(replies)


def trees_stay_trees(urls: Sequence[str], divisor: int = 1) -> None:
    """Ten callers move, create and delete providers of few trees and claim them: no loop, no wrong root, no error."""
    with races.callers(urls, 10) as racing:
        outcome = trees_race.at_random(racing, 4 / divisor)
    assert outcome.wrong == [], outcome.wrong
    assert outcome.idle() == set(), outcome.statuses


def one_reshape_of_a_generation_succeeds(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers reshape one host at one generation: one moves its consumer, the others conflict."""
    with races.callers(urls, 16) as racing:
        for _ in range(max(5 // divisor, 1)):
            replies, (host, *cells) = races.of_reshapes(racing)
            assert Counter(reply.status for reply in replies) == {204: 1, 409: len(replies) - 1}
            codes = {reply.error['code'] for reply in replies if reply.status == 409}
            assert codes == {'placement.concurrent_update'}
            assert (host, sorted(cells)) == (0, [0, 1])
            _nobody_waited(replies)


def reshapes_remove_nothing_that_is_claimed(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers claim of a host or remove its inventory: it is removed only if no claim succeeded."""
    with races.callers(urls, 16) as racing:
        for _ in range(8 // divisor):
            claims, reshapes, remaining, used = races.reshapes_and_claims(racing)
            accepted = [reply for reply in claims if reply.status == 204]
            assert {reply.status for reply in (*claims, *reshapes)} <= {204, 409}
            assert used == len(accepted)
            assert (remaining.keys() == {'VCPU'}) == bool(accepted)
            if accepted:
                codes = {reply.error['code'] for reply in reshapes}
                assert codes <= {'placement.inventory.inuse', 'placement.concurrent_update'}
            else:
                assert all("Inventory for 'VCPU'" in reply.error['detail'] for reply in claims)
            _nobody_waited([*claims, *reshapes])


def reshapes_refer_to_nothing_that_is_deleted(urls: Sequence[str], divisor: int = 1) -> None:
    """Twelve callers reshape a cell, delete it, or delete a class that the reshape uses: no half of either remains."""
    with races.callers(urls, 12) as racing:
        for _ in range(8 // divisor):
            reshapes, of_the_cell, of_the_class, successes = races.reshapes_and_deletions(racing)
            assert sum(reply.status == 204 for reply in reshapes) == successes
            assert {reply.status for reply in reshapes} <= {204, 400, 409}
            deleted = [reply.status for reply in (*of_the_cell, *of_the_class)]
            assert set(deleted) <= {204, 404, 409}
            assert (204 in deleted) != bool(successes)
            _nobody_waited([*reshapes, *of_the_cell, *of_the_class])


def no_claim_is_written_by_halves(opened: Sequence[Database]) -> None:
    """Nine threads claim of one host on all servers of a cluster. Each claim is stored whole or not at all."""
    opened[0].sync()
    host = create_provider(applications.administrator(opened[0]), VCPU=1_000_000, MEMORY_MB=1_000_000).uuid
    accepted: list[str] = []
    started = time.monotonic()

    def is_over() -> bool:
        passed = time.monotonic() - started
        return passed > 120 or (passed > 20 and len(accepted) > 100)

    def run(db: Database) -> None:
        context = applications.administrator(db)
        while not is_over():
            with contextlib.suppress(exception.ConcurrentProviderUpdate):
                accepted.append(claim(context, {host: {'VCPU': 1, 'MEMORY_MB': 1}}))

    with concurrent.futures.ThreadPoolExecutor(9) as threads:
        for running in [threads.submit(run, opened[number % 3]) for number in range(9)]:
            running.result()
    of_host = f"resource_provider_id = (SELECT id FROM placement_resource_providers WHERE uuid = '{host}')"
    usages = f'SELECT used FROM placement_inventories WHERE {of_host}'
    rows = f'SELECT COUNT(*), COUNT(DISTINCT consumer_id) FROM placement_allocations WHERE {of_host}'
    for db in opened:
        with db.reader() as tx:
            assert list(tx.execute(sa.text(usages)).scalars()) == [len(accepted)] * 2
            assert tx.execute(sa.text(rows)).one() == (2 * len(accepted), len(accepted))
    assert len(accepted) > 100


def _nobody_waited(replies: list[Reply]) -> None:
    assert max(reply.seconds for reply in replies) < races.MAX_REQUEST_SECONDS


#: What has to hold on every database, whatever the addresses through which it is reached.
#: Each takes the addresses, and the number by which its rounds or seconds are divided.
RACES: dict[str, Callable[..., None]] = {
    'forty claims for ten units': last_units_are_given_once,
    'writes with one consumer generation': functools.partial(a_generation_is_moved_once, existing=True),
    'writes of one new consumer': functools.partial(a_generation_is_moved_once, existing=False),
    'claims with new types': new_types_are_created_once,
    'writes of one type': a_type_belongs_to_the_last_write,
    'writes in opposite orders': opposite_orders_make_progress,
    'reshapes of one generation': one_reshape_of_a_generation_succeeds,
    'reshapes and claims': reshapes_remove_nothing_that_is_claimed,
    'reshapes and deletions': reshapes_refer_to_nothing_that_is_deleted,
    'names that are created, renamed and deleted': names_keep_their_meaning,
    'moves in one tree that would make a loop': functools.partial(moves_make_no_loop, one_tree=True),
    'moves of trees that would make a loop': functools.partial(moves_make_no_loop, one_tree=False),
    'moves in trees that others change': trees_stay_trees,
}


def history_has_no_violations(
    load: Load,
    history: History,
    record_property: Callable[[str, str], None],
    *,
    name: str,
    retries: int,
    databases: Sequence[str],
    interrupted: bool = False,
    strict_reads: bool = True,
) -> None:
    """A random load that did something was answered rightly; its report is kept for the summary under ``name``.

    :param interrupted: whether requests were cut off, so that nobody knows what became of some; else of none.
    :param strict_reads: whether each GET has to show the state of a moment between its start and its end.
    """
    judged = report.of(history, unsent=load.unsent, retries=retries, databases=databases, strict_reads=strict_reads)
    record_property('history', f'{name}\n{judged.text()}')
    assert judged.violations == []
    assert judged.server_errors == 0
    assert (judged.unknown > 0) == interrupted
    assert judged.accepted > 100


def random_load_has_no_violations(
    server: servers.Server, record_property: Callable[[str, str], None], *, name: str, database: str, seconds: float = 6
) -> None:
    """Ten callers claim, move and release at random for some seconds."""
    before = server.retries()
    load = Load.start([server.url], clients=10)
    time.sleep(seconds)
    load.wait_for_accepted(101)
    history = load.finish()
    retries = server.retries() - before
    history_has_no_violations(load, history, record_property, name=name, retries=retries, databases=[database])


def all_came_up(database_urls: Iterable[str], directory: pathlib.Path) -> None:
    """Servers that start at once on an empty database, one for each URL, become ready with the same standard names."""
    started = [servers.launch(url, directory, workers=1, threads=2, metrics=False) for url in database_urls]
    traits, classes = set(), set()
    with servers.ready(started):
        for server in started:
            with contextlib.closing(Client([server.url], token='admin')) as client:
                traits.add(tuple(sorted(fleet.demand(client, 'GET', '/traits')['traits'])))
                listed = fleet.demand(client, 'GET', '/resource_classes')['resource_classes']
                classes.add(tuple(resource_class['name'] for resource_class in listed))
    assert traits == {tuple(sorted(os_traits.get_traits()))}
    assert classes == {tuple(os_resource_classes.STANDARDS)}
