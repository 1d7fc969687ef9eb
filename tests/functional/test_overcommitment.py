"""The warning in the log when an inventory that was just written has less capacity than is used."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support.http_client import claim_body, create_provider, demand, send_request

pytestmark = pytest.mark.usefixtures('every_microversion')
_LOGGER = 'placement.db.inventory_rows'


def reshape(app: Any, host: str, total: int, claims: dict[str, Any]) -> None:
    generation = send_request(app, 'GET', f'/resource_providers/{host}').json['generation']
    inventories = {host: {'resource_provider_generation': generation, 'inventories': {'VCPU': {'total': total}}}}
    demand(app, 'POST', '/reshaper', {'inventories': inventories, 'allocations': claims}, '1.37')


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.name == _LOGGER]
    caplog.clear()
    return messages


def test_a_put_below_what_is_used(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    host = create_provider(app, VCPU=10)
    demand(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 5}}))
    path, records = f'/resource_providers/{host}/inventories', {'VCPU': {'total': 5}}
    demand(app, 'PUT', path, {'resource_provider_generation': 2, 'inventories': records})
    assert warnings(caplog) == []
    records = {'VCPU': {'total': 4}, 'DISK_GB': {'total': 1}}
    demand(app, 'PUT', path, {'resource_provider_generation': 3, 'inventories': records})
    assert warnings(caplog) == [f'Resource provider {host} is now over-committed: VCPU (5 used of 4)']


def test_a_reshape_counts_what_it_releases_itself(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    host, leaving, staying = create_provider(app, VCPU=10), str(uuid.uuid4()), str(uuid.uuid4())
    demand(app, 'PUT', f'/allocations/{leaving}', claim_body({host: {'VCPU': 5}}))
    demand(app, 'PUT', f'/allocations/{staying}', claim_body({host: {'VCPU': 2}}))
    reshape(app, host, 4, {leaving: claim_body({host: {'VCPU': 2}}, 1)})
    assert warnings(caplog) == []
    reshape(app, host, 1, {leaving: claim_body({}, 2)})
    assert warnings(caplog) == [f'Resource provider {host} is now over-committed: VCPU (2 used of 1)']
