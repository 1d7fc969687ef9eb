"""Takes over, in place, a database that another deployment made: looks at it, makes a plan, carries it out.

The plan is made from what is there, so that an adoption that was cut short, where changes of the schema are no part of
a transaction (MySQL, MariaDB), is finished by doing it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from placement import exception
from placement.db import migration
from placement.db.adoption import found_tables, log, row_doubts, rows, schema, sqlite
from placement.db.adoption.found_tables import Shape
from placement.db.adoption.names import Names, keep_others_out
from placement.db.adoption.plan import Plan, Reporter, Step, alone, make, shown


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
        return shown(connection, _plan(connection, project, user))


def carry_out(engine: sa.Engine, project: str, user: str, report: Reporter, others_are_stopped: bool = False) -> Plan:
    """Adopt, unless there are doubts; then nothing is changed.

    The tables are renamed first, so that the other service, should it run, cannot write any more; what it wrote since
    the look is in the plan that is made after that. One transaction on SQLite and PostgreSQL. Parameters and errors
    as for ``look``.

    :param others_are_stopped: other connections to the database are none of the other service.
    :returns: what was done, or what speaks against it.
    :raises BrokenReferences: SQLite: a table of theirs refers to rows that are not there. Nothing was changed.
    """
    with migration.locked(engine) as connection:
        plan = alone(connection, _plan(connection, project, user), others_are_stopped)
        if plan.doubts:
            return plan
        names = Names(connection)
        keep_others_out(connection, names)
        make(connection, names.to_ours(), report)
        plan = _plan(connection, project, user)
        if plan.doubts:
            make(connection, names.undone(), lambda _step: None)
            return plan
        make(connection, plan.steps, report)
        if connection.dialect.name == 'sqlite':
            sqlite.check_references(connection)
        return plan


def _plan(connection: sa.Connection, project: str, user: str) -> Plan:
    version = migration.version_on(connection)
    if version is not None:
        raise AdoptedAlready(version=version)
    names = Names(connection)
    if not names:
        raise NothingToAdopt
    shapes = found_tables.read(connection, names)
    doubts = list(names.doubts())
    doubts = doubts or [
        *log.doubts(connection),
        *schema.doubts(connection, shapes),
        *schema.number_doubts(connection, shapes),
    ]
    # Rows are asked about columns of ours, so these have to be there.
    doubts = doubts or list(row_doubts.find(connection, names, shapes))
    if doubts:
        return Plan([], doubts)
    return Plan(list(_steps(connection, names, shapes, project, user)), [], list(rows.notes(connection, names, shapes)))


def _steps(
    connection: sa.Connection, names: Names, shapes: Mapping[str, Shape], project: str, user: str
) -> Iterator[Step]:
    yield from names.to_ours()
    yield from rows.generations(connection, names, shapes)
    if connection.dialect.name == 'sqlite':
        yield from sqlite.columns(shapes)
    else:
        yield from schema.columns(connection, shapes)
    yield from rows.sequences(connection, names)
    yield from rows.standard_names(connection, names)
    yield from rows.class_ids(connection, names)
    yield from rows.roots(connection, names)
    yield from rows.consumers(connection, names, project, user)
    yield from schema.constraints(connection, shapes)
    yield from rows.used(connection, names)
    yield from log.steps()
    head = migration.head()
    sentence = f'Record the version of the schema, {head}, in the table {migration.VERSION_TABLE}.'
    yield Step(sentence, lambda connection: migration.stamp_on(connection, head))
