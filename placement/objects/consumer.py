"""Consumers, and the projects and users they belong to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import statements, tables
from placement.objects import base
from placement.objects.base import fields

_projects, _users = tables.projects, tables.users

_Kind = TypeVar('_Kind', bound='Owner')


class Owner(base.PlacementObject):
    """Whom a consumer belongs to, known by an opaque external id of 1 to 255 characters (contract B 1.4)."""

    id: int
    external_id: str
    fields = {'id': fields.IntegerField(), 'external_id': fields.StringField()}


@base.register
class Project(Owner):
    """The project of a consumer."""


@base.register
class User(Owner):
    """The user of a consumer."""


def _named(kind: str, table: sa.Table) -> sa.Select[Any]:
    wanted: sa.BindParameter[str] = sa.bindparam(kind, expanding=True)
    return sa.select(sa.literal_column(f"'{kind}'").label('kind'), table.c.external_id, table.c.id).where(
        table.c.external_id.in_(wanted)
    )


_FIND_OWNERS = sa.union_all(_named('project', _projects), _named('user', _users))


def ensure_owners(tx: sa.Connection, projects: Set[str], users: Set[str]) -> tuple[dict[str, Project], dict[str, User]]:
    """The projects and users with these external ids, by external id; those mentioned for the first time are created.

    One statement when all are known (and few), and one more for each that is not.
    """
    halves = itertools.zip_longest(
        statements.batches(sorted(projects)), statements.batches(sorted(users)), fillvalue=()
    )
    rows = [row for some in halves for row in tx.execute(_FIND_OWNERS, {'project': some[0], 'user': some[1]})]
    known_projects = {row.external_id: row.id for row in rows if row.kind == 'project'}
    known_users = {row.external_id: row.id for row in rows if row.kind == 'user'}
    return (
        _objects(Project, with_new(tx, _projects, projects, known_projects)),
        _objects(User, with_new(tx, _users, users, known_users)),
    )


def with_new(tx: sa.Connection, table: sa.Table, wanted: Set[str], known: Mapping[str, int]) -> Mapping[str, int]:
    """The ids of projects or users (as ``table`` says) by external id: ``known``, and those created for the others."""
    missing = wanted - known.keys()
    return {**known, **_create(tx, table, missing)} if missing else known


def _objects(kind: type[_Kind], ids: Mapping[str, int]) -> dict[str, _Kind]:
    return {external_id: kind(id=id_, external_id=external_id) for external_id, id_ in ids.items()}


def _create(tx: sa.Connection, table: sa.Table, external_ids: Set[str]) -> dict[str, int]:
    try:
        return {
            external_id: statements.new_id(tx.execute(table.insert().values(external_id=external_id)))
            for external_id in sorted(external_ids)
        }
    except db_exc.DBDuplicateEntry as error:
        # Somebody else mentions it for the first time right now; the next attempt finds it.
        raise db_api.TryAgain from error
