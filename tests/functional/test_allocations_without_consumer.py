"""Allocations whose consumer or inventory was deleted by hand."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import tables
from placement.db.api import Database
from tests.support.http_client import send_request

PROVIDER = 'a3ed7b4c-6c1f-4d8f-9f0e-0f4b9d6f8a01'
CONSUMER = '/allocations/5b3d9d52-5a3e-4e0c-8a4e-7f0d1c2b3a02'


def claim(amount: int, generation: int | None) -> dict[str, Any]:
    allocations = {PROVIDER: {'resources': {'VCPU': amount}}} if amount else {}
    return {'allocations': allocations, 'project_id': 'p', 'user_id': 'u', 'consumer_generation': generation}


@pytest.fixture(autouse=True)
def _orphan(app: Any, db: Database) -> None:
    """An allocation of two units to a consumer without a record."""
    send_request(app, 'POST', '/resource_providers', {'name': 'host', 'uuid': PROVIDER})
    inventory = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 4}}}
    send_request(app, 'PUT', f'/resource_providers/{PROVIDER}/inventories', inventory)
    assert send_request(app, 'PUT', CONSUMER, claim(2, None)).status_int == 204
    with db.engine.begin() as connection:
        connection.execute(tables.consumers.delete())


def test_they_are_not_shown(app: Any) -> None:
    assert send_request(app, 'GET', CONSUMER).json == {'allocations': {}}
    assert send_request(app, 'GET', f'/resource_providers/{PROVIDER}/allocations').json['allocations'] == {}


def test_they_count_as_used(app: Any) -> None:
    assert send_request(app, 'GET', f'/resource_providers/{PROVIDER}/usages').json['usages'] == {'VCPU': 2}


def test_a_new_claim_replaces_them(app: Any) -> None:
    assert send_request(app, 'PUT', CONSUMER, claim(3, 0)).status_int == 409
    assert send_request(app, 'PUT', CONSUMER, claim(3, None)).status_int == 204
    assert send_request(app, 'GET', f'/resource_providers/{PROVIDER}/usages').json['usages'] == {'VCPU': 3}


def test_what_is_allocated_without_an_inventory_can_be_released(app: Any, db: Database) -> None:
    other = str(uuid.uuid4())
    send_request(app, 'POST', '/resource_providers', {'name': 'other', 'uuid': other})
    inventory = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 4}}}
    send_request(app, 'PUT', f'/resource_providers/{other}/inventories', inventory)
    provider = sa.select(tables.resource_providers.c.id).where(tables.resource_providers.c.uuid == PROVIDER)
    with db.engine.begin() as connection:
        of_provider = tables.inventories.c.resource_provider_id == provider.scalar_subquery()
        connection.execute(tables.inventories.delete().where(of_provider))
    moved = {**claim(1, None), 'allocations': {other: {'resources': {'VCPU': 1}}}}
    answer = send_request(app, 'PUT', CONSUMER, moved)
    assert answer.status_int == 204, answer.text
    assert send_request(app, 'GET', f'/resource_providers/{PROVIDER}/allocations').json['allocations'] == {}
    assert send_request(app, 'GET', f'/resource_providers/{other}/usages').json['usages'] == {'VCPU': 1}
