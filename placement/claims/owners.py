"""Projects, users and types of consumers: rows that a claim inserts when it is the first to name them.

The API knows projects and users by an external id and types by a name, texts of 1 to 255 characters.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import sql, tables

_projects, _users = tables.projects, tables.users


def _named(kind: str, table: sa.Table) -> sa.Select[Any]:
    wanted: sa.BindParameter[str] = sa.bindparam(kind, expanding=True)
    return sa.select(sa.literal_column(f"'{kind}'").label('kind'), table.c.external_id, table.c.id).where(
        table.c.external_id.in_(wanted)
    )


_FIND_OWNERS = sa.union_all(_named('project', _projects), _named('user', _users))


def ensure(tx: sa.Connection, projects: Set[str], users: Set[str]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Find projects and users, and insert those that do not exist.

    :param projects: external ids, as are ``users``.
    :returns: the ids of the projects, and those of the users, by external id.
    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    pairs = itertools.zip_longest(sql.chunks(sorted(projects)), sql.chunks(sorted(users)), fillvalue=())
    rows = [row for pair in pairs for row in tx.execute(_FIND_OWNERS, {'project': pair[0], 'user': pair[1]})]
    known_projects = {row.external_id: row.id for row in rows if row.kind == 'project'}
    known_users = {row.external_id: row.id for row in rows if row.kind == 'user'}
    return (
        with_new(tx, _projects.c.external_id, projects, known_projects),
        with_new(tx, _users.c.external_id, users, known_users),
    )


def with_new(
    tx: sa.Connection, column: sa.Column[str], wanted: Set[str], known: Mapping[str, int]
) -> Mapping[str, int]:
    """Insert the projects, users or types ``wanted`` that are not ``known``, in order of their texts.

    :param column: the column of the texts: ``external_id`` of projects or users, or ``name`` of consumer types.
    :param known: the ids of those that exist, by text.
    :returns: all ids by text.
    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    missing = wanted - known.keys()
    return {**known, **_create(tx, column, missing)} if missing else known


def _create(tx: sa.Connection, column: sa.Column[str], texts: Set[str]) -> dict[str, int]:
    insert = column.table.insert()
    try:
        return {text: sql.new_id(tx.execute(insert.values({column.name: text}))) for text in sorted(texts)}
    except db_exc.DBDuplicateEntry as error:
        raise db_api.RetryTransaction from error
