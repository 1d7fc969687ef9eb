"""``GET /resource_providers?in_tree``, which reads the tables unless there are more parameters."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from placement.web.authentication import RequestContext
from tests.support.http_client import demand
from tests.support.objects import create_provider


@pytest.mark.parametrize('version', ['1.14', '1.29'])
def test_the_tables_and_the_cache_give_the_same_tree(app: Any, context: RequestContext, version: str) -> None:
    child = create_provider(context, 'child')
    root = create_provider(context, 'root', VCPU=8)
    other = create_provider(context, 'other')
    # The root has a larger id than one of its children.
    for provider, name, parent in ((child, 'child', root), (other, 'other', child)):
        body = {'name': name, 'parent_provider_uuid': parent.uuid}
        demand(app, 'PUT', f'/resource_providers/{provider.uuid}', body)
    create_provider(context, 'elsewhere')
    for in_tree in (root.uuid, child.uuid, other.uuid, str(uuid.uuid4())):
        path = f'/resource_providers?in_tree={in_tree}'
        from_tables = demand(app, 'GET', path, version=version)
        from_cache = demand(app, 'GET', f'{path}&name=', version=version)
        assert from_tables.body == from_cache.body
        if from_cache.json['resource_providers']:
            assert from_tables.headers.get('Last-Modified') == from_cache.headers.get('Last-Modified')
            assert [entry['name'] for entry in from_cache.json['resource_providers']] == ['root', 'child', 'other']
