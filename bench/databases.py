"""Databases for the benchmark: a fresh one on SQLite, PostgreSQL or MariaDB, filled in bulk and dropped at the end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa

from bench.shapes import Cloud
from placement.db import tables
from tests.support import databases

#: This checkout.
ROOT = pathlib.Path(__file__).parents[1]
KINDS = ('sqlite', 'postgresql', 'mariadb')

_CREATED = '2024-01-01 00:00:00'

Row = Sequence[object]


@contextlib.contextmanager
def fresh(kind: str) -> Iterator[str]:
    """Create an empty database, which is dropped at the end, and yield its URL.

    :param kind: one of ``KINDS``, or a URL with which databases can be created on that server.
    :raises sqlalchemy.exc.OperationalError: no server answers there.
    """
    if kind == 'sqlite':
        with tempfile.TemporaryDirectory(prefix='placement-bench-') as directory:
            yield f'sqlite:///{directory}/placement.sqlite'
        return
    with databases.fresh(databases.server_url(kind) if kind in KINDS else sa.make_url(kind)) as url:
        yield url.render_as_string(hide_password=False)


def create_schema(url: str, checkout: pathlib.Path = ROOT) -> None:
    """Create the tables of a checkout.

    :raises RuntimeError: its command failed.
    """
    program = pathlib.Path(sys.executable).with_name('placement-manage')
    settings = {'OS_PLACEMENT_DATABASE__CONNECTION': url, 'PYTHONPATH': str(checkout)}
    done = subprocess.run(
        [program, 'db', 'sync'], env=os.environ | settings, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or done.stdout)


def fill(url: str, cloud: Cloud) -> None:
    """Store a cloud in a database that has only the schema."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as tx:
        if engine.dialect.name == 'mysql':
            # The rows are right by construction; checking them one by one takes most of the time.
            tx.exec_driver_sql('SET SESSION foreign_key_checks = 0, unique_checks = 0')
        for table, columns, rows in _rows(tx, cloud):
            insert(tx, table.name, [*columns, 'created_at'], [(*row, _CREATED) for row in rows])
        if engine.dialect.name == 'postgresql':
            _advance_sequences(tx)
    names = ', '.join(table.name for table in tables.metadata.sorted_tables)
    databases.execute(sa.make_url(url), f'ANALYZE TABLE {names}' if engine.dialect.name == 'mysql' else 'ANALYZE')


def _rows(tx: sa.Connection, cloud: Cloud) -> Iterator[tuple[sa.Table, list[str], Iterable[Row]]]:
    """Yield each table with the names of columns and the rows to insert, in an order that foreign keys allow."""
    classes = _ids(tx, tables.resource_classes, {name for _, name, _ in cloud.inventories})
    traits = _ids(tx, tables.traits, {name for _, name in cloud.traits})
    provider = ['id', 'uuid', 'name', 'generation', 'parent_provider_id', 'root_provider_id']
    yield (
        tables.resource_providers,
        provider,
        ((id_, uuid_, name, 0, parent, root) for id_, uuid_, name, parent, root in cloud.providers),
    )
    inventory = ['resource_provider_id', 'resource_class_id', 'total', 'reserved', 'min_unit', 'max_unit']
    yield (
        tables.inventories,
        [*inventory, 'step_size', 'allocation_ratio', 'used'],
        ((id_, classes[name], total, 0, 1, total, 1, 1.0, 0) for id_, name, total in cloud.inventories),
    )
    provider_traits = ((id_, traits[name]) for id_, name in cloud.traits)
    yield tables.resource_provider_traits, ['resource_provider_id', 'trait_id'], provider_traits
    yield tables.placement_aggregates, ['id', 'uuid'], enumerate(cloud.aggregates, start=1)
    yield tables.resource_provider_aggregates, ['resource_provider_id', 'aggregate_id'], cloud.members


def _ids(tx: sa.Connection, table: sa.Table, names: set[str]) -> dict[str, int]:
    """Return the ids of ``names``; those that are missing are inserted."""
    ids = {row.name: row.id for row in tx.execute(sa.select(table.c.name, table.c.id))}
    highest = max([*ids.values(), tables.FIRST_CUSTOM_CLASS_ID])
    new = {name: id_ for id_, name in enumerate(sorted(names - ids.keys()), start=highest + 1)}
    if new:
        tx.execute(table.insert(), [{'id': id_, 'name': name} for name, id_ in new.items()])
    return ids | new


def _advance_sequences(tx: sa.Connection) -> None:
    """Let the next ids that PostgreSQL hands out be beyond those that were inserted."""
    for table in (tables.resource_providers, tables.placement_aggregates):
        highest = f'SELECT coalesce(max(id), 0) + 1 FROM {table.name}'
        tx.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), ({highest}), false)")


def insert(tx: sa.Connection, table: str, columns: list[str], rows: list[Row]) -> None:
    """Insert rows with ``executemany`` of the driver."""
    marks = ', '.join('?' if tx.dialect.paramstyle == 'qmark' else '%s' for _ in columns)
    if rows:
        tx.exec_driver_sql(f'INSERT INTO {table} ({", ".join(columns)}) VALUES ({marks})', rows)


def version(url: str) -> str:
    """Return the name and version that the database reports."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    sqlite = engine.dialect.name == 'sqlite'
    with engine.connect() as connection:
        text = connection.exec_driver_sql(f'SELECT {"sqlite_version" if sqlite else "version"}()').scalar_one()
    return f'SQLite {text}' if sqlite else str(text).partition(',')[0].partition(' on ')[0]
