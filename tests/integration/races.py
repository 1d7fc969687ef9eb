"""Callers that send requests at the same moment, and what has to hold afterwards on every database.

``RACES`` has the races by name. Each takes the addresses of a service, and the number by which its rounds are divided.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import pathlib
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import os_resource_classes
import os_traits
import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import tables
from placement.db.api import Database
from tests.support import applications, logs, objects, servers
from tests.support.history import check
from tests.support.history.client import Client, Reply
from tests.support.http_client import claim_body

T = TypeVar('T')

CALLERS = 40
UNITS = 10
#: The largest number of seconds that a caller may wait in any race. A transaction that waits for a lock at each of its
#: eleven attempts would exceed it. On an idle machine no caller waits for 5 seconds.
MAX_REQUEST_SECONDS = 40.0


class Callers:
    """Threads with a connection each, which start at the same moment."""

    def __init__(self, urls: Sequence[str], count: int) -> None:
        self.clients = [Client(urls, token='admin', first=number) for number in range(count)]
        #: Sends what precedes and follows a race.
        self.first = self.clients[0]
        self._barrier = threading.Barrier(count)
        self._pool = concurrent.futures.ThreadPoolExecutor(count)

    def all_at_once(self, act: Callable[[Client, int], T]) -> list[T]:
        """Run ``act(client, number)`` for every caller at the same moment; the answers in the order of the numbers."""

        def run(number: int) -> T:
            self._barrier.wait()
            return act(self.clients[number], number)

        return list(self._pool.map(run, range(len(self.clients))))

    def close(self) -> None:
        """End the threads and close the connections."""
        self._pool.shutdown()
        for client in self.clients:
            client.close()


def provider(client: Client, total: int) -> str:
    """A new provider with ``total`` VCPU."""
    return client.create_provider({'VCPU': {'total': total}})


def claim(providers: Sequence[str], expected: int | None) -> dict[str, Any]:
    """The entry of one consumer that claims one VCPU of each provider, in that order."""
    return claim_body({uuid: {'VCPU': 1} for uuid in providers}, expected)


def reshape(inventories: dict[str, tuple[int, dict[str, int]]], claims: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body of a reshape: provider uuid to its generation and totals by class, and entries of consumers."""
    return {
        'inventories': {
            uuid: {
                'resource_provider_generation': generation,
                'inventories': {name: {'total': total} for name, total in totals.items()},
            }
            for uuid, (generation, totals) in inventories.items()
        },
        'allocations': claims or {},
    }


RACES: dict[str, Callable[..., None]] = {}

#: Sends the requests of one round, asserts what has to hold, and returns the responses.
Round = Callable[[Callers], Sequence[Reply]]


def _race(name: str, callers: int, rounds: int = 1) -> Callable[[Round], Round]:
    """Make ``rounds`` calls of a function a race, all of them with the same callers. No caller may wait for long."""

    def register(run_round: Round) -> Round:
        def run(urls: Sequence[str], divisor: int = 1) -> None:
            with contextlib.closing(Callers(urls, callers)) as racing:
                for _ in range(max(rounds // divisor, 1)):
                    responses = run_round(racing)
                    assert max(response.seconds for response in responses) < MAX_REQUEST_SECONDS

        RACES[name] = run
        return run_round

    return register


# Claims ----------------------------------------------------------------------------------------------------------


@_race('forty claims for ten units', CALLERS, rounds=20)
def last_units_are_given_once(racing: Callers) -> list[Reply]:
    """Ten of forty callers get one of ten units, the others are rejected for want of capacity."""
    target = provider(racing.first, UNITS)
    responses = racing.all_at_once(
        lambda client, _: client.request('PUT', f'/allocations/{uuid.uuid4()}', claim([target], None))
    )
    assert Counter(response.status for response in responses) == {204: UNITS, 409: CALLERS - UNITS}
    rejected = [response.error['detail'] for response in responses if response.status == 409]
    assert all('would exceed the capacity' in detail for detail in rejected)
    assert _used(racing.first, target) == UNITS
    return responses


@_race('writes of one new consumer', 16, rounds=5)
def a_new_consumer_is_written_once(racing: Callers) -> list[Reply]:
    return _write_one_consumer(racing, f'/allocations/{uuid.uuid4()}', None)


@_race('writes with one consumer generation', 16, rounds=5)
def a_consumer_generation_is_used_once(racing: Callers) -> list[Reply]:
    path = f'/allocations/{uuid.uuid4()}'
    racing.first.demand('PUT', path, claim([provider(racing.first, 1)], None))
    return _write_one_consumer(racing, path, 1)


def _write_one_consumer(racing: Callers, path: str, generation: int | None) -> list[Reply]:
    """One write is accepted and increments the generation of the consumer, the others conflict."""
    body = claim([provider(racing.first, 1000)], generation)
    responses = racing.all_at_once(lambda client, _: client.request('PUT', path, body))
    _one_was_accepted(responses)
    assert racing.first.demand('GET', path)['consumer_generation'] == (generation or 0) + 1
    return responses


def _one_was_accepted(responses: list[Reply]) -> None:
    """One of several writes that name the same generation is accepted."""
    assert Counter(response.status for response in responses) == {204: 1, 409: len(responses) - 1}
    codes = {response.error['code'] for response in responses if response.status == 409}
    assert codes == {'placement.concurrent_update'}


def _repeated(send: Callable[[], Reply]) -> Reply:
    """The response to a request that is repeated while other writes interrupt it, as its error asks for.

    On a cluster the retries of the service do not suffice if more callers than retries write the same rows.
    """
    for _ in range(10):
        response = send()
        if response.status != 409 or response.error['code'] != 'placement.concurrent_update':
            break
    return response


@_race('claims with new types and owners', 16, rounds=5)
def new_types_and_owners_are_created_once(racing: Callers) -> list[Reply]:
    """Each caller POSTs three new consumers, of the same three new types, projects and users, in its own order."""
    target = provider(racing.first, 100_000)
    types = [f'RACE_{uuid.uuid4().hex.upper()}' for _ in range(3)]
    bodies = [
        {
            str(uuid.uuid4()): {**claim([target], None), 'consumer_type': type_, 'project_id': type_, 'user_id': type_}
            for type_ in random.Random(number).sample(types, len(types))
        }
        for number in range(len(racing.clients))
    ]
    responses = racing.all_at_once(
        lambda client, number: _repeated(lambda: client.request('POST', '/allocations', bodies[number], version='1.38'))
    )
    assert Counter(response.status for response in responses) == {204: len(responses)}
    for consumer, entry in [item for body in bodies for item in body.items()]:
        shown = racing.first.demand('GET', f'/allocations/{consumer}', version='1.38')
        for member in ('consumer_type', 'project_id', 'user_id'):
            assert shown[member] == entry[member]
    return responses


@_race('writes in opposite orders', 8, rounds=4)
def opposite_orders_make_progress(racing: Callers) -> list[Reply]:
    """Each caller POSTs the same consumers on the same providers in an order of its own, and all succeed."""
    targets = [provider(racing.first, 100_000) for _ in range(4)]
    consumers = [str(uuid.uuid4()) for _ in range(4)]

    def post(client: Client, number: int) -> list[Reply]:
        choose = random.Random(number)
        body = {}
        for consumer in choose.sample(consumers, len(consumers)):
            body[consumer] = claim(choose.sample(targets, len(targets)), None)
            # So that every write may succeed.
            del body[consumer]['consumer_generation']
        return [_repeated(lambda: client.request('POST', '/allocations', body, version='1.27')) for _ in range(3)]

    responses = [response for responses in racing.all_at_once(post) for response in responses]
    assert Counter(response.status for response in responses) == {204: len(responses)}
    return responses


# Readings --------------------------------------------------------------------------------------------------------


@_race('moves and readings', 6, rounds=4)
def moves_are_seen_whole(racing: Callers) -> list[Reply]:
    """One caller passes a unit on from consumer to consumer while others read: each reading shows one consumer."""
    target = provider(racing.first, 1)
    path, consumers = f'/resource_providers/{target}/allocations', [str(uuid.uuid4()) for _ in range(10)]
    racing.first.demand('PUT', f'/allocations/{consumers[0]}', claim([target], None))

    def move_or_read(client: Client, number: int) -> list[Reply]:
        if number == 0:
            for giver, taker in itertools.pairwise(consumers):
                client.demand('POST', '/allocations', {giver: claim([], 1), taker: claim([target], None)})
        return [client.request('GET', path) for _ in consumers]

    replies = [reply for replies in racing.all_at_once(move_or_read) for reply in replies]
    assert {len(reply.body['allocations']) for reply in replies} == {1}
    return replies


# Reshapes --------------------------------------------------------------------------------------------------------


@_race('reshapes of one generation', 16, rounds=5)
def one_reshape_of_a_generation_succeeds(racing: Callers) -> list[Reply]:
    """Each caller moves the consumer of one host to one of two cells, at one generation: one succeeds."""
    first, consumer = racing.first, str(uuid.uuid4())
    host, *cells = (provider(first, UNITS) for _ in range(3))
    first.demand('PUT', f'/allocations/{consumer}', claim([host], None))

    def move(client: Client, number: int) -> Reply:
        """Half of the callers name the providers in the other order."""
        cell = cells[number % 2]
        named = [(host, (2, {'MEMORY_MB': 1})), (cell, (1, {'VCPU': UNITS}))][:: 1 if number % 4 < 2 else -1]
        return client.request('POST', '/reshaper', reshape(dict(named), {consumer: claim([cell], 1)}), version='1.30')

    responses = racing.all_at_once(move)
    _one_was_accepted(responses)
    assert _used(first, host) == 0
    assert sorted(_used(first, cell) for cell in cells) == [0, 1]
    return responses


@_race('reshapes and claims', 16, rounds=8)
def reshapes_remove_nothing_that_is_claimed(racing: Callers) -> list[Reply]:
    """The callers claim of a host or replace its inventory: it is removed only if no claim succeeded."""
    host = provider(racing.first, 1000)

    def claim_or_reshape(client: Client, number: int) -> Reply:
        if number % 2:
            return client.request('PUT', f'/allocations/{uuid.uuid4()}', claim([host], None))
        shown = client.request('GET', f'/resource_providers/{host}').body
        body = reshape({host: (shown['generation'], {'MEMORY_MB': 1})})
        return client.request('POST', '/reshaper', body, version='1.30')

    responses = racing.all_at_once(claim_or_reshape)
    claims, reshapes = responses[1::2], responses[::2]
    accepted = [response for response in claims if response.status == 204]
    assert {response.status for response in responses} <= {204, 409}
    assert _used(racing.first, host) == len(accepted)
    shown = racing.first.demand('GET', f'/resource_providers/{host}/inventories')
    assert (shown['inventories'].keys() == {'VCPU'}) == bool(accepted)
    if accepted:
        codes = {response.error['code'] for response in reshapes}
        assert codes <= {'placement.inventory.inuse', 'placement.concurrent_update'}
    else:
        assert all("Inventory for 'VCPU'" in response.error['detail'] for response in claims)
    return responses


@_race('reshapes and deletions', 12, rounds=8)
def reshapes_refer_to_nothing_that_is_deleted(racing: Callers) -> list[Reply]:
    """The callers give a cell an allocation of a class, delete the cell, or the class: no half of either remains."""
    first = racing.first
    cell, consumer, name = provider(first, 1), str(uuid.uuid4()), f'CUSTOM_{uuid.uuid4().hex.upper()}'
    first.demand('DELETE', f'/resource_providers/{cell}/inventories')
    first.demand('PUT', f'/resource_classes/{name}')
    requests = [
        ('POST', '/reshaper', reshape({cell: (2, {name: 1})}, {consumer: claim_body({cell: {name: 1}})})),
        ('DELETE', f'/resource_providers/{cell}', None),
        ('DELETE', f'/resource_classes/{name}', None),
    ]
    responses = racing.all_at_once(lambda client, number: client.request(*requests[number % 3], version='1.30'))
    successes = len(first.demand('GET', f'/allocations/{consumer}')['allocations'])
    reshapes, deletions = responses[::3], responses[1::3] + responses[2::3]
    assert sum(response.status == 204 for response in reshapes) == successes
    assert {response.status for response in reshapes} <= {204, 400, 409}
    assert {response.status for response in deletions} <= {204, 404, 409}
    assert (204 in {response.status for response in deletions}) != bool(successes)
    return responses


# Names -----------------------------------------------------------------------------------------------------------


@_race('names that are used, renamed and deleted', 15, rounds=8)
def names_in_use_stay(racing: Callers) -> list[Reply]:
    """Each caller gives a provider a trait or an inventory, or deletes the name, or renames the class.

    What was accepted has the name, which exists; no deletion of it was accepted.
    """
    first, name = racing.first, f'CUSTOM_{uuid.uuid4().hex.upper()}'
    for collection in ('traits', 'resource_classes'):
        first.demand('PUT', f'/{collection}/{name}')
    hosts = [first.create_provider() for _ in racing.clients]
    responses = racing.all_at_once(functools.partial(_use_or_delete_or_rename, name, hosts))
    assert {response.status for response in responses} <= {200, 204, 400, 404, 409}
    for kind, (collection, member) in enumerate((('traits', 'traits'), ('resource_classes', 'inventories'))):
        shown = [list(first.demand('GET', f'/resource_providers/{host}/{member}')[member]) for host in hosts]
        accepted = [number % 5 == kind and response.accepted for number, response in enumerate(responses)]
        assert list(map(bool, shown)) == accepted
        names = {name for names in shown for name in names}
        assert len(names) <= 1
        for used in names:
            first.demand('GET', f'/{collection}/{used}')
            assert not any(response.accepted for response in responses[2 + kind :: 5])
    return responses


def _use_or_delete_or_rename(name: str, hosts: list[str], client: Client, number: int) -> Reply:
    path = f'/resource_providers/{hosts[number]}'
    requests: list[tuple[str, str, Any]] = [
        ('PUT', f'{path}/traits', {'resource_provider_generation': 0, 'traits': [name]}),
        ('PUT', f'{path}/inventories', {'resource_provider_generation': 0, 'inventories': {name: {'total': 1}}}),
        ('DELETE', f'/traits/{name}', None),
        ('DELETE', f'/resource_classes/{name}', None),
        ('PUT', f'/resource_classes/{name}', {'name': f'{name}_2'}),
    ]
    return client.request(*requests[number % 5], version='1.6')


# Trees -----------------------------------------------------------------------------------------------------------

_LOOP = 'creating loop in the provider tree is not allowed.'


def _moves_make_no_loop(one_tree: bool, racing: Callers) -> list[Reply]:
    """Each caller moves a branch below the leaf of the next one's: all succeed but one, which would make a loop.

    :param one_tree: whether all branches are in one tree or each is one itself.
    """
    first = racing.first
    root = first.create_provider() if one_tree else None
    tops = [first.create_provider(parent=root) for _ in racing.clients]
    leaves = [first.create_provider(parent=first.create_provider(parent=top)) for top in tops]
    responses = racing.all_at_once(lambda client, number: client.move(tops[number], leaves[number - 1]))
    assert Counter(response.status for response in responses) == {200: len(responses) - 1, 400: 1}
    assert [response.error['detail'].endswith(_LOOP) for response in responses if response.error] == [True]
    shown = first.demand('GET', '/resource_providers')['resource_providers']
    links = {row['uuid']: (row['parent_provider_uuid'], row['root_provider_uuid']) for row in shown}
    assert check.link_problems(links) == []
    return responses


for _callers in (2, 3):
    _race(f'{_callers} moves in one tree that would make a loop', _callers, rounds=10)(
        functools.partial(_moves_make_no_loop, True)
    )
    _race(f'{_callers} moves of trees that would make a loop', _callers, rounds=10)(
        functools.partial(_moves_make_no_loop, False)
    )


def _used(client: Client, target: str) -> int:
    usages: dict[str, int] = client.demand('GET', f'/resource_providers/{target}/usages')['usages']
    return usages.get('VCPU', 0)


# Several servers -------------------------------------------------------------------------------------------------


def no_claim_is_written_by_halves(opened: Sequence[Database]) -> None:
    """Nine threads claim of one host on all servers of a cluster. Each claim is stored whole or not at all."""
    opened[0].sync()
    host = objects.create_provider(applications.administrator(opened[0]), VCPU=1_000_000, MEMORY_MB=1_000_000).uuid
    accepted: list[str] = []
    started = time.monotonic()

    def is_over() -> bool:
        passed = time.monotonic() - started
        return passed > 120 or (passed > 20 and len(accepted) > 100)

    def run(db: Database) -> None:
        context = applications.administrator(db)
        while not is_over():
            with contextlib.suppress(exception.ConcurrentProviderUpdate):
                accepted.append(objects.claim(context, {host: {'VCPU': 1, 'MEMORY_MB': 1}}))

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


def a_commit_that_conflicts_is_rolled_back(opened: Sequence[Database], monkeypatch: pytest.MonkeyPatch) -> Exception:
    """A change on the second server of a cluster makes COMMIT on the first one fail.

    When the transaction is run again, no server has anything of the first attempt, and in the end only the second
    attempt has taken effect. Return the driver's error.

    :param opened: an empty database on each server.
    """
    first, second, _ = opened
    first.sync()
    contested, other = logs.add_providers(first, 2)
    seen: list[list[tuple[int, int]]] = []

    def see() -> None:
        """Read the generations of both providers on each server."""
        seen.append([])
        for db in opened:
            with db.reader() as tx:
                logs.check(tx)
                generations = logs.generations(tx)
                seen[-1].append((generations.get(contested, 0), generations.get(other, 0)))

    def work(tx: sa.Connection) -> None:
        if failures:
            see()
        logs.move(tx, [contested, other])

    def conflict() -> None:
        second.write(lambda tx: logs.move(tx, [contested]))
        # Returns when the first server has applied it: if COMMIT came before, Group Replication could raise 3101.
        first.fetch_all(sa.select(tables.resource_providers))

    failures = logs.before_commit(first, monkeypatch, conflict)
    first.write(work)
    see()
    assert seen == [[(1, 0)] * 3, [(2, 1)] * 3]
    (failure,) = failures
    return failure


def all_came_up(database_urls: Iterable[str | sa.URL], directory: pathlib.Path) -> None:
    """Servers that start at once on an empty database, one for each URL, become ready with the same standard names."""
    started = [servers.launch(url, directory, workers=1, threads=2, metrics=False) for url in database_urls]
    traits, classes = set(), set()
    with servers.ready(*started):
        for server in started:
            with contextlib.closing(Client([server.url], token='admin')) as client:
                traits.add(tuple(sorted(client.demand('GET', '/traits')['traits'])))
                listed = client.demand('GET', '/resource_classes')['resource_classes']
                classes.add(tuple(resource_class['name'] for resource_class in listed))
    assert traits == {tuple(sorted(os_traits.get_traits()))}
    assert classes == {tuple(os_resource_classes.STANDARDS)}
