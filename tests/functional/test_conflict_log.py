"""The log of conflicts: the reason of each 409 is one line at INFO, under the id of its request, with all numbers."""

from __future__ import annotations

import io
import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oslo_config import cfg

from placement.log_format import LineFormatter
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.http_client import claim_body, create_provider, demand, send_request

CONSUMER = 'c0000001-0000-4000-8000-000000000000'
ALLOCATING = 'Unable to allocate inventory: '

#: Sends a request that has to fail with 409, and returns the message of its line in the log.
Reason = Callable[..., str]


@pytest.fixture
def reason(app: Any, conf: cfg.ConfigOpts) -> Iterator[Reason]:
    """Read the log in the format of the service, in which each line has the id of its request."""
    text, log = io.StringIO(), logging.getLogger('placement')
    handler = logging.StreamHandler(text)
    handler.setFormatter(LineFormatter(version='', config=conf))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    def send(method: str, path: str, body: Any = None) -> str:
        response = send_request(app, method, path, body, NEWEST_MICROVERSION if path == '/reshaper' else '1.29')
        assert response.status_int == 409
        request_id = response.headers['x-openstack-request-id']
        (line,) = (line for line in text.getvalue().splitlines() if request_id in line and ' Conflict: ' in line)
        assert ' INFO placement.web.operation ' in line
        return line.partition(' Conflict: ')[2]

    yield send
    log.removeHandler(handler)
    log.setLevel(level)


def test_a_claim_that_does_not_fit(app: Any, reason: Reason) -> None:
    host = create_provider(app, VCPU=8)
    demand(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 5}}))
    demand(app, 'PUT', f'/allocations/{CONSUMER}', claim_body({host: {'VCPU': 2}}))
    # The consumer releases its 2, so 5 of 8 are used by others.
    line = reason('PUT', f'/allocations/{CONSUMER}', claim_body({host: {'VCPU': 4}}, generation=1))
    assert line == (
        f"{ALLOCATING}Unable to create allocation for 'VCPU' on resource provider '{host}'. The requested amount would"
        f' exceed the capacity. Requested 4, used 5, capacity 8, consumer {CONSUMER}.'
    )


def test_two_consumers_of_one_request_that_do_not_fit_together(app: Any, reason: Reason) -> None:
    host = create_provider(app, VCPU=8)
    other = str(uuid.uuid4())
    claims = {consumer: claim_body({host: {'VCPU': 5}}) for consumer in (other, CONSUMER)}
    line = reason('POST', '/allocations', claims)
    assert line.endswith(f' Requested 5, used 5, capacity 8, consumer {CONSUMER}.')


def test_a_claim_that_violates_the_units(app: Any, reason: Reason) -> None:
    host = create_provider(app, VCPU=8)
    inventory = {'total': 8, 'min_unit': 2, 'max_unit': 4, 'step_size': 2}
    body = {'resource_provider_generation': 1, 'inventories': {'VCPU': inventory}}
    demand(app, 'PUT', f'/resource_providers/{host}/inventories', body)
    line = reason('PUT', f'/allocations/{CONSUMER}', claim_body({host: {'VCPU': 5}}))
    assert line.endswith(f' Requested 5, min_unit 2, max_unit 4, step_size 2, consumer {CONSUMER}.')


@pytest.mark.parametrize('resources', [{'DISK_GB': 1}, {'VCPU': 1, 'DISK_GB': 1}])
def test_a_claim_of_a_class_without_inventory(app: Any, reason: Reason, resources: dict[str, int]) -> None:
    line = reason('PUT', f'/allocations/{CONSUMER}', claim_body({create_provider(app, VCPU=8): resources}))
    assert line.startswith(f"{ALLOCATING}Inventory for 'DISK_GB' on ")
    assert line.endswith(f' invalid. Consumer {CONSUMER}.')


def test_the_generation_of_a_consumer(app: Any, reason: Reason) -> None:
    host = create_provider(app, VCPU=8)
    line = reason('PUT', f'/allocations/{CONSUMER}', claim_body({host: {'VCPU': 1}}, generation=7))
    assert line == f'consumer generation conflict - expected null but got 7: consumer {CONSUMER}'


@pytest.mark.parametrize(
    ('path', 'members'), [('inventories', {'inventories': {}}), ('traits', {'traits': []}), ('aggregates', {})]
)
def test_the_generation_of_a_provider(app: Any, reason: Reason, path: str, members: dict[str, Any]) -> None:
    host = create_provider(app, VCPU=8)
    body = {'resource_provider_generation': 7, **(members or {'aggregates': []})}
    line = reason('PUT', f'/resource_providers/{host}/{path}', body)
    assert line.endswith(f' try again. Resource provider {host}: actual: 1, sent: 7.')


@pytest.mark.usefixtures('every_microversion')
def test_the_generation_of_a_reshaped_provider(app: Any, reason: Reason) -> None:
    host = create_provider(app, VCPU=8)
    inventories = {host: {'inventories': {}, 'resource_provider_generation': 7}}
    line = reason('POST', '/reshaper', {'inventories': inventories, 'allocations': {}})
    assert line == f'resource provider generation conflict for provider {host}: actual: 1, given: 7'


def test_a_name_that_exists_cannot_forge_a_line(app: Any, reason: Reason) -> None:
    name = f'host\n\x1b[31m 2026 ERROR {uuid.uuid4()}'
    holder = demand(app, 'POST', '/resource_providers', {'name': name}).json['uuid']
    escaped = name.replace('\n', '\\n').replace('\x1b', '\\x1b')
    assert reason('POST', '/resource_providers', {'name': name}) == (
        f'Conflicting resource provider name: {escaped} already exists. The provider with this name: {holder}'
    )
