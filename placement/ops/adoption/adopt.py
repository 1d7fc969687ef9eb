"""Adopts the database of another Placement service: inspects it, makes a plan, applies it.

The plan has only the steps that remain. MySQL and MariaDB commit each change of the schema immediately, so an
interrupted adoption is finished by running it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from placement import exception
from placement.db import change_log_slots, migration, tables
from placement.ops.adoption import found_tables, rows, schema
from placement.ops.adoption.found_tables import FoundTable
from placement.ops.adoption.names import Names, lock_tables
from placement.ops.adoption.plan import Plan, Reporter, Step, require_no_connections, run_steps, with_notes


class NothingToAdopt(exception.PlacementError):
    template = 'The database has no tables to adopt. Create new ones with: placement-manage db sync'


class AdoptedAlready(exception.PlacementError):
    template = 'The database has the schema of this service already, at revision {revision}.'


def plan(engine: sa.Engine, project: str, user: str) -> Plan:
    """Return the plan of an adoption, or the problems that prevent it. Changes nothing.

    :param project: external id of the project for consumers that have allocations but no row.
    :param user: external id of the user for these consumers.
    :raises NothingToAdopt: there are no tables.
    :raises AdoptedAlready: the database is one of this service.
    """
    with migration.locked(engine) as connection:
        return with_notes(connection, _plan(connection, project, user))


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
        plan = require_no_connections(connection, _plan(connection, project, user), ignore_connections)
        if plan.problems:
            return plan
        names = Names(connection)
        lock_tables(connection, names)
        run_steps(connection, names.add_prefix(), report)
        plan = _plan(connection, project, user)
        if plan.problems:
            run_steps(connection, names.rename_back(), lambda _step: None)
            return plan
        run_steps(connection, plan.steps, report)
        if connection.dialect.name == 'sqlite':
            schema.check_references(connection)
        return plan


def _plan(connection: sa.Connection, project: str, user: str) -> Plan:
    revision = migration.recorded_revision_on(connection)
    if revision is not None:
        raise AdoptedAlready(revision=revision)
    names = Names(connection)
    if not names:
        raise NothingToAdopt
    existing_tables = found_tables.read(connection, names)
    problems = list(names.problems())
    problems = problems or [
        *_log_problems(connection),
        *schema.problems(connection, existing_tables),
        *schema.id_problems(connection, existing_tables),
    ]
    # Rows are checked only if the schema has no problems, because the queries need the expected columns.
    problems = problems or list(rows.problems(connection, names, existing_tables))
    if problems:
        return Plan([], problems)
    return Plan(
        list(_steps(connection, names, existing_tables, project, user)),
        [],
        list(rows.notes(connection, names, existing_tables)),
    )


def _steps(
    connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable], project: str, user: str
) -> Iterator[Step]:
    yield from names.add_prefix()
    yield from names.added()
    yield from rows.generations(connection, names, existing_tables)
    if connection.dialect.name == 'sqlite':
        yield from schema.rebuilds(existing_tables)
    else:
        yield from schema.columns(connection, existing_tables)
    yield from rows.sequences(connection, names)
    yield from rows.standard_names(connection, names)
    yield from rows.class_ids(connection, names)
    yield from rows.roots(connection, names)
    yield from rows.consumers(connection, names, project, user)
    yield from schema.constraints(connection, existing_tables)
    yield from rows.owners(connection, names)
    yield from rows.used(connection, names)
    names_of_log = ' and '.join(table.name for table in tables.LOG)
    yield Step(f'Create the change log: the tables {names_of_log}.', _create_log)
    head = migration.head()
    sentence = f'Record the revision of the schema, {head}, in the table {migration.VERSION_TABLE}.'
    yield Step(sentence, lambda connection: migration.stamp_on(connection, head))


def _log_problems(connection: sa.Connection) -> Iterator[str]:
    """Yield a problem for each table that has the name of a table of the change log, but other columns."""
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    for table in tables.LOG:
        if table.name in present:
            columns = {column['name'] for column in inspector.get_columns(table.name)}
            if columns != set(table.columns.keys()):
                yield f'The table {table.name} does not have the columns of this service: rename it first.'


def _create_log(connection: sa.Connection) -> None:
    tables.metadata.create_all(connection, tables=list(tables.LOG))
    # If the tables existed already, processes may be reading them.
    change_log_slots.append_reload(connection)
