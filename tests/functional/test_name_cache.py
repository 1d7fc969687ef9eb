"""The cache of names that each process has stays correct when another process changes names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from oslo_config import cfg

from placement import deploy, exception
from placement.db.api import Database
from placement.objects.inventory import Inventory
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support.fixtures import Counter


@pytest.fixture
def other(conf: cfg.ConfigOpts, context: RequestContext) -> Iterator[RequestContext]:
    """The context of another process on the same database."""
    app: Any = deploy.loadapp(conf)
    yield RequestContext(conf=conf, db=app.db, roles=['admin'], user_id='admin', project_id='admin')
    app.db.dispose()


def _class_id(db: Database, name: str) -> int:
    return db.write(lambda tx: db.resource_classes.hold(tx, [name]))[name]


def _trait_id(db: Database, name: str) -> int:
    return db.write(lambda tx: db.traits.hold(tx, [name]))[name]


def test_a_class_renamed_by_another_process(context: RequestContext, other: RequestContext) -> None:
    made = ResourceClass.create(context, 'CUSTOM_A')
    assert _class_id(context.db, 'CUSTOM_A') == made.id
    ResourceClass.get_by_name(other, 'CUSTOM_A').rename('CUSTOM_B')
    with pytest.raises(exception.ResourceClassNotFound):
        _class_id(context.db, 'CUSTOM_A')
    assert _class_id(context.db, 'CUSTOM_B') == made.id
    fresh = ResourceClass.create(other, 'CUSTOM_A')
    assert _class_id(context.db, 'CUSTOM_A') == fresh.id != made.id


def test_a_class_deleted_by_another_process(context: RequestContext, other: RequestContext) -> None:
    made = ResourceClass.create(context, 'CUSTOM_A')
    assert _class_id(context.db, 'CUSTOM_A') == made.id
    ResourceClass.destroy(other, 'CUSTOM_A')
    with pytest.raises(exception.ResourceClassNotFound):
        _class_id(context.db, 'CUSTOM_A')
    fresh = ResourceClass.create(other, 'CUSTOM_A')
    assert _class_id(context.db, 'CUSTOM_A') == fresh.id != made.id


def test_a_trait_deleted_by_another_process(context: RequestContext, other: RequestContext) -> None:
    made = Trait.create(context, 'CUSTOM_A')
    assert _trait_id(context.db, 'CUSTOM_A') == made.id
    Trait.destroy(other, 'CUSTOM_A')
    with pytest.raises(exception.TraitNotFound):
        _trait_id(context.db, 'CUSTOM_A')
    fresh = Trait.create(other, 'CUSTOM_A')
    assert _trait_id(context.db, 'CUSTOM_A') == fresh.id != made.id


def test_a_name_created_by_another_process_is_found_at_once(context: RequestContext, other: RequestContext) -> None:
    with pytest.raises(exception.ResourceClassNotFound):
        _class_id(context.db, 'CUSTOM_A')
    made = ResourceClass.create(other, 'CUSTOM_A')
    assert _class_id(context.db, 'CUSTOM_A') == made.id


def test_standard_names_are_read_from_the_database_once(context: RequestContext, queries: Counter) -> None:
    # The first write of a process reads the schema version and creates a writer for the log of changes.
    Trait.create(context, 'CUSTOM_FIRST')
    with queries(at_most=1):
        assert _class_id(context.db, 'VCPU') == 0
    with queries(at_most=0):
        assert _class_id(context.db, 'MEMORY_MB') == 1


def test_a_write_with_a_name_deleted_elsewhere_is_refused(context: RequestContext, other: RequestContext) -> None:
    """A whole write: a name that another process deleted is unknown, however often this process used it before."""
    ResourceClass.create(context, 'CUSTOM_A')
    host = ResourceProvider.create(context, name='host', uuid='0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b12')
    host.add_inventory(Inventory.from_request('CUSTOM_A', {'total': 1}))
    host.delete_inventories()
    ResourceClass.destroy(other, 'CUSTOM_A')
    with pytest.raises(exception.ResourceClassNotFound):
        host.add_inventory(Inventory.from_request('CUSTOM_A', {'total': 1}))
