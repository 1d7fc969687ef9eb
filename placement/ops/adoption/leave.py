"""Returns a database to the service that it was adopted from: renames the tables and drops the change log.

Columns, constraints and rows that the adoption added stay. They do not affect the other service.
"""

from __future__ import annotations

import sqlalchemy as sa

from placement import exception
from placement.db import migration, sql, tables
from placement.ops.adoption import rows
from placement.ops.adoption.names import Names, lock_tables
from placement.ops.adoption.plan import Plan, Reporter, Step, require_no_connections, run_steps, with_notes

#: The tables to drop.
_OF_OURS = (tables.change_log.name, tables.change_log_slots.name, migration.VERSION_TABLE)
_MADE_HERE = (
    'There is no table alembic_version: this service made the database, and another one may not know how to use it.'
)


class NothingToLeave(exception.PlacementError):
    template = 'The database has no schema of this service, so there is nothing to return.'


def plan(engine: sa.Engine) -> Plan:
    """Return what would be done, or the problems that prevent it. Changes nothing.

    :raises NothingToLeave: the database is not one of this service.
    :raises WrongSchema: its schema belongs to another release.
    """
    with migration.locked(engine) as connection:
        return with_notes(connection, _plan(connection))


def return_database(engine: sa.Engine, report: Reporter, ignore_connections: bool = False) -> Plan:
    """Return the database to the other service. If there are problems, change nothing.

    On SQLite and PostgreSQL this is one transaction. On MySQL and MariaDB, running it again finishes it if it was
    interrupted. Errors are as for ``plan``.

    :param report: called before each step.
    :param ignore_connections: do not check whether there are other connections.
    :returns: the plan that was applied, or the problems.
    """
    with migration.locked(engine) as connection:
        plan = require_no_connections(connection, _plan(connection), ignore_connections)
        if not plan.problems:
            lock_tables(connection, Names(connection))
            run_steps(connection, plan.steps, report)
        return plan


def _plan(connection: sa.Connection) -> Plan:
    revision = migration.recorded_revision_on(connection)
    if revision is None:
        raise NothingToLeave
    if revision != migration.head():
        raise migration.WrongSchema(present=revision, head=migration.head())
    names = Names(connection)
    problems = list(names.problems())
    if problems:
        return Plan([], problems)
    notes = [] if 'alembic_version' in names.present else [_MADE_HERE]
    drop = Step(f'Drop the tables {", ".join(_OF_OURS)}.', _drop)
    # This service chooses the ids of classes itself, so PostgreSQL's sequence for them may be below the largest id.
    return Plan([*rows.sequences(connection, names), *names.remove_prefix(), drop], [], notes)


def _drop(connection: sa.Connection) -> None:
    for name in _OF_OURS:
        sql.execute_text(connection, f'DROP TABLE IF EXISTS {name}')
