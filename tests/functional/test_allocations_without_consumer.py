"""Allocations of an adopted database whose consumer or inventory has no record.

The generation of such a consumer is 0, in answers and in checks.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement.db import tables
from placement.db.api import Database
from tests.support.http_client import ask

PROVIDER = 'a3ed7b4c-6c1f-4d8f-9f0e-0f4b9d6f8a01'
CONSUMER = '/allocations/5b3d9d52-5a3e-4e0c-8a4e-7f0d1c2b3a02'


def claim(amount: int, generation: int | None) -> dict[str, Any]:
    allocations = {PROVIDER: {'resources': {'VCPU': amount}}} if amount else {}
    return {'allocations': allocations, 'project_id': 'p', 'user_id': 'u', 'consumer_generation': generation}


@pytest.fixture(autouse=True)
def _orphan(app: Any, db: Database) -> None:
    """An allocation of two units to a consumer without a record."""
    ask(app, 'POST', '/resource_providers', {'name': 'host', 'uuid': PROVIDER})
    inventory = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 4}}}
    ask(app, 'PUT', f'/resource_providers/{PROVIDER}/inventories', inventory)
    assert ask(app, 'PUT', CONSUMER, claim(2, None)).status_int == 204
    with db.engine.begin() as connection:
        connection.execute(tables.consumers.delete())


def test_the_body_of_a_get_can_be_sent_back(app: Any) -> None:
    read = ask(app, 'GET', CONSUMER).json
    assert read['consumer_generation'] == 0
    assert ask(app, 'PUT', CONSUMER, read).status_int == 204
    assert ask(app, 'GET', CONSUMER).json['consumer_generation'] == 1


def test_the_consumer_can_be_cleared(app: Any) -> None:
    assert ask(app, 'PUT', CONSUMER, claim(0, 0)).status_int == 204
    assert ask(app, 'GET', CONSUMER).json == {'allocations': {}}
    assert ask(app, 'GET', f'/resource_providers/{PROVIDER}/usages').json['usages'] == {'VCPU': 0}


@pytest.mark.parametrize(('generation', 'got'), [(None, 'None'), (1, '1')])
def test_another_generation_is_refused(app: Any, generation: int | None, got: str) -> None:
    answer = ask(app, 'PUT', CONSUMER, claim(3, generation))
    assert answer.status_int == 409
    assert answer.json['errors'][0]['code'] == 'placement.concurrent_update'
    assert f'consumer generation conflict - expected 0 but got {got}' in answer.json['errors'][0]['detail']


def test_project_and_user_are_those_of_the_options(conf: cfg.ConfigOpts, app: Any) -> None:
    conf.set_override('incomplete_consumer_project_id', 'a-project', 'placement')
    conf.set_override('incomplete_consumer_user_id', 'a-user', 'placement')
    read = ask(app, 'GET', CONSUMER).json
    assert (read['project_id'], read['user_id']) == ('a-project', 'a-user')


def test_what_is_allocated_without_an_inventory_can_be_released(app: Any, db: Database) -> None:
    other = str(uuid.uuid4())
    ask(app, 'POST', '/resource_providers', {'name': 'other', 'uuid': other})
    inventory = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 4}}}
    ask(app, 'PUT', f'/resource_providers/{other}/inventories', inventory)
    provider = sa.select(tables.resource_providers.c.id).where(tables.resource_providers.c.uuid == PROVIDER)
    with db.engine.begin() as connection:
        lost = tables.inventories.c.resource_provider_id == provider.scalar_subquery()
        connection.execute(tables.inventories.delete().where(lost))
    moved = {**claim(1, 0), 'allocations': {other: {'resources': {'VCPU': 1}}}}
    answer = ask(app, 'PUT', CONSUMER, moved)
    assert answer.status_int == 204, answer.text
    assert ask(app, 'GET', f'/resource_providers/{PROVIDER}/allocations').json['allocations'] == {}
    assert ask(app, 'GET', f'/resource_providers/{other}/usages').json['usages'] == {'VCPU': 1}
