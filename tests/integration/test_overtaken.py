"""Rows change between a read and the write of a request: two requests at once, on every database.

Another session holds a lock, and does nothing else, until both requests have read and wait for it. On SQLite, where
a transaction that writes locks the whole file from its first read on, they wait before they read.
"""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import changes, tables
from tests.support import applications, logs
from tests.support.asking import create_provider
from tests.support.locking import Answer, Service


@pytest.fixture(scope='module', params=logs.SERVERS)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The application on an empty database of each server."""
    directory: pathlib.Path = tmp_path_factory.mktemp('database')
    patience = {'sqlite_busy_timeout': 60}
    with (
        logs.fresh(request.param, directory) as url,
        applications.application(url, placement_database=patience) as app,
    ):
        made = Service(app, url)
        yield made
        made.close()


def make_host(service: Service) -> str:
    """A new root provider with 100 VCPU; its id is greater than those of earlier ones."""
    return create_provider(service.app, VCPU=100)


def usage(service: Service, host: str) -> int:
    """The used VCPU of a host."""
    used: int = service.call('GET', f'/resource_providers/{host}/usages').json['usages']['VCPU']
    return used


def test_a_reader_sees_one_snapshot(service: Service) -> None:
    """Also when others commit meanwhile, and with every default isolation level."""
    host = make_host(service)
    count = sa.select(sa.func.count()).select_from(tables.resource_providers)
    generation = sa.select(tables.resource_providers.c.generation).where(tables.resource_providers.c.uuid == host)
    with service.app.db.reader() as tx:
        seen = tx.scalar(count), tx.scalar(generation), changes.newest(tx)
        make_host(service)
        assert service.call('DELETE', f'/resource_providers/{host}/inventories').status_int == 204
        assert (tx.scalar(count), tx.scalar(generation), changes.newest(tx)) == seen
    with service.app.db.reader() as tx:
        assert tx.scalar(count) != seen[0]
        assert tx.scalar(generation) != seen[1]
        assert changes.newest(tx) != seen[2]


# Two writes with one consumer generation -------------------------------------------------------------------


def claim(amounts: dict[str, int], generation: int | None, project: str = 'project') -> dict[str, Any]:
    """The body of a claim of VCPU by host."""
    return {
        'allocations': {host: {'resources': {'VCPU': amount}} for host, amount in amounts.items()},
        'project_id': project,
        'user_id': 'user',
        'consumer_generation': generation,
    }


@pytest.mark.parametrize(
    ('first', 'second'), [([5, 0], [0, 7]), ([2, 0], [2, 0]), ([5, 0], [0, 0]), ([0, 0], [5, 0]), ([2, 4], [2, 7])]
)
def test_two_writes_of_one_consumer(service: Service, first: list[int], second: list[int]) -> None:
    """The consumer holds 2 of one host; both writes send its generation. Amounts are by host; all 0 clears it."""
    hosts, consumer = [make_host(service), make_host(service)], str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({hosts[0]: 2}, None)).status_int == 204
    wanted = [by_host(hosts, amounts) for amounts in (first, second)]
    with service.lock('placement_consumers', 'uuid', consumer):
        answers = [service.begin_blocked('PUT', path, claim(amounts, 1)) for amounts in wanted]
    check_one_won(service, consumer, hosts, answers, wanted)


@pytest.mark.parametrize('second', [[0, 7], [0, 0]])
def test_two_writes_of_a_consumer_without_allocations(service: Service, second: list[int]) -> None:
    """Another deployment left such a record. There are no allocations whose deletion would show the other write."""
    hosts, consumer = [make_host(service), make_host(service)], str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({hosts[0]: 2}, None)).status_int == 204
    held = tables.allocations.c.consumer_id == consumer

    def leave_only_the_record(tx: sa.Connection) -> None:
        tx.execute(tables.allocations.delete().where(held))
        tx.execute(tables.inventories.update().values(used=0))
        changes.rebuild(tx)

    service.app.db.write(leave_only_the_record)
    wanted = [by_host(hosts, amounts) for amounts in ([5, 0], second)]
    with service.lock('placement_consumers', 'uuid', consumer):
        answers = [service.begin_blocked('PUT', path, claim(amounts, 1)) for amounts in wanted]
    check_one_won(service, consumer, hosts, answers, wanted)


def by_host(hosts: list[str], amounts: list[int]) -> dict[str, int]:
    """The requested amounts, by host."""
    return {host: amount for host, amount in zip(hosts, amounts, strict=True) if amount}


def check_one_won(
    service: Service, consumer: str, hosts: list[str], answers: list[Answer], wanted: list[dict[str, int]]
) -> None:
    """One of two claims was accepted and took effect; the other got a conflict and changed nothing."""
    statuses = [answer.result().status_int for answer in answers]
    assert sorted(statuses) == [204, 409], [answer.result().text for answer in answers]
    refused = answers[statuses.index(409)].result()
    assert refused.json['errors'][0]['code'] == 'placement.concurrent_update'
    won = wanted[statuses.index(204)]
    state = service.call('GET', f'/allocations/{consumer}').json
    assert {host: one['resources']['VCPU'] for host, one in state['allocations'].items()} == won
    assert state.get('consumer_generation') == (2 if won else None)
    assert [usage(service, host) for host in hosts] == [won.get(host, 0) for host in hosts]


def test_two_writes_that_change_the_project(service: Service) -> None:
    """The claims differ only in the project: the refused one does not change it."""
    host, consumer = make_host(service), str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({host: 2}, None)).status_int == 204
    projects = ['first', 'second']
    for number, project in enumerate(projects):
        # The projects are stored already, so no write waits for them.
        assert service.call('PUT', path, claim({host: 2}, 1 + number, project)).status_int == 204
    with service.lock('placement_consumers', 'uuid', consumer):
        answers = [service.begin_blocked('PUT', path, claim({host: 2}, 3, project)) for project in projects]
    statuses = [answer.result().status_int for answer in answers]
    assert sorted(statuses) == [204, 409]
    state = service.call('GET', path).json
    assert (state['project_id'], state['consumer_generation']) == (projects[statuses.index(204)], 4)


# Trees -----------------------------------------------------------------------------------------------------


def move(service: Service, provider: str, parent: str) -> Answer:
    """Move a tree below a provider of another tree."""
    return service.begin_blocked(
        'PUT', f'/resource_providers/{provider}', {'name': provider, 'parent_provider_uuid': parent}
    )


def place(service: Service, provider: str) -> tuple[str, str]:
    """The parent and the root of a provider."""
    shown = service.call('GET', f'/resource_providers/{provider}').json
    return shown['parent_provider_uuid'], shown['root_provider_uuid']


def test_a_child_is_created_in_a_tree_that_moves(service: Service) -> None:
    """The tree has joined another one when the child is stored, so the child has the new root."""
    tree, other = make_host(service), make_host(service)
    child = str(uuid.uuid4())
    with service.lock('placement_resource_providers', 'uuid', other):
        # The move has locked the root of its own tree, whose id is smaller, and waits for the other root.
        moved = move(service, tree, other)
        made = service.begin_blocked(
            'POST', '/resource_providers', {'name': child, 'uuid': child, 'parent_provider_uuid': tree}
        )
    assert [moved.result().status_int, made.result().status_int] == [200, 200]
    assert place(service, tree) == (other, other)
    assert place(service, child) == (tree, other)


def test_a_tree_that_joins_a_tree_that_moves(service: Service) -> None:
    """The same with a whole tree instead of a child."""
    tree, other, third = make_host(service), make_host(service), make_host(service)
    leaf = str(uuid.uuid4())
    below = {'name': leaf, 'uuid': leaf, 'parent_provider_uuid': third}
    assert service.call('POST', '/resource_providers', below).status_int == 200
    with service.lock('placement_resource_providers', 'uuid', other):
        moved = move(service, tree, other)
        joined = move(service, third, tree)
    assert [moved.result().status_int, joined.result().status_int] == [200, 200]
    assert place(service, tree) == (other, other)
    assert place(service, third) == (tree, other)
    assert place(service, leaf) == (third, other)


def test_two_trees_that_join_each_other(service: Service) -> None:
    """Only one of them succeeds; the other would create a loop."""
    one, two = make_host(service), make_host(service)
    with service.lock('placement_resource_providers', 'uuid', one):
        answers = [move(service, one, two), move(service, two, one)]
    statuses = [answer.result().status_int for answer in answers]
    assert sorted(statuses) == [200, 400], [answer.result().text for answer in answers]
    root = two if statuses[0] == 200 else one
    assert [place(service, provider)[1] for provider in (one, two)] == [root, root]
    assert place(service, root)[0] is None
