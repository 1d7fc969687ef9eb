"""How many SQL statements a request may cost. Counts do not vary with the machine, so they are asserted."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import webob

from placement.context import RequestContext
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from tests.conftest import Counter


def ask(app: Any, method: str, path: str, body: object = None) -> webob.Response:
    """Send one request at the newest microversion as an administrator."""
    request = webob.Request.blank(path, method=method)
    request.headers['X-Auth-Token'] = 'admin'
    request.headers['OpenStack-API-Version'] = 'placement latest'
    if body is not None:
        request.content_type = 'application/json'
        request.body = json.dumps(body).encode()
    return request.get_response(app)


def make_provider(context: RequestContext, name: str, **totals: int) -> ResourceProvider:
    provider = ResourceProvider.create(context, name=name, uuid=str(uuid.uuid4()))
    provider.set_inventories([Inventory.from_request(name, {'total': total}) for name, total in totals.items()])
    return provider


@pytest.fixture
def host(context: RequestContext) -> ResourceProvider:
    return make_provider(context, 'host', VCPU=1000, MEMORY_MB=1000, DISK_GB=1000)


def claim_body(host: ResourceProvider, generation: int | None) -> dict[str, Any]:
    return {
        'allocations': {host.uuid: {'resources': {'VCPU': 1, 'MEMORY_MB': 1, 'DISK_GB': 1}}},
        'project_id': 'project',
        'user_id': 'user',
        'consumer_generation': generation,
    }


def test_one_provider_costs_one(app: Any, host: ResourceProvider, queries: Counter) -> None:
    with queries(at_most=1):
        assert ask(app, 'GET', f'/resource_providers/{host.uuid}').status_code == 200


def test_usages_cost_two(app: Any, host: ResourceProvider, queries: Counter) -> None:
    with queries(at_most=2):
        assert ask(app, 'GET', f'/resource_providers/{host.uuid}/usages').status_code == 200


@pytest.mark.parametrize('count', [1, 60])
def test_a_list_costs_the_same_whatever_its_length(
    app: Any, context: RequestContext, queries: Counter, count: int
) -> None:
    for number in range(count):
        make_provider(context, f'host{number}', VCPU=8)
    with queries(at_most=1):
        listed = ask(app, 'GET', '/resource_providers?resources=VCPU:1')
    assert len(listed.json['resource_providers']) == count


@pytest.mark.parametrize('filters', ['resources=VCPU:1,DISK_GB:1', 'required=HW_CPU_X86_VMX', 'in_tree={0}'])
def test_filters_cost_one_look_up_at_the_most(app: Any, host: ResourceProvider, queries: Counter, filters: str) -> None:
    with queries(at_most=2):
        assert ask(app, 'GET', f'/resource_providers?{filters.format(host.uuid)}').status_code == 200


def test_a_claim_of_a_new_consumer_costs_ten(app: Any, host: ResourceProvider, queries: Counter) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    assert ask(app, 'PUT', f'/allocations/{first}', claim_body(host, None)).status_code == 204
    with queries(at_most=10):
        assert ask(app, 'PUT', f'/allocations/{second}', claim_body(host, None)).status_code == 204


def test_the_first_claim_of_a_project_and_user_costs_two_more(
    app: Any, host: ResourceProvider, queries: Counter
) -> None:
    with queries(at_most=12):
        assert ask(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body(host, None)).status_code == 204


def test_a_claim_of_a_known_consumer_costs_eleven(app: Any, host: ResourceProvider, queries: Counter) -> None:
    consumer = str(uuid.uuid4())
    assert ask(app, 'PUT', f'/allocations/{consumer}', claim_body(host, None)).status_code == 204
    with queries(at_most=11):
        assert ask(app, 'PUT', f'/allocations/{consumer}', claim_body(host, 1)).status_code == 204


def test_a_refusal_reads_twice_more(app: Any, host: ResourceProvider, queries: Counter) -> None:
    body = claim_body(host, None)
    body['allocations'][host.uuid]['resources'] = {'VCPU': 1001}
    with queries(at_most=10):
        assert ask(app, 'PUT', f'/allocations/{uuid.uuid4()}', body).status_code == 409


def test_deleting_allocations_costs_seven(app: Any, host: ResourceProvider, queries: Counter) -> None:
    consumer = str(uuid.uuid4())
    assert ask(app, 'PUT', f'/allocations/{consumer}', claim_body(host, None)).status_code == 204
    with queries(at_most=7):
        assert ask(app, 'DELETE', f'/allocations/{consumer}').status_code == 204


@pytest.mark.parametrize('path', ['/traits', '/resource_classes', '/usages?project_id=nobody', '/allocations/{}'])
def test_other_readings_cost_one(app: Any, queries: Counter, path: str) -> None:
    with queries(at_most=1):
        assert ask(app, 'GET', path.format(uuid.uuid4())).status_code == 200
