"""Gives a database back to the service that it was adopted from: renames the tables and drops the change log.

Columns, constraints and rows that the adoption added stay. They do no harm to the other service.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from placement import exception
from placement.db import migration, tables
from placement.db.adoption import rows
from placement.db.adoption.names import Names, lock_tables
from placement.db.adoption.plan import Plan, Reporter, Step, require_no_connections, run_steps, with_notes

#: The tables that are dropped.
_OF_OURS = (tables.change_log.name, tables.change_log_slots.name, migration.VERSION_TABLE)


class NothingToLeave(exception.PlacementError):
    template = 'The database is not one of this service, so there is nothing to give back.'


def plan(engine: sa.Engine) -> Plan:
    """Return what would be done, or the problems that prevent it. Changes nothing.

    :raises NothingToLeave: the database is not one of this service.
    :raises WrongSchema: its schema is that of another release.
    """
    with migration.locked(engine) as connection:
        return with_notes(connection, _plan(connection))


def apply(engine: sa.Engine, report: Reporter, ignore_connections: bool = False) -> Plan:
    """Give the database back. If there are problems, change nothing.

    One transaction on SQLite and PostgreSQL. On MySQL and MariaDB it is finished by running it again if it was
    interrupted. Errors are those of ``plan``.

    :param report: called before each step.
    :param ignore_connections: do not check whether there are other connections.
    :returns: the plan that was carried out, or the problems.
    """
    with migration.locked(engine) as connection:
        plan = require_no_connections(connection, _plan(connection), ignore_connections)
        if not plan.problems:
            lock_tables(connection, Names(connection))
            run_steps(connection, plan.steps, report)
        return plan


def _plan(connection: sa.Connection) -> Plan:
    version = migration.version_on(connection)
    if version is None:
        raise NothingToLeave
    if version != migration.head():
        raise migration.WrongSchema(present=version, head=migration.head())
    names = Names(connection)
    problems = list(names.problems())
    if problems:
        return Plan([], problems)
    return Plan(list(_steps(connection, names)), [], list(_notes(names)))


def _steps(connection: sa.Connection, names: Names) -> Iterator[Step]:
    # This service chooses the ids of classes itself, so PostgreSQL's sequence of that table is behind.
    yield from rows.sequences(connection, names)
    yield from names.rename_to_theirs()
    yield Step(f'Drop the tables {", ".join(_OF_OURS)}.', _drop)


def _drop(connection: sa.Connection) -> None:
    for name in _OF_OURS:
        connection.exec_driver_sql(f'DROP TABLE IF EXISTS {name}')


def _notes(names: Names) -> Iterator[str]:
    if 'alembic_version' not in names.present:
        yield (
            'There is no table alembic_version: this service made the database, and another one may not know how to'
            ' use it.'
        )
