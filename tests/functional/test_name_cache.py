"""The cache of names that each process has stays correct when another process changes names."""

from __future__ import annotations

import pytest

from placement import exception
from placement.db.api import Database
from placement.objects.inventory import Inventory
from placement.objects.resource_class import ResourceClass
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support.fixtures import Counter
from tests.support.objects import create_provider


def _id(db: Database, kind: type[ResourceClass | Trait], name: str) -> int:
    names = db.traits if kind is Trait else db.resource_classes
    return db.write(lambda tx: names.lock_ids(tx, [name]))[name]


def test_a_class_renamed_by_another_process(context: RequestContext, other_process: RequestContext) -> None:
    made = ResourceClass.create(context, 'CUSTOM_A')
    assert _id(context.db, ResourceClass, 'CUSTOM_A') == made.id
    ResourceClass.get_by_name(other_process, 'CUSTOM_A').rename('CUSTOM_B')
    with pytest.raises(exception.ResourceClassNotFound):
        _id(context.db, ResourceClass, 'CUSTOM_A')
    assert _id(context.db, ResourceClass, 'CUSTOM_B') == made.id
    fresh = ResourceClass.create(other_process, 'CUSTOM_A')
    assert _id(context.db, ResourceClass, 'CUSTOM_A') == fresh.id != made.id


@pytest.mark.parametrize(
    ('kind', 'unknown'), [(ResourceClass, exception.ResourceClassNotFound), (Trait, exception.TraitNotFound)]
)
def test_a_name_deleted_by_another_process(
    context: RequestContext,
    other_process: RequestContext,
    kind: type[ResourceClass | Trait],
    unknown: type[Exception],
) -> None:
    made = kind.create(context, 'CUSTOM_A')
    assert _id(context.db, kind, 'CUSTOM_A') == made.id
    kind.destroy(other_process, 'CUSTOM_A')
    with pytest.raises(unknown):
        _id(context.db, kind, 'CUSTOM_A')
    fresh = kind.create(other_process, 'CUSTOM_A')
    assert _id(context.db, kind, 'CUSTOM_A') == fresh.id != made.id


def test_a_name_created_by_another_process_is_found_at_once(
    context: RequestContext, other_process: RequestContext
) -> None:
    with pytest.raises(exception.ResourceClassNotFound):
        _id(context.db, ResourceClass, 'CUSTOM_A')
    made = ResourceClass.create(other_process, 'CUSTOM_A')
    assert _id(context.db, ResourceClass, 'CUSTOM_A') == made.id


def test_standard_names_are_read_from_the_database_once(context: RequestContext, queries: Counter) -> None:
    # The first write of a process reads the schema version and takes a slot of the change log.
    Trait.create(context, 'CUSTOM_FIRST')
    with queries(at_most=1):
        assert _id(context.db, ResourceClass, 'VCPU') == 0
    with queries(at_most=0):
        assert _id(context.db, ResourceClass, 'MEMORY_MB') == 1


def test_a_write_with_a_name_deleted_elsewhere_is_rejected(
    context: RequestContext, other_process: RequestContext
) -> None:
    """A whole write: a name that another process deleted is unknown, however often this process used it before."""
    ResourceClass.create(context, 'CUSTOM_A')
    host = create_provider(context, CUSTOM_A=1)
    host.delete_inventories()
    ResourceClass.destroy(other_process, 'CUSTOM_A')
    with pytest.raises(exception.ResourceClassNotFound):
        host.add_inventory(Inventory.from_request('CUSTOM_A', {'total': 1}))
