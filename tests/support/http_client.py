"""Requests to an application in the process of the test."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import webob

from tests.support import error_details

#: Identity headers that a client must not be able to set.
CLAIMS = {
    'X-Identity-Status': 'Confirmed',
    'X-User-Id': 'root',
    'X-Project-Id': 'root',
    'X-Roles': 'admin',
    'X-Role': 'admin',
    'X-Is-Admin-Project': 'True',
    'X-Service-Roles': 'admin',
    'X-System-Scope': 'all',
}


def send_request(
    app: Any, method: str, path: str, body: Any = None, version: str = '1.29', **headers: str
) -> webob.Response:
    """Send a request as an administrator, with a JSON body if there is one.

    :param headers: others, which come last.
    """
    request = webob.Request.blank(path, method=method)
    request.headers.update({'X-Auth-Token': 'admin', 'OpenStack-API-Version': f'placement {version}'})
    if body is not None:
        request.content_type = 'application/json'
        request.json = body
    request.headers.update(headers)
    response = request.get_response(app)
    if response.status_int >= 400 and response.content_type == 'application/json':
        error_details.check(response.json)
    return response


def demand(app: Any, method: str, path: str, body: Any = None, version: str = '1.29') -> webob.Response:
    """Send a request that has to succeed."""
    response = send_request(app, method, path, body, version)
    assert response.status_int < 300, response.text
    return response


def claim_body(
    allocations: Mapping[str, Mapping[str, int]], generation: int | None = None, **members: Any
) -> dict[str, Any]:
    """The body of a claim of amounts by provider and class, for a new consumer unless a generation is given."""
    resources = {provider: {'resources': amounts} for provider, amounts in allocations.items()}
    owner = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': generation}
    return {'allocations': resources, **owner, **members}


def create_provider(app: Any, **totals: int) -> str:
    """The uuid, and name, of a new root provider with that much of each class, at generation 1 (0 without any)."""
    uuid_ = str(uuid.uuid4())
    demand(app, 'POST', '/resource_providers', {'name': uuid_, 'uuid': uuid_})
    if totals:
        inventories = {name: {'total': total} for name, total in totals.items()}
        body = {'resource_provider_generation': 0, 'inventories': inventories}
        demand(app, 'PUT', f'/resource_providers/{uuid_}/inventories', body)
    return uuid_
