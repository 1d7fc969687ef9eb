"""Consumers, and the projects and users they belong to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import statements, tables
from placement.objects import base
from placement.objects.base import fields

_consumers, _projects, _users = tables.consumers, tables.projects, tables.users


@base.register
class Project(base.PlacementObject):
    """A project, known by its opaque external id (1 to 255 characters)."""

    id: int
    external_id: str
    fields = {'id': fields.IntegerField(), 'external_id': fields.StringField()}


@base.register
class User(base.PlacementObject):
    """A user, known by its opaque external id (1 to 255 characters)."""

    id: int
    external_id: str
    fields = {'id': fields.IntegerField(), 'external_id': fields.StringField()}


@base.register
class Consumer(base.Timestamped):
    """Whoever holds allocations. Exists exactly as long as it holds any (contract B 1.4)."""

    id: int
    uuid: str
    project_id: str
    user_id: str
    generation: int
    fields = {
        'id': fields.IntegerField(),
        'uuid': fields.StringField(),
        'project_id': fields.StringField(),
        'user_id': fields.StringField(),
        'generation': fields.IntegerField(),
    }

    @classmethod
    def get_by_uuid(cls, context: Any, uuid: str) -> Consumer | None:
        """The consumer with this canonical ``uuid``, or None when there is none."""
        query = (
            sa.select(
                _consumers.c.id,
                _consumers.c.uuid,
                _consumers.c.generation,
                _consumers.c.created_at,
                _consumers.c.updated_at,
                _projects.c.external_id.label('project_id'),
                _users.c.external_id.label('user_id'),
            )
            .join(_projects, _projects.c.id == _consumers.c.project_id)
            .join(_users, _users.c.id == _consumers.c.user_id)
            .where(_consumers.c.uuid == uuid)
        )
        with context.db.reader() as tx:
            row = tx.execute(query).first()
        return None if row is None else cls.from_row(context, row)


def _named(kind: str, table: sa.Table) -> sa.Select[Any]:
    wanted: sa.BindParameter[str] = sa.bindparam(kind, expanding=True)
    return sa.select(sa.literal_column(f"'{kind}'").label('kind'), table.c.external_id, table.c.id).where(
        table.c.external_id.in_(wanted)
    )


_FIND_OWNERS = sa.union_all(_named('project', _projects), _named('user', _users))


def ensure_owners(
    tx: sa.Connection, projects: Collection[str], users: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """The internal ids of ``projects`` and ``users`` by external id; those mentioned for the first time are created.

    One statement when all are known, and one more for each table that lacks some.
    """
    found = tx.execute(_FIND_OWNERS, {'project': list(projects), 'user': list(users)}).all()
    known = {what: {row.external_id: row.id for row in found if row.kind == what} for what in ('project', 'user')}
    return (
        known['project'] | _create(tx, _projects, set(projects) - known['project'].keys()),
        known['user'] | _create(tx, _users, set(users) - known['user'].keys()),
    )


def _create(tx: sa.Connection, table: sa.Table, external_ids: set[str]) -> dict[str, int]:
    try:
        return {
            external_id: statements.new_id(tx.execute(table.insert().values(external_id=external_id)))
            for external_id in sorted(external_ids)
        }
    except db_exc.DBDuplicateEntry as error:
        # Somebody else mentions it for the first time right now; the next attempt finds it.
        raise db_api.TryAgain from error
