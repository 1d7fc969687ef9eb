"""Adopts the database of another Placement service, or returns it: inspects it, makes a plan, applies it.

The plan has only the steps that remain. MySQL and MariaDB commit each change of the schema immediately, so what was
interrupted is finished by running it again.

To return a database, the tables are renamed, and the change log is dropped. Columns, constraints and rows that the
adoption added stay. They do not affect the other service.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping

import sqlalchemy as sa

from placement import exception
from placement.db import change_log_slots, health, migration, sql, tables
from placement.ops.adoption import Plan, Reporter, Step, found_tables, rows, schema
from placement.ops.adoption.found_tables import FoundTable
from placement.ops.adoption.names import Names, lock_tables

#: The tables of this service that are dropped when the database is returned.
_OWN_TABLES = (tables.change_log.name, tables.change_log_slots.name, migration.VERSION_TABLE)
_MADE_HERE = (
    'There is no table alembic_version: this service made the database, and another one may not know how to use it.'
)


class NothingToAdopt(exception.PlacementError):
    template = 'The database has no tables to adopt. Create new ones with: placement-manage db sync'


class AdoptedAlready(exception.PlacementError):
    template = 'The database has the schema of this service already, at revision {revision}.'


class NothingToLeave(exception.PlacementError):
    template = 'The database has no schema of this service, so there is nothing to return.'


def plan(engine: sa.Engine, project: str, user: str) -> Plan:
    """Return the plan of an adoption, or the problems that prevent it. Changes nothing.

    :param project: external id of the project for consumers that have allocations but no row.
    :param user: external id of the user for these consumers.
    :raises NothingToAdopt: there are no tables.
    :raises AdoptedAlready: the database is one of this service.
    """
    with migration.locked(engine) as connection:
        return _with_notes(connection, _plan(connection, project, user))


def adopt_database(
    engine: sa.Engine, project: str, user: str, report: Reporter, ignore_connections: bool = False
) -> Plan:
    """Adopt the database. If there are problems, change nothing.

    The tables are renamed first, so that the other service can no longer write, even if it still runs. Then the plan
    is made again, because that service may have written until then. On SQLite and PostgreSQL all this is one
    transaction. Parameters and errors are as for ``plan``, and also:

    :param report: called before each step.
    :param ignore_connections: do not check whether there are other connections.
    :returns: the plan that was applied, or the problems.
    :raises BrokenReferences: on SQLite, a row refers to a row that does not exist. Nothing was changed.
    """
    with migration.locked(engine) as connection:
        plan = _require_no_connections(connection, _plan(connection, project, user), ignore_connections)
        if plan.problems:
            return plan
        names = Names(connection)
        lock_tables(connection, names)
        _run_steps(connection, names.add_prefix(), report)
        plan = _plan(connection, project, user)
        if plan.problems:
            names.rename_back(connection)
            return plan
        _run_steps(connection, plan.steps, report)
        if connection.dialect.name == 'sqlite':
            schema.check_references(connection)
        return plan


def _plan(connection: sa.Connection, project: str, user: str) -> Plan:
    migration.check_encoding(connection)
    revision = migration.recorded_revision_on(connection)
    if revision is not None:
        raise AdoptedAlready(revision=revision)
    names = Names(connection)
    if not names:
        raise NothingToAdopt
    existing_tables = found_tables.read(connection, names)
    problems = list(names.problems())
    problems = problems or list(schema.problems(connection, existing_tables))
    for table in tables.CHANGE_LOG_TABLES:
        if table.name in names.present:
            columns = {column['name'] for column in sa.inspect(connection).get_columns(table.name)}
            if columns != set(table.columns.keys()):
                problems.append(f'The table {table.name} does not have the columns of this service: rename it first.')
    # Rows are checked only if the schema has no problems, because the queries need the expected columns.
    problems = problems or list(rows.problems(connection, names, existing_tables))
    if problems:
        return Plan([], problems)
    steps = list(_steps(connection, names, existing_tables, project, user))
    return Plan(steps, [], list(rows.notes(connection, names, existing_tables)))


def _steps(
    connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable], project: str, user: str
) -> Iterator[Step]:
    yield from names.add_prefix()
    yield from names.added()
    yield from rows.generations(connection, names, existing_tables)
    yield from schema.alterations(existing_tables)
    yield from rows.sequences(connection, names)
    yield from rows.standard_names(connection, names)
    yield from rows.class_ids(connection, names)
    yield from rows.roots(connection, names)
    yield from rows.consumers(connection, names, project, user)
    yield from schema.constraints(existing_tables)
    yield from rows.computed_columns(connection, names)

    def create_log(connection: sa.Connection) -> None:
        tables.metadata.create_all(connection, tables=list(tables.CHANGE_LOG_TABLES))
        # If the tables existed already, processes may be reading them.
        change_log_slots.append_reload(connection)

    names_of_log = ' and '.join(table.name for table in tables.CHANGE_LOG_TABLES)
    yield Step(f'Create the change log: the tables {names_of_log}.', create_log)
    head = migration.head()
    sentence = f'Record the revision of the schema, {head}, in the table {migration.VERSION_TABLE}.'
    yield Step(sentence, lambda connection: migration.stamp_on(connection, head))


# Returning a database --------------------------------------------------------------------------------------------


def plan_return(engine: sa.Engine) -> Plan:
    """Return what would be done, or the problems that prevent it. Changes nothing.

    :raises NothingToLeave: the database is not one of this service.
    :raises WrongSchema: its schema belongs to another release.
    """
    with migration.locked(engine) as connection:
        return _with_notes(connection, _plan_of_return(connection))


def return_database(engine: sa.Engine, report: Reporter, ignore_connections: bool = False) -> Plan:
    """Return the database to the other service. If there are problems, change nothing.

    On SQLite and PostgreSQL this is one transaction. On MySQL and MariaDB, running it again finishes it if it was
    interrupted. Errors are as for ``plan_return``.

    :param report: called before each step.
    :param ignore_connections: do not check whether there are other connections.
    :returns: the plan that was applied, or the problems.
    """
    with migration.locked(engine) as connection:
        plan = _require_no_connections(connection, _plan_of_return(connection), ignore_connections)
        if not plan.problems:
            lock_tables(connection, Names(connection))
            _run_steps(connection, plan.steps, report)
        return plan


def _plan_of_return(connection: sa.Connection) -> Plan:
    revision = migration.recorded_revision_on(connection)
    if revision is None:
        raise NothingToLeave
    migration.raise_unless_newest(revision)
    names = Names(connection)
    problems = list(names.problems())
    if problems:
        return Plan([], problems)
    notes = [] if 'alembic_version' in names.present else [_MADE_HERE]
    drops = [
        Step(f'Drop the table {name}.', functools.partial(sql.execute_text, text=f'DROP TABLE IF EXISTS {name}'))
        for name in _OWN_TABLES
    ]
    # This service chooses the ids of classes itself, so PostgreSQL's sequence for them may be below the largest id.
    return Plan([*rows.sequences(connection, names), *names.remove_prefix(), *drops], [], notes)


# Plans -----------------------------------------------------------------------------------------------------------


def _run_steps(connection: sa.Connection, steps: Iterable[Step], report: Reporter) -> None:
    """Run ``steps``. Before each, call ``report`` with it."""
    for step in steps:
        report(step)
        step.run(connection)


def _with_notes(connection: sa.Connection, plan: Plan) -> Plan:
    """Return the plan with a note for each other connection to the database."""
    return dataclasses.replace(plan, notes=[*plan.notes, *map(_describe, health.list_sessions(connection))])


def _require_no_connections(connection: sa.Connection, plan: Plan, ignore_connections: bool) -> Plan:
    """Return the plan with a problem for each other connection: the service that uses it may have to be stopped.

    :param ignore_connections: do not look for other connections.
    """
    if plan.problems or ignore_connections:
        return plan
    return dataclasses.replace(plan, problems=[*map(_describe, health.wait_for_disconnects(connection))])


def _describe(other: health.Session) -> str:
    return f'There is a connection of the account {other}: stop the program.'
