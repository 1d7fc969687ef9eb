"""Rows of another service that prevent an adoption, and the steps that write rows.

An operator has to decide how to correct a problem. The steps write standard names, missing generations, roots and
consumers, the owners of allocations, and ``used``.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from placement.conf.options import MICROVERSION_CHOICES
from placement.db import migration, sql, tables
from placement.ops.adoption import Step
from placement.ops.adoption.found_tables import FoundTable
from placement.ops.adoption.names import Names
from placement.ops.lost_consumers import read_lost_consumers
from placement.ops.provider_roots import find_roots
from placement.units import plural

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_providers = tables.resource_providers


_CANONICAL = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
#: Maximum number of examples that a problem names.
_MAX_EXAMPLES = 3


def problems(connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """Yield a sentence about everything that would make a step fail or that no audit could repair later."""
    for existing in existing_tables.values():
        yield from _nulls(connection, names, existing)
        yield from _duplicates(connection, names, existing)
    for column, referred in tables.REFERENCES:
        # Missing tables are added without rows, and missing columns without references.
        if referred in names and column.table in names and column.name in existing_tables[column.table.name].columns:
            yield from _orphans(connection, names, column, referred)
    yield from _misnumbered_classes(connection, names)
    yield from _malformed_uuids(connection, names)
    yield from _loops(connection, names)
    inventories = names[tables.inventories].c
    ids = connection.scalars(sa.select(inventories.id).where(inventories.step_size < 1).limit(_MAX_EXAMPLES)).all()
    if ids:
        name = names[tables.inventories].name
        yield f'{name}.step_size is less than 1: {_examples(ids)}.'


def _nulls(connection: sa.Connection, names: Names, existing: FoundTable) -> Iterator[str]:
    for name in existing.missing_not_null():
        # A generation of NULL is set to 0 by a step (``rows.generations``).
        if name != 'generation':
            number = _number(connection, names[existing.table].c[name].is_(None))
            if number:
                yield f'{existing.name}.{name} is NULL in {plural(number, "row")}.'


def _duplicates(connection: sa.Connection, names: Names, existing: FoundTable) -> Iterator[str]:
    for unique in existing.missing_unique_constraints():
        columns = [names[existing.table].c[column.name] for column in unique.columns]
        # Compare texts as they are compared after the adoption. Before it, MySQL may treat different texts as equal.
        binary = [
            sa.cast(column, sa.LargeBinary)
            for column in columns
            if sql.is_mysql(connection.dialect) and isinstance(column.type, sql.Text)
        ]
        duplicates = sa.select(*columns).group_by(*binary, *columns).having(sa.func.count() > 1)
        rows = connection.execute(duplicates.limit(_MAX_EXAMPLES)).all()
        if rows:
            key = ', '.join(unique.columns.keys())
            yield f'{existing.name} has rows with the same {key}: {_examples(map(tuple, rows))}.'


def _orphans(connection: sa.Connection, names: Names, referring: sa.Column[Any], referred: sa.Table) -> Iterator[str]:
    column = names[referring.table].c[referring.name]
    target = names[referred].alias()
    without_target = column.is_not(None) & ~sa.exists().where(target.c.id == column)
    missing = connection.scalars(sa.select(column).where(without_target).distinct().order_by(column)).all()
    if referred is tables.resource_classes:
        # A step inserts the missing standard classes with these ids.
        missing = [id_ for id_ in missing if id_ not in tables.STANDARD_CLASSES]
    if missing:
        name, target_name = names[referring.table].name, names[referred].name
        yield f'{name}.{column.name} refers to {target_name} that do not exist: {_examples(missing)}.'


def _misnumbered_classes(connection: sa.Connection, names: Names) -> Iterator[str]:
    classes = names[tables.resource_classes].c
    standard = tables.STANDARD_CLASSES
    positions = {name: id_ for id_, name in standard.items()}
    for id_, name in connection.execute(sa.select(classes.id, classes.name).order_by(classes.id)):
        if name in positions and positions[name] != id_:
            yield f'The standard resource class {name} has the id {id_} instead of {positions[name]}.'
        elif id_ in standard and name not in positions:
            yield f'The id {id_} belongs to the standard resource class {standard[id_]}, but {name} has it.'


def _malformed_uuids(connection: sa.Connection, names: Names) -> Iterator[str]:
    for expected in (_providers.c.uuid, _consumers.c.uuid, _allocations.c.consumer_id):
        column = names[expected.table].c[expected.name]
        uuids = connection.scalars(sa.select(column).where(column.is_not(None)))
        malformed = [uuid for uuid in uuids if not _CANONICAL.fullmatch(uuid)]
        if malformed:
            name = f'{names[expected.table].name}.{column.name}'
            yield f'{name} has uuids that are not in lower case with hyphens: {_examples(malformed)}.'


def _loops(connection: sa.Connection, names: Names) -> Iterator[str]:
    columns = names[tables.resource_providers].c
    rows = connection.execute(sa.select(columns.id, columns.parent_provider_id)).all()
    parents = {row.id: row.parent_provider_id for row in rows}
    looping = sorted(id_ for id_, root_id in find_roots(parents).items() if root_id is None)
    if looping:
        yield f'The parents of {names[tables.resource_providers].name} form a loop: {_examples(looping)}.'


def _examples(values: Iterable[Any]) -> str:
    """Return the first ``_MAX_EXAMPLES`` of ``values``, and the number of the rest."""
    texts = list(map(str, values))
    examples = ', '.join(texts[:_MAX_EXAMPLES])
    return examples if len(texts) <= _MAX_EXAMPLES else f'{examples} and {len(texts) - _MAX_EXAMPLES} more'


# Steps ---------------------------------------------------------------------------------------------------


def generations(connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield a step for each table in which a generation is NULL."""
    for table in (_providers, _consumers):
        if 'generation' in existing_tables[table.name].missing_not_null():
            number = _number(connection, names[table].c.generation.is_(None))
            if number:
                # Plain SQL, because SQLAlchemy would also set updated_at, which the table may not have yet.
                template = 'UPDATE {table} SET generation = 0 WHERE generation IS NULL'
                change = sql.statement(template, table=table.name)
                sentence = f'Set the generation of {plural(number, "row")} of {table.name} to 0 instead of NULL.'
                yield Step(sentence, functools.partial(sql.execute_text, text=change))


def sequences(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield steps that set PostgreSQL's sequences to the largest id. They are lower if rows were inserted with ids."""
    if connection.dialect.name != 'postgresql':
        return
    for table in (table for table in tables.SHARED if table in names and 'id' in table.columns):
        name = names[table].name
        sequence = connection.scalar(sa.select(sa.func.pg_get_serial_sequence(name, 'id')))
        largest = connection.scalar(sa.select(sa.func.max(names[table].c.id)))
        if sequence is None or largest is None:
            continue
        query = sql.statement('SELECT last_value, is_called FROM {sequence}', sequence=sequence)
        last = sql.execute_text(connection, query).one()
        if largest > last.last_value or (largest == last.last_value and not last.is_called):
            change = sa.select(sa.func.setval(sequence, largest))
            sentence = f'Continue the ids of {table.name} after {largest}.'
            yield Step(sentence, operator.methodcaller('execute', change))


def standard_names(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield a step that inserts the standard resource classes and traits that are missing."""
    # This is not at the top, as in ``migration``.
    import os_traits

    present = {
        table: set(connection.scalars(sa.select(names[table].c.name)))
        for table in (tables.resource_classes, tables.traits)
    }
    classes = set(tables.STANDARD_CLASSES.values()) - present[tables.resource_classes]
    traits = set(os_traits.get_traits()) - present[tables.traits]
    if classes or traits:
        missing = f'{plural(len(classes), "resource class", "resource classes")}, {plural(len(traits), "trait")}'
        sentence = f'Insert the missing standard names: {missing}.'
        yield Step(sentence, _insert_names)


def _insert_names(connection: sa.Connection) -> None:
    if not sql.is_mysql(connection.dialect):
        migration.insert_standard_names(connection)
        return
    # The first standard class has the id 0. In the other service's auto-increment column, MySQL would replace it.
    mode = sql.execute_text(connection, 'SELECT @@SESSION.sql_mode').scalar_one()
    sql.execute_text(connection, 'SET SESSION sql_mode = ?', f'{mode},NO_AUTO_VALUE_ON_ZERO')
    migration.insert_standard_names(connection)
    sql.execute_text(connection, 'SET SESSION sql_mode = ?', mode)


def class_ids(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield a step that records the largest id of a class. Another service has no table for it."""
    sequence = tables.resource_class_sequence
    largest = connection.scalar(sa.select(sa.func.max(names[tables.resource_classes].c.id))) or 0
    # The ids below that of the first custom class are those of standard classes, also of later releases.
    least = max(tables.FIRST_CUSTOM_CLASS_ID - 1, largest)
    last = connection.scalar(sa.select(sequence.c.last)) if sequence.name in names.present else None
    # If the database was returned to the other service, that may have created classes since.
    if last is not None and last >= least:
        return

    def record(connection: sa.Connection) -> None:
        sequence.create(connection, checkfirst=True)
        connection.execute(sequence.delete())
        connection.execute(sequence.insert(), {'id': 1, 'last': least})

    yield Step(f'Record the largest id of a resource class in the table {sequence.name}.', record)


def roots(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield a step that sets the root of each provider where it is NULL."""
    number = _number(connection, names[_providers].c.root_provider_id.is_(None))
    if number:
        yield Step(f'Set the root of {plural(number, "resource provider")} from the parents.', _fill_roots)


def _fill_roots(connection: sa.Connection) -> None:
    columns = _providers.c
    rows = connection.execute(sa.select(columns.id, columns.parent_provider_id, columns.root_provider_id)).all()
    root_of = find_roots({row.id: row.parent_provider_id for row in rows})
    change = (
        _providers.update()
        .where(columns.id == sa.bindparam('provider'))
        .values(root_provider_id=sa.bindparam('root'), updated_at=columns.updated_at)
    )
    rootless = [row.id for row in rows if row.root_provider_id is None]
    connection.execute(change, [{'provider': id_, 'root': root_of[id_]} for id_ in rootless])


def consumers(connection: sa.Connection, names: Names, project: str, user: str) -> Iterator[Step]:
    """Yield a step that inserts the rows of consumers that have allocations but no row.

    :param project: external id of the project for them.
    :param user: external id of the user for them.
    """
    allocations, recorded = names[_allocations], names[_consumers]
    is_recorded = sa.exists().where(recorded.c.uuid == allocations.c.consumer_id)
    lost = sa.select(sa.func.count(sa.distinct(allocations.c.consumer_id))).where(~is_recorded)
    number = connection.execute(lost).scalar_one()
    if number:
        sentence = (
            f'Create the missing records of {plural(number, "consumer")},'
            f' with the project {project} and the user {user} where their allocations record no owner.'
        )
        yield Step(sentence, functools.partial(_insert_consumers, project, user))


def _insert_consumers(project: str, user: str, connection: sa.Connection) -> None:
    incomplete_owner = {}
    for column, table, external_id in (('project_id', tables.projects, project), ('user_id', tables.users, user)):
        query = sa.select(table.c.id).where(table.c.external_id == external_id)
        if connection.scalar(query) is None:
            connection.execute(table.insert().values(external_id=external_id))
        incomplete_owner[column] = connection.execute(query).scalar_one()
    # If this service wrote the allocations before the database was returned, they have copies of the owner.
    rows = [
        {'uuid': consumer.uuid, 'consumer_type_id': None, 'generation': 0, **(consumer.owner or incomplete_owner)}
        for consumer in read_lost_consumers(connection)
    ]
    connection.execute(_consumers.insert(), rows)


def computed_columns(connection: sa.Connection, names: Names) -> Iterator[Step]:
    """Yield the steps that copy the owner of each consumer to its allocations, and compute ``inventories.used``."""
    number = _number(connection, names[_allocations].c.id.is_not(None))
    owners = _allocations.update().values(**tables.CONSUMER_COPIES, updated_at=_allocations.c.updated_at)
    sentence = f'Copy project, user and type of the consumer to {plural(number, "allocation")}.'
    yield Step(sentence, operator.methodcaller('execute', owners))
    used = _inventories.update().values(used=tables.ALLOCATED, updated_at=_inventories.c.updated_at)
    sentence = f'Set the usage of each inventory to the sum of its allocations ({number} in all).'
    yield Step(sentence, operator.methodcaller('execute', used))


def notes(connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """Yield a note if consumers have types: their clients use microversions that are not served by default."""
    if 'consumer_type_id' in existing_tables[_consumers.name].columns:
        number = _number(connection, names[_consumers].c.consumer_type_id.is_not(None))
        if number:
            have = 'has' if number == 1 else 'have'
            yield (
                f'{plural(number, "consumer")} {have} a type. Clients that set types use microversion 1.38 or later,'
                f' and need [placement] max_microversion = {MICROVERSION_CHOICES[-1]}.'
                ' doc/adopt.md lists the clients that are supported.'
            )


def _number(connection: sa.Connection, condition: sa.ColumnElement[Any]) -> int:
    return connection.execute(sa.select(sa.func.count()).where(condition)).scalar_one()
