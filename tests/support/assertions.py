"""The races, and what has to hold after them on every database."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import pathlib
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement import exception
from placement.db.api import Database
from tests.support import applications, races, servers, trees_race
from tests.support.history import check, fleet
from tests.support.history.client import Client, Reply
from tests.support.history.load import Load
from tests.support.objects import claim as claim_directly
from tests.support.objects import create_provider
from tests.support.races import Callers, claim, provider, reshape


def _rounds(urls: Sequence[str], count: int, rounds: int) -> Iterator[Callers]:
    """Yield the same ``count`` callers for each round."""
    with races.callers(urls, count) as racing:
        for _ in range(max(rounds, 1)):
            yield racing


def last_units_are_given_once(urls: Sequence[str], divisor: int = 1) -> None:
    """Forty callers each claim one of ten units, repeatedly: ten succeed, the others are rejected for capacity."""
    for racing in _rounds(urls, races.CALLERS, 20 // divisor):
        target = provider(racing.clients[0], races.UNITS)
        responses = racing.all_at_once(
            lambda client, _, target=target: client.request(  # type: ignore[misc]
                'PUT', f'/allocations/{uuid.uuid4()}', claim([target], None)
            )
        )
        assert Counter(response.status for response in responses) == {
            204: races.UNITS,
            409: races.CALLERS - races.UNITS,
        }
        rejected = [response.error['detail'] for response in responses if response.status == 409]
        assert all('would exceed the capacity' in detail for detail in rejected)
        assert _used(racing.clients[0], target) == races.UNITS
        _nobody_waited(responses)


def a_generation_is_moved_once(urls: Sequence[str], divisor: int = 1, *, existing: bool) -> None:
    """Sixteen callers write one consumer: one write is accepted and increments its generation, the others conflict."""
    for racing in _rounds(urls, 16, 5 // divisor):
        target, path = provider(racing.clients[0], 1000), f'/allocations/{uuid.uuid4()}'
        if existing:
            fleet.demand(racing.clients[0], 'PUT', path, claim([target], None))
        body = claim([target], 1 if existing else None)
        responses = racing.all_at_once(lambda client, _, path=path, body=body: client.request('PUT', path, body))  # type: ignore[misc]
        _one_was_accepted(responses)
        shown = fleet.demand(racing.clients[0], 'GET', path)
        assert shown['consumer_generation'] == (2 if existing else 1)


def _one_was_accepted(responses: list[Reply]) -> None:
    """One of several writes that name the same generation is accepted."""
    assert Counter(response.status for response in responses) == {204: 1, 409: len(responses) - 1}
    codes = {response.error['code'] for response in responses if response.status == 409}
    assert codes == {'placement.concurrent_update'}
    _nobody_waited(responses)


def new_types_are_created_once(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers POST three new consumers each, with the same three new types in an order of their own."""
    for racing in _rounds(urls, 16, 5 // divisor):
        target = provider(racing.clients[0], 100_000)
        types = [f'RACE_{uuid.uuid4().hex.upper()}' for _ in range(3)]
        type_of = [
            {str(uuid.uuid4()): type_ for type_ in random.Random(number).sample(types, len(types))}
            for number in range(len(racing.clients))
        ]
        bodies = [
            {consumer: {**claim([target], None), 'consumer_type': type_} for consumer, type_ in chosen.items()}
            for chosen in type_of
        ]
        responses = racing.all_at_once(
            lambda client, number, bodies=bodies: races.repeated(  # type: ignore[misc]
                lambda: client.request('POST', '/allocations', bodies[number], version='1.38')
            )
        )
        assert Counter(response.status for response in responses) == {204: len(responses)}
        for consumer, type_ in [item for chosen in type_of for item in chosen.items()]:
            assert _shown(racing.clients[0], consumer)['consumer_type'] == type_
        _nobody_waited(responses)


def opposite_orders_make_progress(urls: Sequence[str], divisor: int = 1) -> None:
    """Eight callers POST the same consumers on the same providers in orders of their own, and all succeed."""
    with races.callers(urls, 8) as racing:
        targets = [provider(racing.clients[0], 100_000) for _ in range(4)]
        consumers = [str(uuid.uuid4()) for _ in range(4)]

        def post(client: Client, number: int) -> Reply:
            choose = random.Random(number)
            body = {}
            for consumer in choose.sample(consumers, len(consumers)):
                body[consumer] = claim(choose.sample(targets, len(targets)), None)
                # So that every write may succeed.
                del body[consumer]['consumer_generation']
            return races.repeated(lambda: client.request('POST', '/allocations', body, version='1.27'))

        for _ in range(10 // divisor):
            responses = racing.all_at_once(post)
            assert Counter(response.status for response in responses) == {204: len(responses)}
            _nobody_waited(responses)


def moves_make_no_loop(urls: Sequence[str], divisor: int = 1, *, one_tree: bool) -> None:
    """Two or three moves that together would make a loop: all succeed but one, which is rejected as a loop."""
    for count in (2, 3):
        with races.callers(urls, count) as racing:
            for _ in range(10 // divisor):
                responses = trees_race.in_a_ring(racing, one_tree=one_tree)
                assert Counter(response.status for response in responses) == {200: count - 1, 400: 1}
                assert sum(map(trees_race.is_loop, responses)) == 1
                _nobody_waited(responses)


def one_reshape_of_a_generation_succeeds(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers move the consumer of one host to one of two cells, at one generation: one succeeds."""
    for racing in _rounds(urls, 16, 5 // divisor):
        first, consumer = racing.clients[0], str(uuid.uuid4())
        host, *cells = (provider(first, races.UNITS) for _ in range(3))
        fleet.demand(first, 'PUT', f'/allocations/{consumer}', claim([host], None))
        _one_was_accepted(racing.all_at_once(functools.partial(_move_by_reshape, host, cells, consumer)))
        assert _used(first, host) == 0
        assert sorted(_used(first, cell) for cell in cells) == [0, 1]


def _move_by_reshape(host: str, cells: list[str], consumer: str, client: Client, number: int) -> Reply:
    """Move a consumer of one unit to a cell; half of the callers name the providers in the other order."""
    cell = cells[number % 2]
    named = [(host, (2, {'MEMORY_MB': 1})), (cell, (1, {'VCPU': races.UNITS}))][:: 1 if number % 4 < 2 else -1]
    return client.request('POST', '/reshaper', reshape(dict(named), {consumer: claim([cell], 1)}), version='1.30')


def reshapes_remove_nothing_that_is_claimed(urls: Sequence[str], divisor: int = 1) -> None:
    """Sixteen callers claim of a host or replace its inventory: it is removed only if no claim succeeded."""
    for racing in _rounds(urls, 16, 8 // divisor):
        host = provider(racing.clients[0], 1000)
        responses = racing.all_at_once(functools.partial(_claim_or_reshape, host))
        claims, reshapes = responses[1::2], responses[::2]
        accepted = [response for response in claims if response.status == 204]
        assert {response.status for response in responses} <= {204, 409}
        assert _used(racing.clients[0], host) == len(accepted)
        shown = fleet.demand(racing.clients[0], 'GET', f'/resource_providers/{host}/inventories')
        assert (shown['inventories'].keys() == {'VCPU'}) == bool(accepted)
        if accepted:
            codes = {response.error['code'] for response in reshapes}
            assert codes <= {'placement.inventory.inuse', 'placement.concurrent_update'}
        else:
            assert all("Inventory for 'VCPU'" in response.error['detail'] for response in claims)
        _nobody_waited(responses)


def _claim_or_reshape(host: str, client: Client, number: int) -> Reply:
    if number % 2:
        return client.request('PUT', f'/allocations/{uuid.uuid4()}', claim([host], None))
    shown = client.request('GET', f'/resource_providers/{host}').body
    body = reshape({host: (shown['generation'], {'MEMORY_MB': 1})})
    return client.request('POST', '/reshaper', body, version='1.30')


def reshapes_refer_to_nothing_that_is_deleted(urls: Sequence[str], divisor: int = 1) -> None:
    """Twelve callers give a cell an allocation of a class, delete the cell, or the class: no half of either remains."""
    for racing in _rounds(urls, 12, 8 // divisor):
        first = racing.clients[0]
        cell, consumer, name = provider(first, 1), str(uuid.uuid4()), f'CUSTOM_{uuid.uuid4().hex.upper()}'
        fleet.demand(first, 'DELETE', f'/resource_providers/{cell}/inventories')
        fleet.demand(first, 'PUT', f'/resource_classes/{name}')
        entry = claim([cell], None)
        entry['allocations'][cell]['resources'] = {name: 1}
        requests = [
            ('POST', '/reshaper', reshape({cell: (2, {name: 1})}, {consumer: entry})),
            ('DELETE', f'/resource_providers/{cell}', None),
            ('DELETE', f'/resource_classes/{name}', None),
        ]
        responses = racing.all_at_once(
            lambda client, number, requests=requests: client.request(  # type: ignore[misc]
                *requests[number % 3], version='1.30'
            )
        )
        successes = len(fleet.demand(first, 'GET', f'/allocations/{consumer}')['allocations'])
        reshapes, deletions = responses[::3], responses[1::3] + responses[2::3]
        assert sum(response.status == 204 for response in reshapes) == successes
        assert {response.status for response in reshapes} <= {204, 400, 409}
        assert {response.status for response in deletions} <= {204, 404, 409}
        assert (204 in {response.status for response in deletions}) != bool(successes)
        _nobody_waited(responses)


def names_in_use_stay(urls: Sequence[str], divisor: int = 1) -> None:
    """Fifteen callers give a provider each a trait or an inventory, or delete the name, or rename the class.

    What was accepted has the name, which exists; no deletion of it was accepted.
    """
    for racing in _rounds(urls, 15, 8 // divisor):
        first, name = racing.clients[0], f'CUSTOM_{uuid.uuid4().hex.upper()}'
        for collection in ('traits', 'resource_classes'):
            fleet.demand(first, 'PUT', f'/{collection}/{name}')
        hosts = [trees_race.create(first) for _ in racing.clients]
        responses = racing.all_at_once(functools.partial(_use_or_delete_or_rename, name, hosts))
        assert {response.status for response in responses} <= {200, 204, 400, 404, 409}
        for kind, collection in enumerate(('traits', 'resource_classes')):
            shown = [_names_of(first, host, kind) for host in hosts]
            accepted = [number % 5 == kind and response.accepted for number, response in enumerate(responses)]
            assert list(map(bool, shown)) == accepted
            names = {name for names in shown for name in names}
            assert len(names) <= 1
            for used in names:
                fleet.demand(first, 'GET', f'/{collection}/{used}')
                assert not any(response.accepted for response in responses[2 + kind :: 5])
        _nobody_waited(responses)


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


def _names_of(client: Client, host: str, kind: int) -> list[str]:
    members = ('traits', 'inventories')[kind]
    return list(fleet.demand(client, 'GET', f'/resource_providers/{host}/{members}')[members])


def moves_are_seen_whole(urls: Sequence[str], divisor: int = 1, *, by_reshape: bool) -> None:
    """One caller passes a unit on from consumer to consumer while others read: each reading shows one consumer."""
    with races.callers(urls, 6) as racing:
        target = provider(racing.clients[0], 1)
        consumers = [str(uuid.uuid4()) for _ in range(40 // divisor)]
        fleet.demand(racing.clients[0], 'PUT', f'/allocations/{consumers[0]}', claim([target], None))

        def move_or_read(client: Client, number: int) -> list[int]:
            if number == 0:
                for giver, taker in itertools.pairwise(consumers):
                    entries = {giver: claim([], 1), taker: claim([target], None)}
                    if by_reshape:
                        generation = fleet.demand(client, 'GET', f'/resource_providers/{target}')['generation']
                        body = reshape({target: (generation, {'VCPU': 1})}, entries)
                        fleet.demand(client, 'POST', '/reshaper', body, version='1.30')
                    else:
                        fleet.demand(client, 'POST', '/allocations', entries)
            path = f'/resource_providers/{target}/allocations'
            return [len(fleet.demand(client, 'GET', path)['allocations']) for _ in range(len(consumers))]

        assert {count for counts in racing.all_at_once(move_or_read) for count in counts} == {1}


def _shown(client: Client, consumer: str) -> Any:
    return fleet.demand(client, 'GET', f'/allocations/{consumer}', version='1.38')


def _used(client: Client, target: str) -> int:
    usages: dict[str, int] = fleet.demand(client, 'GET', f'/resource_providers/{target}/usages')['usages']
    return usages.get('VCPU', 0)


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
                accepted.append(claim_directly(context, {host: {'VCPU': 1, 'MEMORY_MB': 1}}))

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


def _nobody_waited(responses: list[Reply]) -> None:
    assert max(response.seconds for response in responses) < races.MAX_REQUEST_SECONDS


#: What has to hold on every database, whatever the addresses through which it is reached.
#: Each takes the addresses, and the number by which its rounds are divided.
RACES: dict[str, Callable[..., None]] = {
    'forty claims for ten units': last_units_are_given_once,
    'writes with one consumer generation': functools.partial(a_generation_is_moved_once, existing=True),
    'writes of one new consumer': functools.partial(a_generation_is_moved_once, existing=False),
    'claims with new types': new_types_are_created_once,
    'writes in opposite orders': opposite_orders_make_progress,
    'moves and readings': functools.partial(moves_are_seen_whole, by_reshape=False),
    'reshapes and readings': functools.partial(moves_are_seen_whole, by_reshape=True),
    'reshapes of one generation': one_reshape_of_a_generation_succeeds,
    'reshapes and claims': reshapes_remove_nothing_that_is_claimed,
    'reshapes and deletions': reshapes_refer_to_nothing_that_is_deleted,
    'names that are used, renamed and deleted': names_in_use_stay,
    'moves in one tree that would make a loop': functools.partial(moves_make_no_loop, one_tree=True),
    'moves of trees that would make a loop': functools.partial(moves_make_no_loop, one_tree=False),
}


def load_has_no_violations(
    load: Load,
    record_property: Callable[[str, str], None],
    *,
    name: str,
    retries: int,
    databases: Sequence[str],
    interrupted: bool = False,
) -> None:
    """Every answer to a load that was stopped, and its end, is right; its summary is printed under ``name``.

    :param interrupted: whether requests may have been cut off, so that nobody knows what became of them.
    """
    record_property('history', f'{name}\n{load.summary()}, transaction retries {retries}')
    assert check.violations(load, databases) == []
    # 503 reports an outage of the database.
    assert {reply.status for reply in load.replies if reply.unknown} <= ({None, 503} if interrupted else set())
    assert sum(reply.accepted for reply in load.replies) > 100


def random_load_has_no_violations(
    server: servers.Server, record_property: Callable[[str, str], None], *, name: str, database: str, requests: int
) -> None:
    """Ten callers claim, move and release at random until so many requests were accepted."""
    before = server.retries()
    load = Load.start([server.url], clients=10)
    load.wait_for_accepted(requests)
    load.stop()
    load_has_no_violations(load, record_property, name=name, retries=server.retries() - before, databases=[database])


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
