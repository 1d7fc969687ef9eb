"""Consumers in the database: what of their types survives and what a failed write leaves, and rows deleted by hand."""

from __future__ import annotations

import pathlib
import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import tables
from placement.db.api import Database
from tests.support import applications
from tests.support.http_client import claim_body, create_provider, demand, send_request

pytestmark = pytest.mark.usefixtures('every_microversion')


def type_of(app: Any, consumer: str) -> str:
    return str(send_request(app, 'GET', f'/allocations/{consumer}', version='1.38').json['consumer_type'])


def test_types_are_kept_while_the_newest_microversion_is_lower(app: Any, tmp_path: pathlib.Path) -> None:
    """Writes of a process that does not know 1.38 leave the type of a consumer, and give none to a new one."""
    host, instance, other = create_provider(app, VCPU=10), str(uuid.uuid4()), str(uuid.uuid4())
    demand(app, 'PUT', f'/allocations/{instance}', claim_body({host: {'VCPU': 1}}, consumer_type='INSTANCE'), '1.38')
    with applications.application(tmp_path / 'placement.sqlite') as lowered:
        assert send_request(lowered, 'GET', f'/allocations/{instance}', version='1.38').status_code == 406
        shown = send_request(lowered, 'GET', f'/allocations/{instance}', version='1.29').json
        assert 'consumer_type' not in shown
        demand(lowered, 'PUT', f'/allocations/{instance}', claim_body({host: {'VCPU': 2}}, 1))
        demand(lowered, 'PUT', f'/allocations/{other}', claim_body({host: {'VCPU': 1}}))
        assert send_request(lowered, 'GET', '/usages?project_id=project').json['usages'] == {'VCPU': 3}
    assert (type_of(app, instance), type_of(app, other)) == ('INSTANCE', 'unknown')
    assert send_request(app, 'GET', '/usages?project_id=project', version='1.38').json['usages'] == {
        'INSTANCE': {'consumer_count': 1, 'VCPU': 2},
        'unknown': {'consumer_count': 1, 'VCPU': 1},
    }


@pytest.mark.parametrize(
    ('change', 'status'),
    [
        ({'consumer_generation': 7}, 409),
        ({'allocations': {str(uuid.uuid4()): {'resources': {'VCPU': 1}}}}, 400),
        ({'allocations': {}}, 204),
    ],
)
def test_a_write_that_gives_nothing_stores_no_type(app: Any, change: dict[str, Any], status: int) -> None:
    host, consumer = create_provider(app, VCPU=10), str(uuid.uuid4())
    demand(app, 'PUT', f'/allocations/{consumer}', claim_body({host: {'VCPU': 1}}, consumer_type='INSTANCE'), '1.38')
    too_much = claim_body({host: {'VCPU': 11}}, 1, consumer_type='MIGRATION')
    for body, expected in ((too_much, 409), ({**too_much, **change}, status)):
        assert send_request(app, 'PUT', f'/allocations/{consumer}', body, '1.38').status_code == expected
    assert [row.name for row in app.db.fetch_all(sa.select(tables.consumer_types.c.name))] == ['INSTANCE']


def test_a_consumer_written_without_an_owner_has_the_owner_of_the_settings(tmp_path: pathlib.Path) -> None:
    settings = {'incomplete_consumer_project_id': 'a project', 'incomplete_consumer_user_id': 'a user'}
    with applications.application(tmp_path / 'placement.sqlite', placement=settings) as app:
        host, path = create_provider(app, VCPU=10), f'/allocations/{uuid.uuid4()}'
        body = {'allocations': [{'resource_provider': {'uuid': host}, 'resources': {'VCPU': 1}}]}
        demand(app, 'PUT', path, body, '1.0')
        shown = send_request(app, 'GET', path, version='1.12').json
    assert (shown['project_id'], shown['user_id']) == ('a project', 'a user')


def test_a_record_without_allocations_is_no_consumer_in_usages(app: Any) -> None:
    """As an adopted database may have it."""
    host, consumer = create_provider(app, VCPU=10), str(uuid.uuid4())
    demand(app, 'PUT', f'/allocations/{consumer}', claim_body({host: {'VCPU': 1}}, consumer_type='INSTANCE'), '1.38')
    with app.db.engine.begin() as connection:
        connection.exec_driver_sql('DELETE FROM placement_allocations')
    for query in ('', '&consumer_type=all', '&consumer_type=INSTANCE', '&user_id=user'):
        assert send_request(app, 'GET', f'/usages?project_id=project{query}', version='1.38').json == {'usages': {}}


@pytest.mark.parametrize('copies', ['', 'WHERE consumer_id = (SELECT min(uuid) FROM placement_consumers)'])
def test_allocations_without_a_copy_of_their_owner_are_counted_in_usages(app: Any, copies: str) -> None:
    """As a process of the release before writes them; all, or some of them."""
    host = create_provider(app, VCPU=10)
    for owner in ('user', 'user', 'other'):
        body = {**claim_body({host: {'VCPU': 1}}, consumer_type='INSTANCE'), 'user_id': owner}
        demand(app, 'PUT', f'/allocations/{uuid.uuid4()}', body, '1.38')
    demand(
        app,
        'PUT',
        f'/allocations/{uuid.uuid4()}',
        {**claim_body({host: {'VCPU': 1}}), 'project_id': 'elsewhere'},
        '1.37',
    )
    queries = ('', '&consumer_type=all', '&consumer_type=INSTANCE', '&consumer_type=unknown', '&user_id=user')

    def shown() -> list[Any]:
        paths = [f'/usages?project_id={project}{query}' for project in ('project', 'elsewhere') for query in queries]
        shown_since_1_38 = [send_request(app, 'GET', path, version='1.38').json for path in paths]
        return shown_since_1_38 + [
            send_request(app, 'GET', path, version='1.9').json for path in paths if 'type' not in path
        ]

    expected = shown()
    assert expected[0] == {'usages': {'INSTANCE': {'consumer_count': 3, 'VCPU': 3}}}
    with app.db.engine.begin() as connection:
        connection.exec_driver_sql(
            f'UPDATE placement_allocations SET consumer_project_id = NULL, consumer_user_id = NULL,'
            f' consumer_type_id = NULL {copies}'
        )
    assert shown() == expected


def test_a_type_that_was_stored_by_another_service_is_shown_as_it_is(app: Any) -> None:
    """Also one that cannot be sent. One that is called as consumers without a type are shown is one group with them."""
    host, consumers = create_provider(app, VCPU=10), [str(uuid.uuid4()) for _ in range(3)]
    for consumer in consumers:
        demand(app, 'PUT', f'/allocations/{consumer}', claim_body({host: {'VCPU': 1}}), '1.37')
    with app.db.engine.begin() as connection:
        connection.execute(tables.consumer_types.insert(), [{'id': 7, 'name': 'théirs'}, {'id': 8, 'name': 'unknown'}])
        for number, consumer in enumerate(consumers[:2], 7):
            condition = tables.consumers.c.uuid == consumer
            connection.execute(tables.consumers.update().where(condition).values(consumer_type_id=number))
        # The copies that the adoption makes.
        connection.execute(tables.allocations.update().values(tables.CONSUMER_COPIES))
    assert [type_of(app, consumer) for consumer in consumers] == ['théirs', 'unknown', 'unknown']
    assert send_request(app, 'GET', '/usages?project_id=project', version='1.38').json['usages'] == {
        'théirs': {'consumer_count': 1, 'VCPU': 1},
        'unknown': {'consumer_count': 2, 'VCPU': 2},
    }
    unknown = send_request(app, 'GET', '/usages?project_id=project&consumer_type=unknown', version='1.38').json[
        'usages'
    ]
    assert unknown == {'unknown': {'consumer_count': 2, 'VCPU': 2}}


# Allocations whose consumer or inventory was deleted by hand ------------------------------------------------------


CONSUMER = '/allocations/5b3d9d52-5a3e-4e0c-8a4e-7f0d1c2b3a02'


def test_without_a_consumer_they_are_used_but_not_shown_and_a_new_claim_replaces_them(app: Any, db: Database) -> None:
    host = create_provider(app, VCPU=4)
    demand(app, 'PUT', CONSUMER, claim_body({host: {'VCPU': 2}}))
    with db.engine.begin() as connection:
        connection.execute(tables.consumers.delete())
    assert demand(app, 'GET', CONSUMER).json == {'allocations': {}}
    assert demand(app, 'GET', f'/resource_providers/{host}/allocations').json['allocations'] == {}
    assert demand(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': 2}
    assert send_request(app, 'PUT', CONSUMER, claim_body({host: {'VCPU': 3}}, 0)).status_int == 409
    demand(app, 'PUT', CONSUMER, claim_body({host: {'VCPU': 3}}))
    assert demand(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': 3}


def test_without_an_inventory_they_can_be_released(app: Any, db: Database) -> None:
    host, other = create_provider(app, VCPU=4), create_provider(app, VCPU=4)
    demand(app, 'PUT', CONSUMER, claim_body({host: {'VCPU': 2}}))
    provider = sa.select(tables.resource_providers.c.id).where(tables.resource_providers.c.uuid == host)
    with db.engine.begin() as connection:
        of_provider = tables.inventories.c.resource_provider_id == provider.scalar_subquery()
        connection.execute(tables.inventories.delete().where(of_provider))
    demand(app, 'PUT', CONSUMER, claim_body({other: {'VCPU': 1}}, 1))
    assert demand(app, 'GET', f'/resource_providers/{host}/allocations').json['allocations'] == {}
    assert demand(app, 'GET', f'/resource_providers/{other}/usages').json['usages'] == {'VCPU': 1}
