"""The providers of a load: created, read and deleted over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.history.client import MICROVERSION, Client, Reply


class FleetError(Exception):
    """A request failed that must succeed while no other requests run."""


def create_provider(
    client: Client, inventories: dict[str, dict[str, Any]] | None = None, parent: str | None = None
) -> str:
    """Create a provider with a fresh name and give it ``inventories`` (class -> record). Returns its uuid."""
    identity = str(uuid.uuid4())
    body: dict[str, Any] = {'name': _name(identity), 'uuid': identity, 'parent_provider_uuid': parent}
    demand(client, 'POST', '/resource_providers', body)
    if inventories:
        body = {'resource_provider_generation': 0, 'inventories': inventories}
        demand(client, 'PUT', f'/resource_providers/{identity}/inventories', body)
    return identity


def move(client: Client, provider: str, parent: str | None) -> Reply:
    """Give ``provider`` another parent, or none. Its name has to be sent along."""
    body = {'name': _name(provider), 'parent_provider_uuid': parent}
    return client.request('PUT', f'/resource_providers/{provider}', body, version='1.37')


def _name(provider: str) -> str:
    return f'history-{provider}'


def demand(client: Client, method: str, path: str, body: Any = None, *, version: str = MICROVERSION) -> Any:
    """Send a request that has to succeed, and return the decoded answer. Raises FleetError."""
    reply = client.request(method, path, body, version=version)
    if not reply.accepted:
        raise FleetError(f'{method} {path} was answered {reply.status}: {reply.body}')
    return reply.body


def capacities(records: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """The capacity of each inventory record, not truncated (api-ref/capacity.md#the-capacity-rule)."""
    return {
        name: float((record['total'] - record.get('reserved', 0)) * record.get('allocation_ratio', 1.0))
        for name, record in records.items()
    }


def remove(client: Client, providers: Sequence[str]) -> None:
    """Delete providers and all allocations of them. Raises FleetError."""
    parents = {}
    for provider in providers:
        parents[provider] = demand(client, 'GET', f'/resource_providers/{provider}')['parent_provider_uuid']
        for consumer in demand(client, 'GET', f'/resource_providers/{provider}/allocations')['allocations']:
            demand(client, 'DELETE', f'/allocations/{consumer}')
    while parents:
        for provider in parents.keys() - parents.values():
            demand(client, 'DELETE', f'/resource_providers/{provider}')
            del parents[provider]
