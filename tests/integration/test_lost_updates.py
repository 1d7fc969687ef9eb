"""Rows change between a read and the write of a request: two requests at once, on every database.

Another session holds a lock, and does nothing else, until both requests have read and wait for it. On SQLite, where
a transaction that writes locks the whole file from its first read on, they wait before they read.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement.db import change_log, tables
from placement.ops import audit
from tests.support import applications, corruption, logs
from tests.support.http_client import create_provider
from tests.support.locking import Answer, Service


@pytest.fixture(scope='module', params=logs.SERVERS)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The application on an empty database of each server."""
    directory: pathlib.Path = tmp_path_factory.mktemp('database')
    newest = applications.EVERY_MICROVERSION
    with (
        logs.fresh(request.param, directory) as url,
        applications.application(url, placement=newest) as app,
    ):
        service = Service(app, url)
        yield service
        service.close()


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
        seen = tx.scalar(count), tx.scalar(generation), change_log.read_log_position(tx)
        make_host(service)
        assert service.call('DELETE', f'/resource_providers/{host}/inventories').status_int == 204
        assert (tx.scalar(count), tx.scalar(generation), change_log.read_log_position(tx)) == seen
    with service.app.db.reader() as tx:
        assert tx.scalar(count) != seen[0]
        assert tx.scalar(generation) != seen[1]
        assert change_log.read_log_position(tx) != seen[2]


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
    allocations = [by_host(hosts, amounts) for amounts in (first, second)]
    with service.lock('placement_consumers', 'uuid', consumer):
        responses = [service.begin_blocked('PUT', path, claim(amounts, 1)) for amounts in allocations]
    check_one_won(service, consumer, hosts, responses, allocations)


@pytest.mark.parametrize('second', [[0, 7], [0, 0]])
def test_two_writes_of_a_consumer_without_allocations(service: Service, second: list[int]) -> None:
    """Another deployment left such a record. There are no allocations whose deletion would show the other write."""
    hosts, consumer = [make_host(service), make_host(service)], str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({hosts[0]: 2}, None)).status_int == 204
    leave_only_the_record(service, consumer)
    allocations = [by_host(hosts, amounts) for amounts in ([5, 0], second)]
    with service.lock('placement_consumers', 'uuid', consumer):
        responses = [service.begin_blocked('PUT', path, claim(amounts, 1)) for amounts in allocations]
    check_one_won(service, consumer, hosts, responses, allocations)


def test_a_post_that_clears_a_consumer_without_allocations(service: Service) -> None:
    """A claim of the same consumer comes first or is rejected; it never holds allocations without a record."""
    host, consumer, other = make_host(service), str(uuid.uuid4()), str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({host: 2}, None)).status_int == 204
    leave_only_the_record(service, consumer)
    cleared = {consumer: claim({}, 1), other: claim({host: 1}, None)}
    with service.lock('placement_consumers', 'uuid', consumer):
        put = service.begin_blocked('PUT', path, claim({host: 5}, 1))
        post = service.begin_blocked('POST', '/allocations', cleared)
    statuses = [put.result().status_int, post.result().status_int]
    assert sorted(statuses) == [204, 409], [put.result().text, post.result().text]
    assert service.call('GET', path).json.get('consumer_generation') == (2 if statuses[0] == 204 else None)
    assert usage(service, host) == (5 if statuses[0] == 204 else 1)


def leave_only_the_record(service: Service, consumer: str) -> None:
    """Delete the allocations of the only consumer that has any, as another deployment may have left it."""
    of_consumer = tables.allocations.c.consumer_id == consumer

    def work(tx: sa.Connection) -> None:
        tx.execute(tables.allocations.delete().where(of_consumer))
        tx.execute(tables.inventories.update().values(used=0))
        change_log.record_reload(tx)

    service.app.db.write(work)


def by_host(hosts: list[str], amounts: list[int]) -> dict[str, int]:
    """The requested amounts, by host."""
    return {host: amount for host, amount in zip(hosts, amounts, strict=True) if amount}


def check_one_won(
    service: Service, consumer: str, hosts: list[str], responses: list[Answer], allocations: list[dict[str, int]]
) -> None:
    """One of two claims was accepted and took effect; the other got a conflict and changed nothing."""
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [204, 409], [response.result().text for response in responses]
    rejected = responses[statuses.index(409)].result()
    assert rejected.json['errors'][0]['code'] == 'placement.concurrent_update'
    won = allocations[statuses.index(204)]
    state = service.call('GET', f'/allocations/{consumer}').json
    assert {host: allocation['resources']['VCPU'] for host, allocation in state['allocations'].items()} == won
    assert state.get('consumer_generation') == (2 if won else None)
    assert [usage(service, host) for host in hosts] == [won.get(host, 0) for host in hosts]


def test_two_writes_that_change_the_project(service: Service) -> None:
    """The claims differ only in the project: the rejected one does not change it."""
    host, consumer = make_host(service), str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({host: 2}, None)).status_int == 204
    projects = ['first', 'second']
    for number, project in enumerate(projects):
        # The projects are stored already, so no write waits for them.
        assert service.call('PUT', path, claim({host: 2}, 1 + number, project)).status_int == 204
    with service.lock('placement_consumers', 'uuid', consumer):
        responses = [service.begin_blocked('PUT', path, claim({host: 2}, 3, project)) for project in projects]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [204, 409]
    state = service.call('GET', path).json
    assert (state['project_id'], state['consumer_generation']) == (projects[statuses.index(204)], 4)


@pytest.mark.parametrize('second', [7, 0])
def test_two_posts_of_consumers_without_allocations(service: Service, second: int) -> None:
    """As above with several consumers in one request, which one statement updates or deletes."""
    host, consumers = make_host(service), [str(uuid.uuid4()) for _ in range(2)]
    for consumer in consumers:
        assert service.call('PUT', f'/allocations/{consumer}', claim({host: 2}, None)).status_int == 204
        leave_only_the_record(service, consumer)
    allocations = [{host: 5}, {host: second} if second else {}]
    bodies = [{consumer: claim(amounts, 1) for consumer in consumers} for amounts in allocations]
    with service.lock('placement_consumers', 'uuid', consumers[0]):
        responses = [service.begin_blocked('POST', '/allocations', body) for body in bodies]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [204, 409], [response.result().text for response in responses]
    won = allocations[statuses.index(204)]
    assert usage(service, host) == 2 * won.get(host, 0)
    for consumer in consumers:
        state = service.call('GET', f'/allocations/{consumer}').json
        assert state.get('consumer_generation') == (2 if won else None)


def test_two_claims_that_are_the_first_of_their_project(service: Service) -> None:
    """The project, the user and the type are new: the claim that comes second finds those of the first."""
    host, new = make_host(service), str(uuid.uuid4())
    body = claim({host: 2}, None, new) | {'user_id': new, 'consumer_type': f'T_{new[:8].upper()}'}
    with service.lock('placement_resource_providers', 'uuid', host):
        responses = [service.begin_blocked('PUT', f'/allocations/{uuid.uuid4()}', body, '1.38') for _ in range(2)]
    assert [response.result().status_int for response in responses] == [204, 204], [
        response.result().text for response in responses
    ]
    usages = service.call('GET', f'/usages?project_id={new}&user_id={new}', version='1.38').json['usages']
    assert usages == {body['consumer_type']: {'consumer_count': 2, 'VCPU': 4}}


def test_two_reshapes_of_one_provider(service: Service) -> None:
    """Both send the generation that the provider has; one replaces the inventory, and the other gets a conflict."""
    host = make_host(service)
    bodies: list[dict[str, Any]] = [
        {
            'inventories': {host: {'resource_provider_generation': 1, 'inventories': {'VCPU': {'total': total}}}},
            'allocations': {},
        }
        for total in (50, 60)
    ]
    with service.lock('placement_resource_providers', 'uuid', host):
        responses = [service.begin_blocked('POST', '/reshaper', body, '1.30') for body in bodies]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [204, 409], [response.result().text for response in responses]
    state = service.call('GET', f'/resource_providers/{host}/inventories').json
    assert state['inventories']['VCPU']['total'] == (50, 60)[statuses.index(204)]
    assert state['resource_provider_generation'] == 3


# Trees -----------------------------------------------------------------------------------------------------


def move(service: Service, provider: str, parent: str | None) -> Answer:
    """Move a provider and all below it to another parent, which has to wait for a lock."""
    return service.begin_blocked(
        'PUT', f'/resource_providers/{provider}', {'name': provider, 'parent_provider_uuid': parent}, '1.37'
    )


def make_child(service: Service, parent: str) -> str:
    """A new provider below another one; its id is greater than those of earlier ones."""
    child = str(uuid.uuid4())
    body = {'name': child, 'uuid': child, 'parent_provider_uuid': parent}
    assert service.call('POST', '/resource_providers', body).status_int == 200
    return child


def place(service: Service, provider: str) -> tuple[str | None, str]:
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
        created = service.begin_blocked(
            'POST', '/resource_providers', {'name': child, 'uuid': child, 'parent_provider_uuid': tree}
        )
    assert [moved.result().status_int, created.result().status_int] == [200, 200]
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
    first, second = make_host(service), make_host(service)
    with service.lock('placement_resource_providers', 'uuid', first):
        responses = [move(service, first, second), move(service, second, first)]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [200, 400], [response.result().text for response in responses]
    root = second if statuses[0] == 200 else first
    assert [place(service, provider)[1] for provider in (first, second)] == [root, root]
    assert place(service, root)[0] is None


def test_a_child_is_created_below_a_provider_that_leaves_the_tree(service: Service) -> None:
    """The root that was read for the child is a root still, but no longer that of its parent."""
    root, other = make_host(service), make_host(service)
    top = make_child(service, root)
    leaf = make_child(service, top)
    child = str(uuid.uuid4())
    with service.lock('placement_resource_providers', 'uuid', root):
        moved = move(service, top, other)
        body = {'name': child, 'uuid': child, 'parent_provider_uuid': leaf}
        created = service.begin_blocked('POST', '/resource_providers', body)
    assert [moved.result().status_int, created.result().status_int] == [200, 200]
    assert place(service, child) == (leaf, other)
    assert place(service, leaf) == (top, other)


def test_a_provider_moves_below_one_that_leaves_the_tree(service: Service) -> None:
    root, other = make_host(service), make_host(service)
    top, wanderer = make_child(service, root), make_child(service, root)
    leaf = make_child(service, top)
    with service.lock('placement_resource_providers', 'uuid', root):
        responses = [move(service, top, other), move(service, wanderer, leaf)]
    assert [response.result().status_int for response in responses] == [200, 200]
    assert place(service, wanderer) == (leaf, other)


def test_two_branches_of_a_tree_that_move_below_each_other(service: Service) -> None:
    """Neither changes a provider that the other one refers to."""
    root = make_host(service)
    first, second = make_child(service, root), make_child(service, root)
    leaves = {first: make_child(service, first), second: make_child(service, second)}
    with service.lock('placement_resource_providers', 'uuid', root):
        responses = [move(service, first, leaves[second]), move(service, second, leaves[first])]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [200, 400], [response.result().text for response in responses]
    rejected = responses[statuses.index(400)].result()
    assert rejected.json['errors'][0]['detail'].endswith('creating loop in the provider tree is not allowed.')
    moved, stayed = (first, second) if statuses[0] == 200 else (second, first)
    assert place(service, moved) == (leaves[stayed], root)
    assert place(service, stayed) == (root, root)


def test_an_ancestor_becomes_a_root_while_a_provider_moves(service: Service) -> None:
    root = make_host(service)
    top, wanderer = make_child(service, root), make_child(service, root)
    leaf = make_child(service, top)
    with service.lock('placement_resource_providers', 'uuid', root):
        responses = [move(service, top, None), move(service, wanderer, leaf)]
    assert [response.result().status_int for response in responses] == [200, 200]
    assert place(service, top) == (None, top)
    assert place(service, wanderer) == (leaf, top)


def test_a_child_is_created_below_a_provider_that_becomes_a_root(service: Service) -> None:
    """The root that was read for the child is a root still, and so is its parent, but of another tree."""
    root = make_host(service)
    top = make_child(service, root)
    child = str(uuid.uuid4())
    with service.lock('placement_resource_providers', 'uuid', root):
        moved = move(service, top, None)
        body = {'name': child, 'uuid': child, 'parent_provider_uuid': top}
        created = service.begin_blocked('POST', '/resource_providers', body)
    assert [moved.result().status_int, created.result().status_int] == [200, 200]
    assert place(service, top) == (None, top)
    assert place(service, child) == (top, top)


def test_a_root_is_repaired_while_an_ancestor_becomes_a_root(service: Service) -> None:
    """The parents led to another root when the audit looked at them, which is a root still."""
    root, other = make_host(service), make_host(service)
    top = make_child(service, root)
    leaf = make_child(service, top)
    database = service.app.db.engine.url
    (other_id,) = corruption.column(database, f"SELECT id FROM placement_resource_providers WHERE uuid = '{other}'")
    corruption.plant(
        database, f"UPDATE placement_resource_providers SET root_provider_id = {other_id} WHERE uuid = '{leaf}'"
    )
    (finding,) = audit.find(service.app.db, cfg.ConfigOpts(), 'invalid_tree')
    assert finding.subject['resource_provider'] == leaf
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with service.lock('placement_resource_providers', 'uuid', root):
            moved = move(service, top, None)
            repaired = pool.submit(audit.repair, service.app.db, finding)
        repaired.result()
    assert moved.result().status_int == 200, moved.result().text
    assert place(service, top) == (None, top)
    assert place(service, leaf) == (top, top)
    assert audit.find(service.app.db, cfg.ConfigOpts(), 'invalid_tree') == []


def test_the_new_parent_is_deleted(service: Service) -> None:
    """Either the move is too late, or the deletion."""
    root, other = make_host(service), make_host(service)
    top = make_child(service, root)
    make_child(service, top)
    with service.lock('placement_resource_providers', 'uuid', other):
        removed = service.begin_blocked('DELETE', f'/resource_providers/{other}')
        moved = move(service, top, other)
    statuses = [moved.result().status_int, removed.result().status_int]
    assert statuses in ([400, 204], [200, 409]), [moved.result().text, removed.result().text]
    if statuses[0] == 400:
        assert moved.result().json['errors'][0]['detail'].endswith('parent provider UUID does not exist')
    assert place(service, top) == ((root, root) if statuses[0] == 400 else (other, other))


def test_the_same_parent_while_another_one_is_set(service: Service) -> None:
    """The request that changes nothing is answered with the parent that it names."""
    root = make_host(service)
    first, second = make_child(service, root), make_child(service, root)
    child = make_child(service, first)
    with service.lock('placement_resource_providers', 'uuid', child):
        responses = [move(service, child, second), move(service, child, first)]
    shown = [response.result().json['parent_provider_uuid'] for response in responses]
    assert shown == [second, first]
    assert place(service, child) in ((first, root), (second, root))


# Allocations without an inventory --------------------------------------------------------------------------


def make_orphan(service: Service) -> tuple[str, str]:
    """A host without inventories, and a consumer with 8 VCPU and 1 DISK_GB of it, as another program may leave them."""
    host, consumer = create_provider(service.app, VCPU=8, MEMORY_MB=8, DISK_GB=8, IPV4_ADDRESS=8), str(uuid.uuid4())
    body = claim({}, None) | {'allocations': {host: {'resources': {'VCPU': 8, 'DISK_GB': 1}}}}
    assert service.call('PUT', f'/allocations/{consumer}', body).status_int == 204
    vcpu = sa.select(tables.resource_classes.c.id).where(tables.resource_classes.c.name == 'VCPU').scalar_subquery()
    provider = sa.select(tables.resource_providers.c.id).where(tables.resource_providers.c.uuid == host)
    inventories = tables.inventories.c

    def work(tx: sa.Connection) -> None:
        of_host = inventories.resource_provider_id == provider.scalar_subquery()
        tx.execute(tables.inventories.delete().where(of_host, inventories.resource_class_id == vcpu))
        change_log.record_reload(tx)

    service.app.db.write(work)
    return host, consumer


def add_vcpu(host: str, route: str, claims: dict[str, Any] | None = None) -> tuple[str, str, dict[str, Any], str]:
    """A request that adds 8 VCPU to the inventories of an orphan: method, path, body and microversion.

    The whole PUT keeps one class, or it also removes one, or it removes them all but the one that is in use.
    """
    path, generation = f'/resource_providers/{host}/inventories', {'resource_provider_generation': 2}
    classes = {'PUT': ('VCPU', 'MEMORY_MB', 'DISK_GB', 'IPV4_ADDRESS'), 'PUT and remove': ('VCPU', 'DISK_GB')}
    if route == 'POST':
        return 'POST', path, {'resource_class': 'VCPU', 'total': 8, **generation}, '1.29'
    inventories = {'inventories': {name: {'total': 8} for name in classes.get(route, ('VCPU', 'DISK_GB'))}}
    if route == 'reshape':
        body = {'inventories': {host: {**inventories, **generation}}, 'allocations': claims or {}}
        return 'POST', '/reshaper', body, '1.30'
    return 'PUT', path, {**inventories, **generation}, '1.29'


ROUTES = ['POST', 'PUT', 'PUT and remove', 'reshape']


@pytest.mark.parametrize('route', ROUTES)
def test_a_new_inventory_has_the_usage_of_its_allocations(service: Service, route: str) -> None:
    host, consumer = make_orphan(service)
    assert service.call(*add_vcpu(host, route)).status_int in (200, 201, 204)
    assert usage(service, host) == 8
    other = f'/allocations/{uuid.uuid4()}'
    assert service.call('PUT', other, claim({host: 8}, None)).status_int == 409
    assert service.call('DELETE', f'/allocations/{consumer}').status_int == 204
    assert usage(service, host) == 0
    assert service.call('PUT', other, claim({host: 8}, None)).status_int == 204
    assert service.call('PUT', f'/allocations/{consumer}', claim({host: 1}, None)).status_int == 409
    assert usage(service, host) == 8


@pytest.mark.parametrize(('amount', 'status'), [(8, 204), (3, 204), (0, 204), (9, 409)])
def test_a_reshape_adds_the_inventory_and_replaces_the_allocation(service: Service, amount: int, status: int) -> None:
    host, consumer = make_orphan(service)
    claims = {consumer: claim({host: amount} if amount else {}, 1)}
    assert service.call(*add_vcpu(host, 'reshape', claims)).status_int == status
    if status == 204:
        assert usage(service, host) == amount
        assert service.call('PUT', f'/allocations/{uuid.uuid4()}', claim({host: 9 - amount}, None)).status_int == 409
    assert usage_mismatches(service, host) == []


def usage_mismatches(service: Service, host: str) -> list[str]:
    """What an audit says about the usage of a host."""
    findings = audit.find(service.app.db, cfg.ConfigOpts(), 'usage_mismatch')
    return [finding.detail for finding in findings if finding.subject['resource_provider'] == host]


@pytest.mark.parametrize('first', ['release', 'inventory'])
@pytest.mark.parametrize('release', ['DELETE', 'move'])
@pytest.mark.parametrize('route', ['PUT', 'PUT and remove', 'reshape'])
def test_an_allocation_is_released_while_its_inventory_is_added(
    service: Service, route: str, release: str, first: str
) -> None:
    """Each waits before its COMMIT, at the change log. The one that comes second waits for the first."""
    host, consumer = make_orphan(service)
    other, path = make_host(service), f'/allocations/{consumer}'
    requests: list[Any] = [
        ('DELETE', path) if release == 'DELETE' else ('PUT', path, claim({other: 8}, 1)),
        add_vcpu(host, route),
    ]
    if first == 'inventory':
        requests.reverse()
    slots = 'SELECT id FROM placement_change_log_slots ORDER BY id FOR UPDATE'
    with service.holding('BEGIN IMMEDIATE' if service.dialect == 'sqlite' else slots):
        responses = [service.begin_blocked(*request) for request in requests]
    assert [response.result().status_int // 100 for response in responses] == [2, 2], [
        response.result().text for response in responses
    ]
    assert usage(service, host) == 0
    assert usage(service, other) == (0 if release == 'DELETE' else 8)
    assert usage_mismatches(service, host) == []
