"""Ids are never given twice, and lists of names have what another process wrote just before, on each database."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement import exception
from placement.claims.claim import delete_allocations
from placement.db import tables
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.ops.audit import audit
from placement.web.authentication import RequestContext
from tests.support import applications, databases
from tests.support.http_client import create_provider, demand
from tests.support.objects import claim, set_aggregates
from tests.support.objects import create_provider as create_directly

pytestmark = databases.EVERYWHERE


@pytest.fixture(scope='module')
def context(load_application: Callable[..., Any]) -> RequestContext:
    """The context of a request that an administrator makes."""
    return applications.administrator(load_application({}).db)


def name_id(kind: type[ResourceClass | Trait], context: RequestContext) -> int:
    named = kind.create(context, f'CUSTOM_{uuid.uuid4().hex.upper()}')
    kind.destroy(context, named.name)
    return named.id


def provider_id(context: RequestContext) -> int:
    provider = create_directly(context)
    ResourceProvider.destroy(context, provider.uuid)
    return provider.id


def newest(context: RequestContext, table: sa.Table) -> int:
    return int(context.db.fetch_all(sa.select(sa.func.max(table.c.id)))[0][0])


def consumer_id(context: RequestContext) -> int:
    consumer = claim(context, {create_directly(context, VCPU=1).uuid: {'VCPU': 1}})
    id_ = newest(context, tables.consumers)
    delete_allocations(context.db, consumer)
    return id_


def aggregate_id(context: RequestContext) -> int:
    provider = create_directly(context)
    set_aggregates(provider, [str(uuid.uuid4())], increment_generation=False)
    id_ = newest(context, tables.placement_aggregates)
    set_aggregates(provider, [], increment_generation=False)
    for finding in audit.find(context.db, context.conf, 'orphaned_aggregate'):
        audit.repair(context.db, context.conf, finding)
    return id_


@pytest.mark.parametrize(
    'create_and_delete',
    [
        functools.partial(name_id, ResourceClass),
        functools.partial(name_id, Trait),
        provider_id,
        consumer_id,
        aggregate_id,
    ],
)
def test_no_id_is_given_twice(context: RequestContext, create_and_delete: Callable[[RequestContext], int]) -> None:
    ids = [create_and_delete(context) for _ in range(3)]
    assert ids == sorted(set(ids))


def custom(app: Any, kind: str, query: str = '') -> list[str]:
    """The custom names in a list, read twice, as the second response may be made of what the first one kept."""
    lists = [demand(app, 'GET', f'/{kind}{query}').json[kind] for _ in range(2)]
    assert lists[0] == lists[1]
    names = [name if kind == 'traits' else name['name'] for name in lists[0]]
    return [name for name in names if name.startswith('CUSTOM_')]


def test_lists_have_what_another_process_wrote(load_application: Callable[..., Any]) -> None:
    """Create, rename, use and delete names in one application, and list them in another one after each write."""
    reader, writer = load_application({}), load_application({})
    first, second, third = (f'CUSTOM_{uuid.uuid4().hex.upper()}' for _ in range(3))
    for kind in ('traits', 'resource_classes'):
        before = custom(reader, kind)
        demand(writer, 'PUT', f'/{kind}/{second}')
        assert custom(reader, kind) == [*before, second]
        demand(writer, 'PUT', f'/{kind}/{first}')
        assert custom(reader, kind) == [*before, second, first]
        demand(writer, 'DELETE', f'/{kind}/{second}')
        assert custom(reader, kind) == [*before, first]
    demand(writer, 'PUT', f'/resource_classes/{first}', {'name': third}, '1.6')
    assert custom(reader, 'resource_classes') == [*before, third]
    assert first not in custom(reader, 'traits', '?associated=true')
    traits = f'/resource_providers/{create_provider(writer)}/traits'
    demand(writer, 'PUT', traits, {'resource_provider_generation': 0, 'traits': [first]})
    assert first in custom(reader, 'traits', '?associated=true')
    assert first not in custom(reader, 'traits', '?associated=false')
    demand(writer, 'PUT', traits, {'resource_provider_generation': 1, 'traits': []})
    assert first not in custom(reader, 'traits', f'?associated=true&name=in:{first}')
    assert custom(reader, 'traits', f'?name=in:{first},{second}') == [first]


@pytest.mark.parametrize('kind', [ResourceClass, Trait])
def test_a_name_that_comes_and_goes_is_a_conflict_in_the_end(
    context: RequestContext, monkeypatch: pytest.MonkeyPatch, kind: type[ResourceClass | Trait]
) -> None:
    """Whenever it is read, another client has deleted it, and whenever it is inserted, one has created it again."""
    name = kind.create(context, f'CUSTOM_{uuid.uuid4().hex.upper()}').name
    attempts: list[str] = []

    def read_too_early(_context: RequestContext, name: str) -> ResourceClass | Trait:
        attempts.append(name)
        raise exception.NotFound

    monkeypatch.setattr(kind, 'get_by_name', read_too_early)
    with pytest.raises(exception.ConcurrentUpdate):
        kind.ensure(context, name)
    assert len(attempts) == 10
