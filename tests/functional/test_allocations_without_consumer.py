"""Allocations of an adopted database whose consumer has no record: its generation is 0, in answers and in checks."""

from __future__ import annotations

from typing import Any

import pytest

from placement.db import tables
from placement.db.api import Database
from tests.support.asking import ask

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
