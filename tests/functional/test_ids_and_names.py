"""Writes with the id of something deleted change nothing, and names in memory follow what other processes write."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from placement import exception
from placement.capacity import InventoryRecord
from placement.db import change_log, tables
from placement.db.api import Database
from placement.objects import aggregate
from placement.objects.inventory import Inventory, read_inventories
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait, read_traits
from placement.ops.audit import audit
from placement.web.authentication import RequestContext
from tests.support.http_client import demand
from tests.support.objects import create_provider, set_aggregates


def test_ids_of_classes_continue_after_rows_inserted_by_others(context: RequestContext) -> None:
    with context.db.engine.begin() as connection:
        connection.execute(tables.resource_classes.insert(), {'id': 20000, 'name': 'CUSTOM_OTHERS'})
    assert ResourceClass.create(context, 'CUSTOM_OURS').id == 20001


def test_a_rename_of_a_class_renamed_meanwhile_is_rejected(context: RequestContext) -> None:
    resource_class = ResourceClass.create(context, 'CUSTOM_A')
    ResourceClass.get_by_name(context, 'CUSTOM_A').rename('CUSTOM_B')
    with pytest.raises(exception.ResourceClassNotFound):
        resource_class.rename('CUSTOM_C')
    assert ResourceClass.get_by_name(context, 'CUSTOM_B').id == resource_class.id


VCPU, TRAITS = ('VCPU', InventoryRecord(4)), ['HW_CPU_X86_VMX']
#: The writes that a request can make to a provider: each reads it, and returns the write of what was read.
WRITES: dict[str, Callable[[RequestContext, str], Callable[[], object]]] = {
    'add inventory': lambda context, uuid: partial(
        Inventory.create, context, read_inventories(context, uuid)[0], *VCPU
    ),
    'set inventories': lambda context, uuid: partial(
        Inventory.replace, context, *read_inventories(context, uuid), inventories=dict([VCPU])
    ),
    'set traits': lambda context, uuid: partial(
        Trait.replace_all, context, *read_traits(context, uuid, TRAITS), TRAITS
    ),
}


@pytest.mark.parametrize('read', WRITES.values(), ids=WRITES)
def test_a_write_does_not_change_a_new_provider_with_the_same_uuid(
    context: RequestContext, read: Callable[[RequestContext, str], Callable[[], object]]
) -> None:
    identity = str(uuid.uuid4())
    ResourceProvider.create(context, name='provider', uuid=identity)
    write = read(context, identity)
    ResourceProvider.destroy(context, identity)
    fresh = ResourceProvider.create(context, name='provider', uuid=identity)
    with pytest.raises(exception.ConcurrentProviderUpdate):
        write()
    assert len(Inventory.get_all_with_provider(context, fresh.uuid)[1]) == 0
    assert len(Trait.get_all_with_provider(context, fresh.uuid)[1]) == 0
    assert aggregate.get_with_provider(context, fresh.uuid)[1] == []
    now = ResourceProvider.get_by_uuid(context, identity)
    assert (now.id, now.name, now.generation) == (fresh.id, 'provider', 0)


def test_a_foreign_key_error_is_a_conflict(context: RequestContext) -> None:
    """The row that it refers to was deleted since it was looked up, so the caller gets a conflict and no 500."""
    row = {'resource_provider_id': 1, 'aggregate_id': 77}
    with pytest.raises(exception.ConcurrentUpdate):
        context.db.write(lambda tx: tx.execute(tables.resource_provider_aggregates.insert(), row))


# The cache of names of each process, when another process changes names -------------------------------------------


def _id(db: Database, name: str) -> int:
    return db.write(lambda tx: db.resource_classes.lock_ids(tx, [name]))[name]


def test_a_class_deleted_by_another_process(context: RequestContext, other_process: RequestContext) -> None:
    """Of the names that are in the database now, only the standard ones are kept in memory."""
    named = ResourceClass.create(context, 'CUSTOM_A')
    assert _id(context.db, 'VCPU') >= 0
    assert _id(context.db, 'CUSTOM_A') == named.id
    ResourceClass.destroy(other_process, 'CUSTOM_A')
    with pytest.raises(exception.ResourceClassNotFound):
        _id(context.db, 'CUSTOM_A')
    fresh = ResourceClass.create(other_process, 'CUSTOM_A')
    assert _id(context.db, 'CUSTOM_A') == fresh.id != named.id


def test_a_trait_deleted_by_another_process(context: RequestContext, other_process: RequestContext) -> None:
    """After it was read for a provider, and before it is written."""
    Trait.create(context, 'CUSTOM_A')
    provider = create_provider(context)
    stored, present, named = read_traits(context, provider.uuid, ['CUSTOM_A'])
    Trait.destroy(other_process, 'CUSTOM_A')
    with pytest.raises(exception.TraitNotFound):
        Trait.replace_all(context, stored, present, named, ['CUSTOM_A'])
    assert read_traits(context, provider.uuid)[:2] == (stored, [])


@pytest.mark.parametrize('kind', ['traits', 'resource_classes'])
def test_an_unchanged_list_is_kept_for_each_mount_prefix(app: Any, kind: str) -> None:
    plain = demand(app, 'GET', f'/{kind}')
    headers = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
    mounted = webob.Request.blank(f'/{kind}', {'SCRIPT_NAME': '/the cloud/'}, headers=headers).get_response(app)
    assert demand(app, 'GET', f'/{kind}').body == plain.body
    assert mounted.body == plain.body.replace(b'"/resource_classes/', b'"/the%20cloud/resource_classes/')


@pytest.mark.parametrize('kind', [ResourceClass, Trait])
def test_a_name_without_a_time_was_changed_at_an_unknown_time(
    context: RequestContext, kind: type[ResourceClass | Trait]
) -> None:
    assert kind.get_names(context).modified is not None
    kind.create(context, 'CUSTOM_A')

    def forget(tx: sa.Connection) -> None:
        tx.execute(kind.TABLE.update().where(kind.TABLE.c.name == 'CUSTOM_A').values(created_at=None, updated_at=None))
        change_log.record_names(tx)

    context.db.write(forget)
    names, modified = kind.get_names(context)
    assert (names[-1], modified) == ('CUSTOM_A', None)
    assert kind.get_names(context, prefix='CUSTOM_B') == ((), None)


def test_an_aggregate_that_an_audit_of_another_process_deleted_is_created_again(
    context: RequestContext, other_process: RequestContext
) -> None:
    host, name = create_provider(context), str(uuid.uuid4())
    set_aggregates(host, [name], increment_generation=True)
    set_aggregates(host, [], increment_generation=True)
    for finding in audit.find(other_process.db, other_process.conf, 'orphaned_aggregate'):
        audit.repair(other_process.db, other_process.conf, finding)
    set_aggregates(host, [name], increment_generation=True)
    assert aggregate.get_with_provider(context, host.uuid)[1] == [name]
