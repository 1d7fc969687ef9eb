"""Writes to a provider that lose a race: another request writes between the look-up of the provider and the change.

Each is answered with 409, the phrase of the operation and the code of a concurrent update, and changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from placement.capacity import InventoryRecord
from placement.handlers import inventory, trait
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support import error_details
from tests.support.http_client import send_request
from tests.support.objects import set_aggregates, set_inventories, set_traits

UUID = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'
TRAIT = 'HW_CPU_X86_VMX'


@pytest.fixture
def provider(context: RequestContext, monkeypatch: pytest.MonkeyPatch) -> ResourceProvider:
    """A provider at generation 2 whose generation another writer increments after each look-up."""
    provider = ResourceProvider.create(context, name='contended', uuid=UUID)
    set_inventories(provider, ('VCPU', InventoryRecord(4)))
    set_traits(provider, [TRAIT])
    for module, name in ((inventory, 'read_inventories'), (trait, 'read_traits')):
        monkeypatch.setattr(module, name, functools.partial(_read_beside_a_writer, getattr(module, name)))
    return provider


def _read_beside_a_writer(read: Callable[..., Any], context: RequestContext, uuid: str, *arguments: Any) -> Any:
    """Read a provider; before this returns, another writer increments the generation."""
    rows = read(context, uuid, *arguments)
    set_aggregates(ResourceProvider.get_by_uuid(context, uuid), [], increment_generation=True)
    return rows


@pytest.mark.parametrize(
    ('method', 'path', 'body', 'lead'),
    [
        ('POST', '/inventories', {'resource_class': 'VGPU', 'total': 1}, 'Update conflict: '),
        ('PUT', '/inventories', {'inventories': {}}, 'update conflict: '),
        ('DELETE', '/inventories', None, f'Unable to delete inventory for resource provider {UUID}: '),
        ('PUT', '/inventories/VCPU', {'total': 9}, 'update conflict: '),
        ('DELETE', '/inventories/VCPU', None, 'Unable to delete inventory of class VCPU: '),
        ('PUT', '/traits', {'traits': []}, ''),
        ('DELETE', '/traits', None, ''),
    ],
)
def test_the_losing_write_is_409(
    app: Any, provider: ResourceProvider, method: str, path: str, body: dict[str, Any] | None, lead: str
) -> None:
    if method == 'PUT':
        body = {**(body or {}), 'resource_provider_generation': provider.generation}
    response = send_request(app, method, f'/resource_providers/{UUID}{path}', body)
    error = response.json['errors'][0]
    assert (error['status'], error['code']) == (409, 'placement.concurrent_update')
    assert error_details.reason(error).startswith(
        f'{lead}Another thread concurrently updated the resource provider data.'
    )


def test_the_losing_write_changes_nothing(
    app: Any, context: RequestContext, provider: ResourceProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f'/resource_providers/{UUID}'
    for part in ('inventories', 'traits'):
        assert send_request(app, 'DELETE', f'{path}/{part}').status_int == 409
    monkeypatch.undo()
    assert send_request(app, 'GET', f'{path}/inventories').json['inventories'].keys() == {'VCPU'}
    assert send_request(app, 'GET', f'{path}/traits').json['traits'] == [TRAIT]
