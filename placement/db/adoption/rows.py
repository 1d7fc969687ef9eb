"""The steps of an adoption that write rows: standard names, missing generations, roots and consumers, and ``used``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import os_resource_classes
import os_traits
import sqlalchemy as sa
from oslo_utils import timeutils

from placement.db import roots as tree_roots
from placement.db import seed, tables
from placement.db.adoption.found_tables import FoundTable
from placement.db.adoption.names import Names
from placement.db.adoption.plan import Step, count

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_providers = tables.resource_providers


def generations(connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield a step for each table in which a generation is NULL."""
    for table in (_providers, _consumers):
        if 'generation' in existing_tables[table.name].missing_not_null():
            number = _number(connection, names[table].c.generation.is_(None))
            if number:
                # Plain SQL, because SQLAlchemy would also set updated_at, which the table may not have yet.
                change = f'UPDATE {table.name} SET generation = 0 WHERE generation IS NULL'  # noqa: S608
                sentence = f'Set the generation of {count(number, "row")} of {table.name} to 0 instead of NULL.'
                yield Step(sentence, functools.partial(sa.Connection.exec_driver_sql, statement=change))


def sequences(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield steps that set sequences of PostgreSQL to the largest id. They are below it where rows were copied in."""
    if connection.dialect.name != 'postgresql':
        return
    for table in (table for table in tables.SHARED if table in names and 'id' in table.columns):
        name = names.of(table)
        sequence = connection.scalar(sa.text('SELECT pg_get_serial_sequence(:name, :id)'), {'name': name, 'id': 'id'})
        largest = connection.scalar(sa.select(sa.func.max(names[table].c.id)))
        if sequence is None or largest is None:
            continue
        last = connection.exec_driver_sql(f'SELECT last_value, is_called FROM {sequence}').one()  # noqa: S608
        if largest > last.last_value or (largest == last.last_value and not last.is_called):
            change = sa.select(sa.func.setval(sequence, largest))
            yield Step(
                f'Continue the ids of {table.name} after {largest}.',
                functools.partial(sa.Connection.execute, statement=change),
            )


def standard_names(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield a step that inserts the standard resource classes and traits that are missing."""
    present = {
        table: set(connection.scalars(sa.select(names[table].c.name)))
        for table in (tables.resource_classes, tables.traits)
    }
    classes = set(os_resource_classes.STANDARDS) - present[tables.resource_classes]
    traits = set(os_traits.get_traits()) - present[tables.traits]
    if classes or traits:
        missing = f'{count(len(classes), "resource class", "resource classes")}, {count(len(traits), "trait")}'
        sentence = f'Insert the missing standard names: {missing}.'
        yield Step(sentence, _insert_names)


def _insert_names(connection: sa.Connection) -> None:
    if connection.dialect.name not in ('mysql', 'mariadb'):
        seed.insert_missing(connection)
        return
    # The first standard class has the id 0, which MySQL would replace in an auto-increment column, as theirs is.
    change = sa.text('SET SESSION sql_mode = :mode')
    mode = connection.exec_driver_sql('SELECT @@SESSION.sql_mode').scalar_one()
    connection.execute(change, {'mode': f'{mode},NO_AUTO_VALUE_ON_ZERO'})
    seed.insert_missing(connection)
    connection.execute(change, {'mode': mode})


def class_ids(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield a step that records the largest id of a class, in a table that another service does not have."""
    remembered = tables.resource_class_sequence
    last = connection.scalar(sa.select(remembered.c.last)) if remembered.name in names.present else None
    # The other service may have created classes since the database was returned to it.
    if last is None or last < _largest(connection, names[tables.resource_classes]):
        yield Step(f'Record the largest id of a resource class in the table {remembered.name}.', _remember_class_ids)


def _largest(connection: sa.Connection, classes: sa.TableClause) -> int:
    return connection.scalar(sa.select(sa.func.max(classes.c.id))) or 0


def _remember_class_ids(connection: sa.Connection) -> None:
    tables.resource_class_sequence.create(connection, checkfirst=True)
    last = max(_largest(connection, tables.resource_classes), tables.FIRST_CUSTOM_CLASS_ID - 1)
    if connection.execute(tables.resource_class_sequence.update().values(last=last)).rowcount == 0:
        connection.execute(tables.resource_class_sequence.insert(), {'id': 1, 'last': last})


def roots(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield a step that sets the root of each provider where it is NULL."""
    number = _number(connection, names[_providers].c.root_provider_id.is_(None))
    if number:
        yield Step(f'Set the root of {count(number, "resource provider")} from the parents.', _fill_roots)


def _fill_roots(connection: sa.Connection) -> None:
    rows = connection.execute(sa.select(_providers.c.id, _providers.c.parent_provider_id)).all()
    parents: dict[int, int | None] = {row.id: row.parent_provider_id for row in rows}
    rootless = connection.scalars(sa.select(_providers.c.id).where(_providers.c.root_provider_id.is_(None))).all()
    change = (
        _providers.update()
        .where(_providers.c.id == sa.bindparam('provider'))
        .values(root_provider_id=sa.bindparam('root'), updated_at=_providers.c.updated_at)
    )
    root_of = tree_roots.of(parents)
    connection.execute(change, [{'provider': id_, 'root': root_of[id_]} for id_ in rootless])


def consumers(connection: sa.Connection, names: Names, project: str, user: str) -> Iterator[Step]:
    """Yield a step that inserts the consumers which allocations name but which have no row.

    :param project: external id of their project.
    :param user: external id of their user.
    """
    allocations = names[_allocations]
    number = connection.execute(
        sa.select(sa.func.count(sa.distinct(allocations.c.consumer_id))).where(
            ~_recorded(allocations, names[_consumers])
        )
    ).scalar_one()
    if number:
        sentence = (
            f'Insert {count(number, "consumer")} with allocations and without a record,'
            f' with the project {project} and the user {user}.'
        )
        yield Step(sentence, functools.partial(_insert_consumers, project, user))


def _recorded(allocations: sa.TableClause, consumers: sa.TableClause) -> sa.ColumnElement[bool]:
    return sa.exists().where(consumers.c.uuid == allocations.c.consumer_id)


def _insert_consumers(project: str, user: str, connection: sa.Connection) -> None:
    owners = [
        _id_of(connection, table, external_id)
        for table, external_id in ((tables.projects, project), (tables.users, user))
    ]
    unrecorded = ~_recorded(_allocations, _consumers)
    uuids = connection.scalars(sa.select(_allocations.c.consumer_id).where(unrecorded).distinct()).all()
    rows = [{'uuid': uuid, 'project_id': owners[0], 'user_id': owners[1], 'generation': 0} for uuid in uuids]
    connection.execute(_consumers.insert(), rows)


def _id_of(connection: sa.Connection, table: sa.Table, external_id: str) -> int:
    """Return the id of a project or user, which is inserted if it does not exist."""
    wanted = sa.select(table.c.id).where(table.c.external_id == external_id)
    if connection.scalar(wanted) is None:
        connection.execute(table.insert().values(external_id=external_id, created_at=timeutils.utcnow()))
    return int(connection.execute(wanted).scalar_one())


def used(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield the step that computes ``inventories.used``."""
    number = _number(connection, names[_allocations].c.id.is_not(None))
    change = _inventories.update().values(used=tables.ALLOCATED, updated_at=_inventories.c.updated_at)
    sentence = f'Set the usage of each inventory to the sum of its allocations ({number} in all).'
    yield Step(sentence, functools.partial(sa.Connection.execute, statement=change))


def notes(connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """Yield a note if consumers have types: their clients use microversions that are not served by default."""
    if 'consumer_type_id' in existing_tables[_consumers.name].columns:
        number = _number(connection, names[_consumers].c.consumer_type_id.is_not(None))
        if number:
            have = 'has' if number == 1 else 'have'
            yield (
                f'{count(number, "consumer")} {have} a type, which clients give at microversion 1.38 and later. They'
                ' need [placement] max_microversion = 1.39; doc/adopt.md lists the clients that this service supports.'
            )


def _number(connection: sa.Connection, condition: sa.ColumnElement[Any]) -> int:
    return connection.execute(sa.select(sa.func.count()).where(condition)).scalar_one()
