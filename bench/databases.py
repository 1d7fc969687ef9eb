"""Databases for the benchmark: a fresh one on SQLite, PostgreSQL or MariaDB, filled in bulk and dropped at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from bench.driver import FLOOR_ROWS, FLOOR_TABLE
from bench.shapes import Cloud
from placement import conf as placement_conf
from placement.db import tables
from placement.db.api import Database

#: The default URL of each server; the variables of the tests can change it.
_SERVERS = {
    'postgresql': ('PLACEMENT_TEST_POSTGRESQL_URL', 'postgresql+psycopg://postgres@127.0.0.1/postgres'),
    'mariadb': ('PLACEMENT_TEST_MARIADB_URL', 'mysql+pymysql://root@127.0.0.1/'),
}
KINDS = ('sqlite', *_SERVERS)

_CREATED = '2024-01-01 00:00:00'

Row = Sequence[object]


@contextlib.contextmanager
def fresh(kind: str, server_url: str | None) -> Iterator[str]:
    """The URL of a new, empty database, which is dropped at the end.

    :param kind: one of ``KINDS``.
    :param server_url: a URL with which databases can be created on that server; None for the default.
    :raises sqlalchemy.exc.OperationalError: no server answers there.
    """
    if kind == 'sqlite':
        with tempfile.TemporaryDirectory(prefix='placement-bench-') as directory:
            yield f'sqlite:///{directory}/placement.sqlite'
        return
    variable, default = _SERVERS[kind]
    url = sa.make_url(server_url or os.environ.get(variable, default))
    name = f'placement_bench_{uuid.uuid4().hex[:12]}'
    execute(url, f'CREATE DATABASE {name}' + (' CHARACTER SET utf8mb4' if kind == 'mariadb' else ''))
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        execute(url, f'DROP DATABASE {name}' + (' WITH (FORCE)' if kind == 'postgresql' else ''))


def execute(url: sa.URL | str, *statements: str) -> None:
    """Run statements outside of a transaction."""
    engine = sa.create_engine(url, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def prepare(url: str) -> None:
    """Create the schema, and the table of the floor."""
    overrides = {'placement_database': {'connection': url}}
    database = Database(placement_conf.load(environ={}, config_files=[], overrides=overrides))
    database.sync()
    database.dispose()
    rows = ', '.join(f'({number}, 0)' for number in range(FLOOR_ROWS))
    execute(
        url,
        f'CREATE TABLE {FLOOR_TABLE} (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)',
        f'INSERT INTO {FLOOR_TABLE} VALUES {rows}',
    )


def fill(url: str, cloud: Cloud) -> None:
    """Store a cloud in a database that ``prepare`` made."""
    engine = sa.create_engine(_with_local_files(url), poolclass=sa.NullPool)
    with engine.begin() as tx:
        if engine.dialect.name == 'mysql':
            # The rows are right by construction; checking them one by one takes most of the time.
            tx.exec_driver_sql('SET SESSION foreign_key_checks = 0, unique_checks = 0')
        for table, columns, rows in _rows(tx, cloud):
            _LOADERS[engine.dialect.name](tx, table.name, [*columns, 'created_at'], ((*row, _CREATED) for row in rows))
        if engine.dialect.name == 'postgresql':
            _advance_sequences(tx)
    names = [table.name for table in tables.metadata.sorted_tables]
    execute(url, *(['ANALYZE'] if engine.dialect.name != 'mysql' else [f'ANALYZE TABLE {", ".join(names)}']))


def _rows(tx: sa.Connection, cloud: Cloud) -> Iterator[tuple[sa.Table, list[str], Iterable[Row]]]:
    """Each table with the names of columns and the rows to insert, in an order that foreign keys allow."""
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
    own_traits = ((id_, traits[name]) for id_, name in cloud.traits)
    yield tables.resource_provider_traits, ['resource_provider_id', 'trait_id'], own_traits
    yield tables.placement_aggregates, ['id', 'uuid'], enumerate(cloud.aggregates, start=1)
    yield tables.resource_provider_aggregates, ['resource_provider_id', 'aggregate_id'], cloud.members


def _ids(tx: sa.Connection, table: sa.Table, names: set[str]) -> dict[str, int]:
    """Return the ids of ``names``; those that are missing are inserted."""
    known = {row.name: row.id for row in tx.execute(sa.select(table.c.name, table.c.id))}
    top = max([*known.values(), tables.FIRST_CUSTOM_CLASS_ID])
    new = {name: top + number for number, name in enumerate(sorted(names - known.keys()), start=1)}
    if new:
        tx.execute(table.insert(), [{'id': id_, 'name': name} for name, id_ in new.items()])
    return known | new


def _advance_sequences(tx: sa.Connection) -> None:
    """Let the next ids that PostgreSQL hands out be beyond those that were inserted."""
    for table in (tables.resource_providers, tables.placement_aggregates):
        highest = f'SELECT coalesce(max(id), 0) + 1 FROM {table.name}'
        tx.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), ({highest}), false)")


def _insert(tx: sa.Connection, table: str, columns: list[str], rows: Iterable[Row]) -> None:
    marks = ', '.join('?' for _ in columns)
    if values := list(map(tuple, rows)):
        tx.exec_driver_sql(f'INSERT INTO {table} ({", ".join(columns)}) VALUES ({marks})', values)


def _copy(tx: sa.Connection, table: str, columns: list[str], rows: Iterable[Row]) -> None:
    cursor: Any = tx.connection.cursor()
    with cursor.copy(f'COPY {table} ({", ".join(columns)}) FROM STDIN') as stream:
        for text in _tab_separated(rows):
            stream.write(text)


def _load_data(tx: sa.Connection, table: str, columns: list[str], rows: Iterable[Row]) -> None:
    # Twice as fast as INSERT with many rows.
    with tempfile.NamedTemporaryFile(prefix='placement-bench-') as file:
        file.writelines(_tab_separated(rows))
        file.flush()
        tx.exec_driver_sql(
            f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE {table} CHARACTER SET utf8mb4 ({', '.join(columns)})"
        )


def _tab_separated(rows: Iterable[Row]) -> Iterator[bytes]:
    """Lines of the text format that COPY and LOAD DATA share; our values need no escapes."""
    for row in rows:
        yield ('\t'.join(['\\N' if value is None else str(value) for value in row]) + '\n').encode()


_LOADERS = {'sqlite': _insert, 'postgresql': _copy, 'mysql': _load_data}


def _with_local_files(url: str) -> sa.URL:
    parsed = sa.make_url(url)
    return parsed.update_query_dict({'local_infile': '1'}) if parsed.get_backend_name() == 'mysql' else parsed


def driver_of(url: str) -> tuple[str, dict[str, Any]]:
    """Return the module of the database's driver, and the arguments of its ``connect`` as JSON values."""
    parsed = sa.make_url(url)
    dialect = parsed.get_dialect()()
    if parsed.get_backend_name() == 'sqlite':
        return 'sqlite3', {'database': parsed.database}
    _, arguments = dialect.create_connect_args(parsed)
    plain = {name: value for name, value in arguments.items() if isinstance(value, (str, int, float))}
    return dialect.import_dbapi().__name__, plain


#: The tables of the change log, and those of earlier releases, which can be measured too.
_LOGS = (('placement_change_log_slots', 'placement_change_log'), ('writers', 'changes'))


def log_size(url: str) -> dict[str, tuple[int, int | None]] | None:
    """Return rows and bytes (None if unknown) of each table of the change log; None without a change log."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        present = set(sa.inspect(connection).get_table_names())
        names = next((names for names in _LOGS if set(names) <= present), None)
        if names is None:
            return None
        return {
            name: (connection.exec_driver_sql(f'SELECT count(*) FROM {name}').scalar_one(), _bytes(connection, name))
            for name in names
        }


def delete_slots(url: str) -> bool:
    """Empty the change log but for one slot, while no service runs. Return False if there is no change log."""
    slots, log = _LOGS[0]
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        if slots not in sa.inspect(connection).get_table_names():
            return False
        connection.exec_driver_sql(f'DELETE FROM {log}')
        connection.exec_driver_sql(f'DELETE FROM {slots} WHERE id > 1')
    return True


def add_slots(url: str, count: int) -> None:
    """Insert slots of the change log until there are ``count``."""
    table, _ = _LOGS[0]
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        missing = count - connection.exec_driver_sql(f'SELECT count(*) FROM {table}').scalar_one()
        # Without ids: the sequence of PostgreSQL would not know of them, and the service could create no slot.
        if missing > 0:
            insert = sa.text(f'INSERT INTO {table} (sequence, token, owner) VALUES (0, 0, :owner)')
            connection.execute(insert, [{'owner': 1}] * missing)


def _bytes(connection: sa.Connection, table: str) -> int | None:
    if connection.dialect.name == 'postgresql':
        return int(connection.exec_driver_sql(f"SELECT pg_total_relation_size('{table}')").scalar_one())
    if connection.dialect.name == 'mysql':
        connection.exec_driver_sql(f'ANALYZE TABLE {table}')
        size = 'SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE()'
        return int(connection.exec_driver_sql(f"{size} AND table_name = '{table}'").scalar_one())
    return None


def version(url: str) -> str:
    """Return the name and version that the database reports."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    question = 'SELECT sqlite_version()' if engine.dialect.name == 'sqlite' else 'SELECT version()'
    with engine.connect() as connection:
        reported = str(connection.exec_driver_sql(question).scalar_one())
    prefix = 'SQLite ' if engine.dialect.name == 'sqlite' else ''
    return prefix + reported.partition(',')[0].partition(' on ')[0]
