"""Allocations whose consumer or inventory was deleted by hand."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement.db import tables
from placement.db.api import Database
from tests.support.http_client import claim_body, create_provider, demand, send_request

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
