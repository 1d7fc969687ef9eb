"""What an adoption adds to the rows: the standard names, missing roots and consumers, and how much is used."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import os_resource_classes
import os_traits
import sqlalchemy as sa
from oslo_utils import timeutils

from placement.db import standards, tables
from placement.db.adoption import row_doubts
from placement.db.adoption.found_tables import Shape
from placement.db.adoption.plan import Step, count

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_providers = tables.resource_providers


def generations(connection: sa.Connection, shapes: Mapping[str, Shape]) -> Iterator[Step]:
    """A step for each table in which a generation is empty."""
    for table in (_providers, _consumers):
        if 'generation' in shapes[table.name].too_open():
            number = _number(connection, table.c.generation.is_(None))
            if number:
                sentence = f'Set the generation of {count(number, "row")} of {table.name} to 0, where there is none.'
                yield Step(sentence, functools.partial(_fill_generation, table))


def _fill_generation(table: sa.Table, connection: sa.Connection) -> None:
    # Plain SQL: when this runs the table may still lack the column updated_at.
    connection.exec_driver_sql(f'UPDATE {table.name} SET generation = 0 WHERE generation IS NULL')  # noqa: S608


def sequences(connection: sa.Connection, shapes: Mapping[str, Shape]) -> Iterator[Step]:
    """Steps after which no sequence of PostgreSQL gives an id that is taken, as happens after rows were copied in."""
    if connection.dialect.name != 'postgresql':
        return
    for name, shape in shapes.items():
        if 'id' not in shape.columns:
            continue
        sequence = connection.scalar(sa.text('SELECT pg_get_serial_sequence(:name, :id)'), {'name': name, 'id': 'id'})
        largest = connection.scalar(sa.select(sa.func.max(shape.table.c.id)))
        if sequence is None or largest is None:
            continue
        last = connection.exec_driver_sql(f'SELECT last_value, is_called FROM {sequence}').one()  # noqa: S608
        if largest > last.last_value or (largest == last.last_value and not last.is_called):
            change = sa.select(sa.func.setval(sequence, largest))
            yield Step(f'Let the ids of {name} go on after {largest}.', functools.partial(_execute, change))


def _execute(statement: sa.Executable, connection: sa.Connection) -> None:
    connection.execute(statement)


def names(connection: sa.Connection) -> Iterator[Step]:
    """A step that inserts the standard resource classes and traits that are not there."""
    classes = set(os_resource_classes.STANDARDS) - set(connection.scalars(sa.select(tables.resource_classes.c.name)))
    traits = set(os_traits.get_traits()) - set(connection.scalars(sa.select(tables.traits.c.name)))
    if classes or traits:
        missing = f'{count(len(classes), "resource class", "resource classes")}, {count(len(traits), "trait")}'
        sentence = f'Insert the standard names that are not there: {missing}.'
        yield Step(sentence, _insert_names)


def _insert_names(connection: sa.Connection) -> None:
    if connection.dialect.name not in ('mysql', 'mariadb'):
        standards.insert_missing(connection)
        return
    # The id of the first standard class is 0, which an auto-increment column of theirs would replace.
    change = sa.text('SET SESSION sql_mode = :mode')
    mode = connection.exec_driver_sql('SELECT @@SESSION.sql_mode').scalar_one()
    connection.execute(change, {'mode': f'{mode},NO_AUTO_VALUE_ON_ZERO'})
    standards.insert_missing(connection)
    connection.execute(change, {'mode': mode})


def class_ids(connection: sa.Connection) -> Iterator[Step]:
    """A step that remembers the largest id of a class, in a table that another deployment does not have."""
    remembered = tables.resource_class_ids
    present = sa.inspect(connection).has_table(remembered.name)
    if not present or connection.scalar(sa.select(remembered.c.last)) is None:
        yield Step(f'Remember the largest id of a resource class, in the table {remembered.name}.', _remember_class_ids)


def _remember_class_ids(connection: sa.Connection) -> None:
    tables.resource_class_ids.create(connection, checkfirst=True)
    largest = connection.execute(sa.select(sa.func.max(tables.resource_classes.c.id))).scalar_one()
    last = max(largest, tables.FIRST_CUSTOM_CLASS_ID - 1)
    connection.execute(tables.resource_class_ids.insert(), {'id': 1, 'last': last})


def roots(connection: sa.Connection) -> Iterator[Step]:
    """A step that records the root of each provider that has none."""
    number = _number(connection, _providers.c.root_provider_id.is_(None))
    if number:
        yield Step(f'Record the root of {count(number, "resource provider")}, from the parents.', _fill_roots)


def _fill_roots(connection: sa.Connection) -> None:
    rows = connection.execute(sa.select(_providers.c.id, _providers.c.parent_provider_id)).all()
    parents: dict[int, int | None] = {row.id: row.parent_provider_id for row in rows}
    rootless = connection.scalars(sa.select(_providers.c.id).where(_providers.c.root_provider_id.is_(None))).all()
    change = (
        _providers.update()
        .where(_providers.c.id == sa.bindparam('provider'))
        .values(root_provider_id=sa.bindparam('root'), updated_at=_providers.c.updated_at)
    )
    connection.execute(change, [{'provider': id_, 'root': row_doubts.top(id_, parents)} for id_ in rootless])


def consumers(connection: sa.Connection, project: str, user: str) -> Iterator[Step]:
    """A step that makes a record of each consumer that holds something and has none."""
    number = connection.execute(
        sa.select(sa.func.count(sa.distinct(_allocations.c.consumer_id))).where(~_recorded())
    ).scalar_one()
    if number:
        sentence = (
            f'Make the record of {count(number, "consumer")} that allocations name, which is not there,'
            f' for the project {project} and the user {user}.'
        )
        yield Step(sentence, functools.partial(_insert_consumers, project, user))


def _recorded() -> sa.ColumnElement[bool]:
    return sa.exists().where(_consumers.c.uuid == _allocations.c.consumer_id)


def _insert_consumers(project: str, user: str, connection: sa.Connection) -> None:
    owners = [
        _id_of(connection, table, external_id)
        for table, external_id in ((tables.projects, project), (tables.users, user))
    ]
    uuids = connection.scalars(sa.select(_allocations.c.consumer_id).where(~_recorded()).distinct()).all()
    rows = [{'uuid': uuid, 'project_id': owners[0], 'user_id': owners[1], 'generation': 0} for uuid in uuids]
    connection.execute(_consumers.insert(), rows)


def _id_of(connection: sa.Connection, table: sa.Table, external_id: str) -> int:
    """The id of a project or user, which is inserted if need be."""
    wanted = sa.select(table.c.id).where(table.c.external_id == external_id)
    if connection.scalar(wanted) is None:
        connection.execute(table.insert().values(external_id=external_id, created_at=timeutils.utcnow()))
    return int(connection.execute(wanted).scalar_one())


def used(connection: sa.Connection) -> Iterator[Step]:
    """The step that fills the column of ours."""
    number = _number(connection, _allocations.c.id.is_not(None))
    yield Step(f'Record how much of each inventory is used, from {count(number, "allocation")}.', _fill_used)


def _fill_used(connection: sa.Connection) -> None:
    held = (
        sa.select(sa.func.coalesce(sa.func.sum(_allocations.c.used), 0))
        .where(_allocations.c.resource_provider_id == _inventories.c.resource_provider_id)
        .where(_allocations.c.resource_class_id == _inventories.c.resource_class_id)
        .scalar_subquery()
    )
    connection.execute(_inventories.update().values(used=held, updated_at=_inventories.c.updated_at))


def _number(connection: sa.Connection, condition: sa.ColumnElement[Any]) -> int:
    return connection.execute(sa.select(sa.func.count()).where(condition)).scalar_one()
