"""Projects and users, whom consumers belong to. Each is known by an opaque external id of 1 to 255 characters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import statements, tables

_projects, _users = tables.projects, tables.users


def _named(kind: str, table: sa.Table) -> sa.Select[Any]:
    wanted: sa.BindParameter[str] = sa.bindparam(kind, expanding=True)
    return sa.select(sa.literal_column(f"'{kind}'").label('kind'), table.c.external_id, table.c.id).where(
        table.c.external_id.in_(wanted)
    )


_FIND_OWNERS = sa.union_all(_named('project', _projects), _named('user', _users))


def ensure(tx: sa.Connection, projects: Set[str], users: Set[str]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The ids of these projects and users by external id; those mentioned for the first time are created.

    One statement when all are known (and few), and one more for each that is not.
    """
    halves = itertools.zip_longest(
        statements.batches(sorted(projects)), statements.batches(sorted(users)), fillvalue=()
    )
    rows = [row for some in halves for row in tx.execute(_FIND_OWNERS, {'project': some[0], 'user': some[1]})]
    known_projects = {row.external_id: row.id for row in rows if row.kind == 'project'}
    known_users = {row.external_id: row.id for row in rows if row.kind == 'user'}
    return with_new(tx, _projects, projects, known_projects), with_new(tx, _users, users, known_users)


def with_new(tx: sa.Connection, table: sa.Table, wanted: Set[str], known: Mapping[str, int]) -> Mapping[str, int]:
    """The ids of projects or users (as ``table`` says) by external id: ``known``, and those created for the others."""
    missing = wanted - known.keys()
    return {**known, **_create(tx, table, missing)} if missing else known


def _create(tx: sa.Connection, table: sa.Table, external_ids: Set[str]) -> dict[str, int]:
    try:
        return {
            external_id: statements.new_id(tx.execute(table.insert().values(external_id=external_id)))
            for external_id in sorted(external_ids)
        }
    except db_exc.DBDuplicateEntry as error:
        # Somebody else mentions it for the first time right now; the next attempt finds it.
        raise db_api.TryAgain from error
