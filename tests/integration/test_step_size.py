"""A ``step_size`` below 1, which only another program can have stored: no amount of the inventory can be allocated."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from tests.integration.locking import Service
from tests.support import corruption, databases
from tests.support.http_client import claim_body, create_provider

pytestmark = databases.EVERYWHERE


@pytest.mark.parametrize('step_size', [0, -1])
def test_no_amount_is_a_multiple(service: Service, database: sa.URL, step_size: int) -> None:
    host = create_provider(service.app, VCPU=8)
    corruption.plant(database, f'UPDATE placement_inventories SET step_size = {step_size}')
    claim = service.call('PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 2}}))
    assert claim.status_int == 409
    assert 'The requested amount would violate inventory constraints.' in claim.text
    for path in ('/allocation_candidates', '/resource_providers'):
        response = service.call('GET', f'{path}?resources=VCPU:2')
        assert response.status_int == 200
        assert host not in response.text
