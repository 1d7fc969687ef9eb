"""A write changes the class or trait that it named, or nothing: two requests at once, on PostgreSQL and MariaDB.

Another session holds a lock, and does nothing else, to stop the first request between reading the name and its
write.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest

from tests.integration.locking import Service
from tests.support import databases
from tests.support.http_client import claim_body, create_provider

pytestmark = databases.ON_EACH


def no_new_inventory(service: Service, provider: str) -> contextlib.AbstractContextManager[None]:
    """Block inserts of inventories of a provider; reads and other changes of it are not blocked."""
    if service.dialect == 'postgresql':
        return service.holding('LOCK TABLE placement_inventories IN SHARE MODE')
    number = service.scalar(f"SELECT id FROM placement_resource_providers WHERE uuid = '{provider}'")
    return service.holding(
        'SELECT id FROM placement_inventories FORCE INDEX (uniq_inventories0resource_provider_resource_class)'
        f' WHERE resource_provider_id = {number} FOR UPDATE'
    )


def no_new_consumer(service: Service, consumer: str) -> contextlib.AbstractContextManager[None]:
    """Block the creation of a consumer; a project and a user must exist."""
    return service.holding(
        'INSERT INTO placement_consumers (uuid, project_id, user_id)'
        f" SELECT '{consumer}', p.id, u.id FROM placement_projects p, placement_users u LIMIT 1"
    )


@pytest.fixture
def name(service: Service) -> str:
    """A new custom class."""
    name = f'CUSTOM_{uuid.uuid4().hex.upper()}'
    assert service.call('PUT', f'/resource_classes/{name}').status_int == 201
    return name


@pytest.fixture
def provider(service: Service) -> str:
    """A new provider without inventory."""
    return create_provider(service.app)


def inventories(service: Service, provider: str) -> list[str]:
    """The classes that a provider has inventory of."""
    return list(service.call('GET', f'/resource_providers/{provider}/inventories').json['inventories'])


def writing(kind: str, provider: str, name: str) -> tuple[str, str, Any]:
    """Method, path and body of a request that gives a provider inventory of a class."""
    path = f'/resource_providers/{provider}/inventories'
    if kind == 'POST':
        return 'POST', path, {'resource_class': name, 'total': 7}
    return 'PUT', path, {'resource_provider_generation': 0, 'inventories': {name: {'total': 7}}}


@pytest.fixture
def claim(service: Service, name: str, provider: str) -> dict[str, Any]:
    """The body of a claim of 3 of the class, of which the provider has 7; its project and user are known."""
    assert service.call(*writing('POST', provider, name)).status_int == 201
    body = claim_body({provider: {name: 3}})
    first = f'/allocations/{uuid.uuid4()}'
    assert service.call('PUT', first, body).status_int == 204
    assert service.call('DELETE', first).status_int == 204
    return body


@pytest.mark.parametrize('kind', ['POST', 'PUT'])
def test_class_renamed_while_inventory_of_it_is_written(service: Service, name: str, provider: str, kind: str) -> None:
    """The rename waits for the write, so no inventory appears under the new name after the rename."""
    other = f'{name}_2'
    with no_new_inventory(service, provider):
        writer = service.begin_blocked(*writing(kind, provider, name))
        renamer = service.begin_blocked('PUT', f'/resource_classes/{name}', {'name': other}, '1.6')
    assert writer.result().status_int in (200, 201), writer.result().text
    assert renamer.result().status_int == 200, renamer.result().text
    assert inventories(service, provider) == [other]


def test_class_replaced_by_another_while_it_is_claimed(
    service: Service, name: str, provider: str, claim: dict[str, Any]
) -> None:
    """Between reading the name and the claim, its inventory is deleted and another class gets inventory.

    The deletion of the class waits for the claim.
    """
    path, other, consumer = f'/resource_providers/{provider}', f'{name}_2', str(uuid.uuid4())
    with no_new_consumer(service, consumer):
        claimant = service.begin_blocked('PUT', f'/allocations/{consumer}', claim)
        assert service.call('DELETE', f'{path}/inventories/{name}').status_int == 204
        assert service.call('PUT', f'/resource_classes/{other}').status_int == 201
        assert service.call(*writing('POST', provider, other)).status_int == 201
        deleter = service.begin_blocked('DELETE', f'/resource_classes/{name}')
    assert claimant.result().status_int in (400, 409), claimant.result().text
    assert deleter.result().status_int == 204, deleter.result().text
    assert service.call('GET', f'{path}/usages').json['usages'] == {other: 0}


@pytest.mark.parametrize('method', ['PUT', 'DELETE'])
def test_class_renamed_while_it_is_renamed_or_deleted(service: Service, name: str, method: str) -> None:
    """The second request finds no class of the old name, and does not change the row."""
    path = f'/resource_classes/{name}'
    with service.lock('placement_resource_classes', 'name', name):
        renamer = service.begin_blocked('PUT', path, {'name': f'{name}_1'}, '1.6')
        body = {'name': f'{name}_2'} if method == 'PUT' else None
        other = service.begin_blocked(method, path, body, '1.6')
    statuses = renamer.result().status_int, other.result().status_int
    assert statuses in ((200, 404), (404, 200 if method == 'PUT' else 204))
    for number, status in enumerate(statuses, 1):
        created = service.call('GET', f'{path}_{number}').status_int
        assert created == (200 if status == 200 else 404)


def test_classes_created_at_once(service: Service) -> None:
    """Two requests for one name and one for another wait for one another; each name gets an id of its own."""
    prefix = f'CUSTOM_{uuid.uuid4().hex.upper()}'
    names = [f'{prefix}_{number}' for number in (0, 0, 1)]
    with service.lock('placement_resource_class_sequence', 'id', '1'):
        creators = [service.begin_blocked('PUT', f'/resource_classes/{name}') for name in names]
    statuses = [creator.result().status_int for creator in creators]
    assert (sorted(statuses[:2]), statuses[2]) == ([201, 204], 201)
    listed = [entry['name'] for entry in service.call('GET', '/resource_classes').json['resource_classes']]
    assert sorted(listed[-2:]) == names[1:]


def test_trait_deleted_while_a_provider_gets_it(service: Service, provider: str) -> None:
    """The trait is locked when its name is read: its deletion waits, and is rejected."""
    name = f'CUSTOM_{uuid.uuid4().hex.upper()}'
    assert service.call('PUT', f'/traits/{name}').status_int == 201
    body = {'traits': [name], 'resource_provider_generation': 0}
    with service.lock('placement_resource_providers', 'uuid', provider):
        writer = service.begin_blocked('PUT', f'/resource_providers/{provider}/traits', body)
        deleter = service.begin_blocked('DELETE', f'/traits/{name}')
    assert writer.result().json['traits'] == [name]
    assert deleter.result().status_int == 409, deleter.result().text


def test_writers_of_one_class_do_not_wait_for_each_other(service: Service, name: str) -> None:
    """The writers change different providers."""
    providers = [create_provider(service.app) for _ in range(2)]
    with service.lock('placement_resource_providers', 'uuid', providers[0]):
        stopped = service.begin_blocked(*writing('POST', providers[0], name))
        assert service.call(*writing('POST', providers[1], name)).status_int == 201
    assert stopped.result().status_int == 201
