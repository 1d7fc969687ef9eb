"""Takes over, in place, a database that another deployment made: looks at it, makes a plan, carries it out.

The plan is made from what is there, so that an adoption that was cut short, where changes of the schema are no part of
a transaction (MySQL, MariaDB), is finished by doing it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import sqlalchemy as sa

from placement import exception
from placement.db import migration, tables
from placement.db.adoption import found_tables, log, row_doubts, rows, schema, sqlite
from placement.db.adoption.found_tables import Shape
from placement.db.adoption.plan import Plan, Step

#: What to tell about a step that is about to be made.
Reporter = Callable[[Step], None]


class NothingToAdopt(exception.PlacementError):
    template = 'The database has no tables to take over. Make new ones with: placement-manage db sync'


class AdoptedAlready(exception.PlacementError):
    template = 'The schema is that of this service already, at version {version}.'


def look(engine: sa.Engine, project: str, user: str) -> Plan:
    """What an adoption would do, or what speaks against it. Changes nothing.

    :param project: external id of the owner of consumers that have no record.
    :param user: the same.
    :raises NothingToAdopt: there are no tables.
    :raises AdoptedAlready: there is nothing to do.
    """
    with migration.locked(engine) as connection:
        return _plan(connection, project, user)


def carry_out(engine: sa.Engine, project: str, user: str, report: Reporter) -> Plan:
    """Adopt, unless there are doubts; then nothing is changed.

    One transaction on SQLite and PostgreSQL. Parameters and errors as for ``look``.

    :returns: what was done, or what speaks against it.
    :raises BrokenReferences: SQLite: a table of theirs refers to rows that are not there. Nothing was changed.
    """
    with migration.locked(engine) as connection:
        _keep_others_out(connection)
        plan = _plan(connection, project, user)
        if plan.doubts:
            return plan
        for step in plan.steps:
            report(step)
            step.run(connection)
        if connection.dialect.name == 'sqlite':
            sqlite.check_references(connection)
        return plan


def _keep_others_out(connection: sa.Connection) -> None:
    """Let nobody write between the look and the changes, where a lock lasts as long as the transaction."""
    if connection.dialect.name == 'postgresql':
        present = set(sa.inspect(connection).get_table_names()) & set(tables.metadata.tables)
        if present:
            connection.exec_driver_sql(f'LOCK TABLE {", ".join(sorted(present))} IN ACCESS EXCLUSIVE MODE')


def _plan(connection: sa.Connection, project: str, user: str) -> Plan:
    version = migration.version_on(connection)
    if version is not None:
        raise AdoptedAlready(version=version)
    shapes = found_tables.read(connection)
    if not shapes:
        raise NothingToAdopt
    doubts = [f'There is no table {table.name}.' for table in tables.SHARED if table.name not in shapes]
    doubts = doubts or [
        *log.doubts(connection),
        *schema.doubts(connection, shapes),
        *schema.number_doubts(connection, shapes),
    ]
    # Rows are asked about columns of ours, so these have to be there.
    doubts = doubts or list(row_doubts.find(connection, shapes))
    return Plan([] if doubts else list(_steps(connection, shapes, project, user)), doubts)


def _steps(connection: sa.Connection, shapes: Mapping[str, Shape], project: str, user: str) -> Iterator[Step]:
    yield from rows.generations(connection, shapes)
    if connection.dialect.name == 'sqlite':
        yield from sqlite.columns(shapes)
    else:
        yield from schema.columns(connection, shapes)
    yield from rows.sequences(connection, shapes)
    yield from rows.names(connection)
    yield from rows.class_ids(connection)
    yield from rows.roots(connection)
    yield from rows.consumers(connection, project, user)
    yield from schema.constraints(connection, shapes)
    yield from rows.used(connection)
    yield from log.steps()
    head = migration.head()
    sentence = f'Record the version of the schema, {head}, in the table {migration.VERSION_TABLE}.'
    yield Step(sentence, lambda connection: migration.stamp_on(connection, head))
