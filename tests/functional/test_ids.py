"""Ids are never given twice, and a write with the id of something that was deleted changes nothing."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import migration, tables
from placement.db.api import Database
from placement.objects import aggregate
from placement.objects.inventory import Inventory, InventoryList
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import TraitList
from placement.web.context import RequestContext
from tests.support import corruption, lasting_ids


def test_no_id_is_given_twice(context: RequestContext) -> None:
    lasting_ids.check(context)


def test_ids_of_classes_continue_after_rows_inserted_by_others(context: RequestContext) -> None:
    with context.db.engine.begin() as connection:
        connection.execute(tables.resource_classes.insert(), {'id': 20000, 'name': 'CUSTOM_OTHERS'})
    assert ResourceClass.create(context, 'CUSTOM_OURS').id == 20001


def test_a_rename_of_a_deleted_class_is_rejected(context: RequestContext) -> None:
    found = ResourceClass.create(context, 'CUSTOM_A')
    ResourceClass.destroy(context, 'CUSTOM_A')
    ResourceClass.create(context, 'CUSTOM_B')
    with pytest.raises(exception.ResourceClassNotFound):
        found.rename('CUSTOM_C')
    assert ResourceClass.get_by_name(context, 'CUSTOM_B').name == 'CUSTOM_B'


def test_a_rename_of_a_class_renamed_meanwhile_is_rejected(context: RequestContext) -> None:
    found = ResourceClass.create(context, 'CUSTOM_A')
    ResourceClass.get_by_name(context, 'CUSTOM_A').rename('CUSTOM_B')
    with pytest.raises(exception.ResourceClassNotFound):
        found.rename('CUSTOM_C')
    assert ResourceClass.get_by_name(context, 'CUSTOM_B').id == found.id


#: The writes that a request can make to a provider that it has looked up.
WRITES: dict[str, Callable[[ResourceProvider], object]] = {
    'add inventory': lambda one: one.add_inventory(Inventory.from_request('VCPU', {'total': 4})),
    'set inventories': lambda one: one.set_inventories([Inventory.from_request('VCPU', {'total': 4})]),
    'clear inventories': ResourceProvider.delete_inventories,
    'set traits': lambda one: one.set_traits(['HW_CPU_X86_VMX']),
    'clear traits': ResourceProvider.clear_traits,
}


@pytest.mark.parametrize('write', WRITES.values(), ids=WRITES)
def test_a_write_does_not_change_a_new_provider_with_the_same_uuid(
    context: RequestContext, write: Callable[[ResourceProvider], object]
) -> None:
    identity = str(uuid.uuid4())
    found = ResourceProvider.create(context, name='provider', uuid=identity)
    ResourceProvider.destroy(context, identity)
    fresh = ResourceProvider.create(context, name='provider', uuid=identity)
    with pytest.raises((exception.ConcurrentProviderUpdate, exception.ResourceProviderNotFound)):
        write(found)
    assert len(InventoryList.get_with_provider(context, fresh.uuid)[1]) == 0
    assert len(TraitList.get_with_provider(context, fresh.uuid)[1]) == 0
    assert aggregate.get_with_provider(context, fresh.uuid)[1] == []
    now = ResourceProvider.get_by_uuid(context, identity)
    assert (now.id, now.name, now.generation) == (fresh.id, 'provider', 0)


def test_setting_the_same_traits_at_an_old_generation_is_rejected(context: RequestContext) -> None:
    identity = str(uuid.uuid4())
    found = ResourceProvider.create(context, name='provider', uuid=identity)
    ResourceProvider.get_by_uuid(context, identity).set_traits(['HW_CPU_X86_VMX'])
    with pytest.raises(exception.ConcurrentProviderUpdate):
        found.set_traits(['HW_CPU_X86_VMX'])


def test_a_foreign_key_error_is_a_conflict(context: RequestContext) -> None:
    """The row that it refers to was deleted since it was looked up, so the caller gets a conflict and no 500."""
    row = {'resource_provider_id': 1, 'aggregate_id': 77}
    with pytest.raises(exception.ConcurrentUpdate):
        context.db.write(lambda tx: tx.execute(tables.resource_provider_aggregates.insert(), row))


def test_a_migration_restores_the_foreign_key_setting_of_a_connection(tmp_path: pathlib.Path) -> None:
    """The connection stays in its pool."""
    engine = sa.create_engine(f'sqlite:///{tmp_path}/pooled.sqlite', poolclass=sa.StaticPool)
    for state in (1, 0):
        with engine.connect() as connection:
            connection.exec_driver_sql(f'PRAGMA foreign_keys = {state}')
        migration.sync(engine)
        with engine.connect() as connection:
            assert connection.exec_driver_sql('PRAGMA foreign_keys').scalar() == state
    engine.dispose()


def test_foreign_keys_are_checked(db: Database) -> None:
    db.sync()
    corruption.plant(str(db.engine.url), *corruption.SOUND)
    with pytest.raises(Exception, match='FOREIGN KEY'), db.engine.begin() as connection:
        connection.execute(sa.delete(tables.resource_providers).where(tables.resource_providers.c.id == 1))
