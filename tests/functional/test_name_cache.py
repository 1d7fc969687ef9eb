"""The cache of names that each process has stays correct when another process changes names."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
import webob

from placement import exception
from placement.db import change_log
from placement.db.api import Database
from placement.objects.resource_class import ResourceClass
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support.fixtures import Counter
from tests.support.http_client import demand


def _id(db: Database, kind: type[ResourceClass | Trait], name: str) -> int:
    names = db.traits if kind is Trait else db.resource_classes
    return db.write(lambda tx: names.lock_ids(tx, [name]))[name]


@pytest.mark.parametrize(
    ('kind', 'unknown'), [(ResourceClass, exception.ResourceClassNotFound), (Trait, exception.TraitNotFound)]
)
def test_a_name_deleted_by_another_process(
    context: RequestContext,
    other_process: RequestContext,
    kind: type[ResourceClass | Trait],
    unknown: type[Exception],
) -> None:
    named = kind.create(context, 'CUSTOM_A')
    # Of the names that are in the database now, only the standard ones are kept in memory.
    assert _id(context.db, kind, 'VCPU' if kind is ResourceClass else 'HW_CPU_X86_VMX') >= 0
    assert _id(context.db, kind, 'CUSTOM_A') == named.id
    kind.destroy(other_process, 'CUSTOM_A')
    with pytest.raises(unknown):
        _id(context.db, kind, 'CUSTOM_A')
    fresh = kind.create(other_process, 'CUSTOM_A')
    assert _id(context.db, kind, 'CUSTOM_A') == fresh.id != named.id


def test_standard_names_are_read_from_the_database_once(context: RequestContext, queries: Counter) -> None:
    # The first write of a process reads the revision of the schema and takes a slot of the change log.
    Trait.create(context, 'CUSTOM_FIRST')
    with queries(at_most=1):
        assert _id(context.db, ResourceClass, 'VCPU') == 0
    with queries(at_most=0):
        assert _id(context.db, ResourceClass, 'MEMORY_MB') == 1


@pytest.mark.parametrize('kind', ['traits', 'resource_classes'])
def test_an_unchanged_list_is_kept_for_each_mount_prefix(app: Any, kind: str) -> None:
    plain = demand(app, 'GET', f'/{kind}')
    headers = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
    mounted = webob.Request.blank(f'/{kind}', {'SCRIPT_NAME': '/placement'}, headers=headers).get_response(app)
    assert demand(app, 'GET', f'/{kind}').body == plain.body
    assert mounted.body == plain.body.replace(b'"/resource_classes/', b'"/placement/resource_classes/')


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
