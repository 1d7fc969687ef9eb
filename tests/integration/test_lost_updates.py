"""Rows change between a read and the write of a request: two requests at once, on every database.

Another session holds a lock, and does nothing else, until both requests have read and wait for it. On SQLite, where
a transaction that writes locks the whole file from its first read on, they wait before they read.
"""

from __future__ import annotations

import concurrent.futures
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement.db import change_log_reader, tables
from placement.ops.audit import audit
from tests.integration import races
from tests.integration.locking import Answer, Service
from tests.support import corruption, databases
from tests.support.history.check import link_problems
from tests.support.http_client import claim_body, create_provider

pytestmark = databases.EVERYWHERE

#: Method, path, body and microversion.
Step = tuple[str, str, Any, str]


def texts(responses: list[Answer]) -> list[str]:
    return [response.result().text for response in responses]


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
        seen = tx.scalar(count), tx.scalar(generation), change_log_reader.read_log_position(tx)
        make_host(service)
        assert service.call('DELETE', f'/resource_providers/{host}/inventories').status_int == 204
        assert (tx.scalar(count), tx.scalar(generation), change_log_reader.read_log_position(tx)) == seen
    with service.app.db.reader() as tx:
        assert tx.scalar(count) != seen[0]
        assert tx.scalar(generation) != seen[1]
        assert change_log_reader.read_log_position(tx) != seen[2]


# Two writes with one consumer generation -------------------------------------------------------------------


def claim(amounts: Mapping[str, int], generation: int | None, project: str = 'project') -> dict[str, Any]:
    """The body of a claim of VCPU by host; amounts of 0 are left out."""
    allocations = {host: {'VCPU': amount} for host, amount in amounts.items() if amount}
    return claim_body(allocations, generation, project_id=project)


def leave_only_the_record(service: Service, consumers: list[str]) -> None:
    """Delete the allocations of the only consumers that have any, as another deployment may leave them."""
    listed = ', '.join(f"'{consumer}'" for consumer in consumers)
    corruption.plant(
        service.app.db.engine.url,
        f'DELETE FROM placement_allocations WHERE consumer_id IN ({listed})',
        'UPDATE placement_inventories SET used = 0',
    )


@pytest.mark.parametrize(
    ('count', 'held', 'first', 'second'),
    [
        (1, True, (5, 0), (0, 7)),
        (1, True, (2, 0), (2, 0)),
        (1, True, (5, 0), (0, 0)),
        (1, True, (0, 0), (5, 0)),
        (1, True, (2, 4), (2, 7)),
        (1, False, (5, 0), (0, 7)),
        (1, False, (5, 0), (0, 0)),
        (2, False, (5, 0), (7, 0)),
        (2, False, (5, 0), (0, 0)),
    ],
)
def test_two_writes_of_the_same_consumers(
    service: Service, count: int, held: bool, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Both send the consumers' generation, each with another project: one is accepted, the other changes nothing.

    :param count: one consumer is written by PUT, several by POST.
    :param held: whether the consumers hold 2 of the first host; otherwise there is no row of theirs to delete.
    :param first: the amounts of one write by host; if both are 0, it clears the consumers.
    """
    hosts, consumers = [make_host(service), make_host(service)], [str(uuid.uuid4()) for _ in range(count)]
    projects = ('first', 'second')
    # The last project stays; the others are stored already, so no write waits for them.
    for project in (*projects, 'project'):
        for consumer in consumers:
            service.call('DELETE', f'/allocations/{consumer}')
            body = claim({hosts[0]: 2}, None, project)
            assert service.call('PUT', f'/allocations/{consumer}', body).status_int == 204
    if not held:
        leave_only_the_record(service, consumers)
    claims = [
        claim(dict(zip(hosts, amounts, strict=True)), 1, project)
        for amounts, project in zip((first, second), projects, strict=True)
    ]
    with service.lock('placement_consumers', 'uuid', consumers[0]):
        if count == 1:
            responses = [service.begin_blocked('PUT', f'/allocations/{consumers[0]}', body) for body in claims]
        else:
            bodies = [dict.fromkeys(consumers, body) for body in claims]
            responses = [service.begin_blocked('POST', '/allocations', body) for body in bodies]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [204, 409], texts(responses)
    rejected = responses[statuses.index(409)].result()
    assert rejected.json['errors'][0]['code'] == 'placement.concurrent_update'
    won = (first, second)[statuses.index(204)]
    assert [usage(service, host) for host in hosts] == [count * amount for amount in won]
    for consumer in consumers:
        state = service.call('GET', f'/allocations/{consumer}').json
        assert state.get('consumer_generation') == (2 if any(won) else None)
        assert state.get('project_id') == (projects[statuses.index(204)] if any(won) else None)


def test_a_post_that_clears_a_consumer_without_allocations(service: Service) -> None:
    """A claim of the same consumer comes first or is rejected; it never holds allocations without a record."""
    host, consumer, other = make_host(service), str(uuid.uuid4()), str(uuid.uuid4())
    path = f'/allocations/{consumer}'
    assert service.call('PUT', path, claim({host: 2}, None)).status_int == 204
    leave_only_the_record(service, [consumer])
    cleared = {consumer: claim({}, 1), other: claim({host: 1}, None)}
    with service.lock('placement_consumers', 'uuid', consumer):
        put = service.begin_blocked('PUT', path, claim({host: 5}, 1))
        post = service.begin_blocked('POST', '/allocations', cleared)
    statuses = [put.result().status_int, post.result().status_int]
    assert sorted(statuses) == [204, 409], [put.result().text, post.result().text]
    assert service.call('GET', path).json.get('consumer_generation') == (2 if statuses[0] == 204 else None)
    assert usage(service, host) == (5 if statuses[0] == 204 else 1)


def test_two_reshapes_of_one_provider(service: Service) -> None:
    """Both send the generation that the provider has; one replaces the inventory, and the other gets a conflict."""
    host = make_host(service)
    bodies = [races.reshape({host: (1, {'VCPU': total})}) for total in (50, 60)]
    with service.lock('placement_resource_providers', 'uuid', host):
        responses = [service.begin_blocked('POST', '/reshaper', body, '1.30') for body in bodies]
    statuses = [response.result().status_int for response in responses]
    assert sorted(statuses) == [204, 409], texts(responses)
    state = service.call('GET', f'/resource_providers/{host}/inventories').json
    assert state['inventories']['VCPU']['total'] == (50, 60)[statuses.index(204)]
    assert state['resource_provider_generation'] == 3


# Trees -----------------------------------------------------------------------------------------------------

#: The trees of each test: parents by name, in the order of the ids.
FOREST = {
    'root': None,
    'other': None,
    'third': None,
    'top': 'root',
    'leaf': 'top',
    'side': 'root',
    'tip': 'side',
    'sprout': 'third',
}


def create(name: str, parent: str | None) -> Step:
    return 'POST', '/resource_providers', {'name': name, 'uuid': name, 'parent_provider_uuid': parent}, '1.29'


def move(name: str, parent: str | None) -> Step:
    """Move a provider and all below it to another parent."""
    return 'PUT', f'/resource_providers/{name}', {'name': name, 'parent_provider_uuid': parent}, '1.37'


def delete(name: str) -> Step:
    return 'DELETE', f'/resource_providers/{name}', None, '1.29'


class Forest:
    """Providers with the names of ``FOREST``, and a new one, in the database of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.uuids = {name: str(uuid.uuid4()) for name in (*FOREST, 'child')}
        for name, parent in FOREST.items():
            assert service.call(*self.translated(create(name, parent))).status_int == 200

    def translated(self, step: Step) -> Step:
        """A request with uuids in place of the names."""
        method, path, body, version = step
        start, _, name = path.rpartition('/')
        members = {key: self.uuids.get(value, value) for key, value in (body or {}).items()}
        return method, f'{start}/{self.uuids.get(name, name)}', members or None, version

    def links(self) -> dict[str, tuple[str | None, str]]:
        """The names of parent and root of each provider that there is."""
        names = {uuid: name for name, uuid in self.uuids.items()}
        shown = self.service.call('GET', '/resource_providers').json['resource_providers']
        return {
            names[row['uuid']]: (names.get(row['parent_provider_uuid']), names[row['root_provider_uuid']])
            for row in shown
            if row['uuid'] in names
        }


@pytest.mark.parametrize(
    ('locked', 'steps', 'outcomes'),
    [
        # The move has locked the root of its own tree, whose id is smaller, and waits for the other root.
        ('other', [move('root', 'other'), create('child', 'root')], {(200, 200): {'child': ('root', 'other')}}),
        ('other', [move('root', 'other'), move('third', 'root')], {(200, 200): {'sprout': ('third', 'other')}}),
        (
            'root',
            [move('root', 'other'), move('other', 'root')],
            {(200, 400): {'root': ('other', 'other')}, (400, 200): {'other': ('root', 'root')}},
        ),
        # The root that was read for the child is a root still, but no longer that of its parent.
        ('root', [move('top', 'other'), create('child', 'leaf')], {(200, 200): {'child': ('leaf', 'other')}}),
        ('root', [move('top', 'other'), move('side', 'leaf')], {(200, 200): {'tip': ('side', 'other')}}),
        # Neither changes a provider that the other one refers to.
        (
            'root',
            [move('top', 'tip'), move('side', 'leaf')],
            {(200, 400): {'top': ('tip', 'root')}, (400, 200): {'side': ('leaf', 'root')}},
        ),
        ('root', [move('top', None), move('side', 'leaf')], {(200, 200): {'side': ('leaf', 'top')}}),
        # The root that was read for the child is a root still, and so is its parent, but of another tree.
        ('root', [move('top', None), create('child', 'top')], {(200, 200): {'child': ('top', 'top')}}),
        (
            'other',
            [delete('other'), move('top', 'other')],
            {(204, 400): {'top': ('root', 'root')}, (409, 200): {'top': ('other', 'other')}},
        ),
        # The second request changes nothing, if it comes first.
        ('leaf', [move('leaf', 'side'), move('leaf', 'top')], {(200, 200): {'tip': ('side', 'root')}}),
    ],
)
def test_two_changes_of_trees(
    service: Service, locked: str, steps: list[Step], outcomes: dict[tuple[int, int], dict[str, tuple[str, str]]]
) -> None:
    """Each tree has one root and no loop afterwards.

    :param outcomes: for the statuses that the answers may have, the parent and the root of a provider.
    """
    forest = Forest(service)
    requests = [forest.translated(step) for step in steps]
    with service.lock('placement_resource_providers', 'uuid', forest.uuids[locked]):
        answers = [service.begin_blocked(*request) for request in requests]
    responses = [answer.result() for answer in answers]
    statuses = tuple(response.status_int for response in responses)
    assert statuses in outcomes, [response.text for response in responses]
    links = forest.links()
    assert outcomes[statuses].items() <= links.items()
    assert link_problems(links) == []
    for (_, _, body, version), response in zip(requests, responses, strict=True):
        if version == '1.37' and response.status_int == 200:
            assert response.json['parent_provider_uuid'] == body['parent_provider_uuid']


def test_a_root_is_repaired_while_an_ancestor_becomes_a_root(service: Service) -> None:
    """The parents led to another root when the audit looked at them, which is a root still."""
    forest, database = Forest(service), service.app.db.engine.url
    root, other, leaf = (forest.uuids[name] for name in ('root', 'other', 'leaf'))
    (other_id,) = corruption.column(database, f"SELECT id FROM placement_resource_providers WHERE uuid = '{other}'")
    corruption.plant(
        database, f"UPDATE placement_resource_providers SET root_provider_id = {other_id} WHERE uuid = '{leaf}'"
    )
    (finding,) = audit.find(service.app.db, cfg.ConfigOpts(), 'invalid_tree')
    assert finding.subject['resource_provider'] == leaf
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with service.lock('placement_resource_providers', 'uuid', root):
            moved = service.begin_blocked(*forest.translated(move('top', None)))
            repaired = pool.submit(audit.repair, service.app.db, cfg.ConfigOpts(), finding)
        repaired.result()
    assert moved.result().status_int == 200, moved.result().text
    assert forest.links()['top'] == (None, 'top')
    assert forest.links()['leaf'] == ('top', 'top')
    assert audit.find(service.app.db, cfg.ConfigOpts(), 'invalid_tree') == []


@pytest.mark.parametrize('kind', ['inventories', 'traits', 'aggregates', 'child', 'allocations'])
def test_a_provider_is_deleted_while_a_row_that_refers_to_it_is_written(service: Service, kind: str) -> None:
    """The deletion looks for such rows when it begins to wait, and again if the write comes first."""
    host, other = make_host(service), str(uuid.uuid4())
    if kind != 'allocations':
        assert service.call('DELETE', f'/resource_providers/{host}/inventories').status_int == 204
    path = f'/resource_providers/{host}'
    generation = service.call('GET', path).json['generation']
    sent = {'resource_provider_generation': generation}
    writes: dict[str, tuple[str, str, dict[str, Any]]] = {
        'inventories': ('PUT', f'{path}/inventories', {'inventories': {'VCPU': {'total': 1}}, **sent}),
        'traits': ('PUT', f'{path}/traits', {'traits': ['HW_CPU_X86_AVX'], **sent}),
        'aggregates': ('PUT', f'{path}/aggregates', {'aggregates': [other], **sent}),
        'child': ('POST', '/resource_providers', {'name': other, 'uuid': other, 'parent_provider_uuid': host}),
        'allocations': ('PUT', f'/allocations/{other}', claim({host: 1}, None)),
    }
    with service.lock('placement_resource_providers', 'uuid', host):
        written, deleted = service.begin_blocked(*writes[kind]), service.begin_blocked('DELETE', path)
    is_written, is_deleted = (answer.result().status_int // 100 == 2 for answer in (written, deleted))
    # Only children and allocations prevent a deletion.
    if kind in ('child', 'allocations'):
        assert is_written != is_deleted, texts([written, deleted])
    else:
        assert is_deleted, texts([written, deleted])
    assert service.call('GET', path).status_int == (404 if is_deleted else 200)
    assert {written.result().status_int, deleted.result().status_int} <= {200, 204, 400, 404, 409}


# Allocations without an inventory --------------------------------------------------------------------------


def make_orphan(service: Service) -> tuple[str, str]:
    """A host without inventories, and a consumer with 8 VCPU and 1 DISK_GB of it, as another program may leave them."""
    host, consumer = create_provider(service.app, VCPU=8, MEMORY_MB=8, DISK_GB=8, IPV4_ADDRESS=8), str(uuid.uuid4())
    body = claim_body({host: {'VCPU': 8, 'DISK_GB': 1}})
    assert service.call('PUT', f'/allocations/{consumer}', body).status_int == 204
    of_host = f"resource_provider_id = (SELECT id FROM placement_resource_providers WHERE uuid = '{host}')"
    vcpu = f'DELETE FROM placement_inventories WHERE resource_class_id = 0 AND {of_host}'
    corruption.plant(service.app.db.engine.url, vcpu)
    return host, consumer


def add_vcpu(host: str, route: str, claims: dict[str, Any] | None = None) -> tuple[str, str, dict[str, Any], str]:
    """A request that adds 8 VCPU to the inventories of an orphan: method, path, body and microversion.

    But for POST and PUT it also removes all other classes except the one that is in use.
    """
    path, generation = f'/resource_providers/{host}/inventories', {'resource_provider_generation': 2}
    if route == 'POST':
        return 'POST', path, {'resource_class': 'VCPU', 'total': 8, **generation}, '1.29'
    classes = ('MEMORY_MB', 'DISK_GB', 'IPV4_ADDRESS') if route == 'PUT' else ('DISK_GB',)
    totals = dict.fromkeys(('VCPU', *classes), 8)
    if route == 'reshape':
        return 'POST', '/reshaper', races.reshape({host: (2, totals)}, claims), '1.30'
    inventories = {name: {'total': total} for name, total in totals.items()}
    return 'PUT', path, {'inventories': inventories, **generation}, '1.29'


@pytest.mark.parametrize('route', ['POST', 'PUT', 'PUT and remove', 'reshape'])
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
    slots = 'SELECT id FROM placement_writer_slots ORDER BY id FOR UPDATE'
    with service.holding('BEGIN IMMEDIATE' if service.dialect == 'sqlite' else slots):
        responses = [service.begin_blocked(*request) for request in requests]
    assert [response.result().status_int // 100 for response in responses] == [2, 2], texts(responses)
    assert usage(service, host) == 0
    assert usage(service, other) == (0 if release == 'DELETE' else 8)
    assert usage_mismatches(service, host) == []
