"""Upgrades the schema of a database, reads and records its revision, and inserts the standard names.

The functions with an engine raise ``DatabaseUnavailable`` if the database cannot be reached.

The revision is in our own table, so an adopted database keeps the revision of the service that made it.

Only the functions that change the schema import Alembic, because that takes a fifth of the time in which a command
starts. The others read the numbers of the revisions from the names of their files.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from placement import exception
from placement.db import connections, errors, retries, sql, tables
from placement.db.batch import StatementBatch

if TYPE_CHECKING:
    from alembic import config

VERSION_TABLE = 'placement_alembic_version'
_REVISIONS = sa.table(VERSION_TABLE, sa.column('version_num', sa.String))
#: Without the table of the revision, tables with names of ours are also another service's.
_FOREIGN = tables.FOREIGN.union(tables.metadata.tables)
SCRIPTS = pathlib.Path(__file__).parent / 'migrations'
#: The number (PostgreSQL) and the name (MySQL) of the advisory lock that a process holds while it changes the schema.
_ADVISORY_LOCK_ID = 0x706C6163
_NAMED_LOCK = 'placement_schema'
_LOCK_TIMEOUT_SECONDS = 120
#: Maximum number of retries while a process on another node of a cluster changes the schema, about one a second.
_MAX_SYNC_RETRIES = 60

Rows = list[tuple[object, ...]]


class WrongSchema(exception.PlacementError):
    template = (
        'The schema of the database is at revision {present}, not {head}. Upgrade it with: placement-manage db sync'
    )


class NewerSchema(WrongSchema):
    """A later release has upgraded the schema. Nothing downgrades it."""

    template = (
        'The schema of the database is at revision {present}, which this release does not have (its newest is {head}):'
        ' a later release has upgraded it. Install that release here, or restore a backup from before the upgrade.'
    )


class MissingSchema(WrongSchema):
    template = 'The database does not have the tables of this service. Create them with: placement-manage db sync'


class ForeignSchema(WrongSchema):
    """Another Placement service made the tables; only ``placement-manage db adopt`` may change them."""

    template = (
        'The database already has tables that this service did not create ({tables}).'
        ' With [placement_database] adopt_on_sync = True, placement-manage db sync adopts such a database.'
        ' Adopt it with: placement-manage db adopt'
    )


class WrongEncoding(WrongSchema):
    """A database of PostgreSQL that cannot store every character of a name."""

    template = (
        'The encoding of the database {database} is {encoding}, not UTF8. Create another database:'
        " CREATE DATABASE {database}_utf8 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )


class SchemaLocked(exception.PlacementError):
    template = 'Another process has been changing the schema for {seconds} seconds. Retry when it is done.'


class UnknownRevision(exception.PlacementError):
    template = 'There is no schema revision {revision}. Known revisions: {known}'


@errors.as_unavailable()
def sync(engine: sa.Engine) -> None:
    """Create the schema, or upgrade it to the newest revision. Concurrent processes wait for one another.

    :raises ForeignSchema: there are tables but no revision of ours.
    :raises NewerSchema: the schema belongs to a later release.
    :raises WrongEncoding: on PostgreSQL, the encoding of the database is not UTF8.
    :raises SchemaLocked: another process has been changing the schema for two minutes.
    """

    # No lock covers all nodes of a Galera cluster, so a process on another node may upgrade the database at the same
    # time. This can also interrupt a statement here in the middle of a row; then PyMySQL raises AssertionError.
    def is_temporary(error: Exception) -> bool:
        from alembic.util import CommandError

        overtaken = isinstance(error, CommandError | AssertionError) and sql.is_mysql(engine.dialect)
        return overtaken or errors.is_concurrent_change_of_schema(error)

    def advance_to_head() -> None:
        while not _advance(engine):
            pass

    retries.retry(advance_to_head, is_temporary, retries=_MAX_SYNC_RETRIES, interval=1)


def _advance(engine: sa.Engine) -> bool:
    """Create the schema, run the next migration, or copy one batch of its rows. Return whether it is the newest.

    Each of these is one transaction. So no migration holds a lock while rows are copied: a migration that adds a column
    comes before the one that fills it, and this one has ``copy_rows`` (migrations/script.py.mako).
    """
    with locked(engine) as connection:
        check_encoding(connection)
        present = _settle_revision(connection)
        if present == head():
            return True
        from alembic import command, script

        if present is None:
            _reject_foreign_tables(connection)
            # The table of the revision comes first. Without it, tables that an interrupted attempt left would seem to
            # belong to another service.
            command.ensure_version(_config(connection))
            _create_tables(connection)
            command.upgrade(_config(connection), 'head')
            return True
        _raise_if_newer(present)
        following = list(script.ScriptDirectory.from_config(_config()).iterate_revisions('head', present))[-1]
        copy_rows = getattr(following.module, 'copy_rows', None)
        if copy_rows is None or not copy_rows(connection):
            command.upgrade(_config(connection), following.revision)
        return False


def _create_tables(connection: sa.Connection) -> None:
    """Create the tables and indexes that do not exist. Some may exist, because MySQL commits each change of the schema.

    So an interrupted attempt, or a process on another node of a cluster, leaves a part of them. If an earlier release
    made this part, it may lack columns. The migrations add these and their indexes, and find nothing to do otherwise.
    """
    tables.metadata.create_all(connection)
    for table in tables.metadata.sorted_tables:
        present = {column['name'] for column in sa.inspect(connection).get_columns(table.name)}
        for index in table.indexes:
            if present.issuperset(index.columns.keys()):
                index.create(connection, checkfirst=True)
    sequence = tables.resource_class_sequence
    if connection.scalar(sa.select(sequence.c.last)) is None:
        connection.execute(sequence.insert().values(id=1, last=tables.FIRST_CUSTOM_CLASS_ID - 1))
    slots = tables.change_log_slots
    if connection.scalar(sa.select(slots.c.id).limit(1)) is None:
        connection.execute(slots.insert().values(sequence=0, token=0))


@errors.as_unavailable()
def recorded_revision(engine: sa.Engine) -> str | None:
    """Return the revision that is recorded in the database; None if it does not have our schema."""
    with engine.connect() as connection:
        return recorded_revision_on(connection)


@errors.as_unavailable()
def check_revision(engine: sa.Engine) -> None:
    """Make sure that the schema is at the revision of this code.

    :raises WrongEncoding: on PostgreSQL, the encoding of the database is not UTF8.
    :raises ForeignSchema: the tables belong to another Placement service.
    :raises MissingSchema: there are no tables.
    :raises NewerSchema: a later release has upgraded the schema.
    :raises WrongSchema: the database has another revision.
    """
    with engine.connect() as connection:
        check_encoding(connection)
        present = recorded_revision_on(connection)
        if present is None:
            _reject_foreign_tables(connection)
            raise MissingSchema
    raise_unless_newest(present)


def raise_unless_newest(present: str) -> None:
    """Compare a recorded revision with the newest one that this code knows. Errors are as for ``check_revision``."""
    _raise_if_newer(present)
    if present != head():
        raise WrongSchema(present=present, head=head())


def _raise_if_newer(present: str) -> None:
    try:
        _resolve(present)
    except UnknownRevision as error:
        raise NewerSchema(present=present, head=head()) from error


@errors.as_unavailable()
def is_foreign(engine: sa.Engine) -> bool:
    """Return whether the tables of the database belong to another Placement service, so that ``sync`` rejects them."""
    with engine.connect() as connection:
        return bool(_foreign_tables(connection))


@errors.as_unavailable()
def foreign_tables(engine: sa.Engine) -> list[str]:
    """Return the names of the tables in the database that belong to another Placement service."""
    with engine.connect() as connection:
        return sorted(tables.FOREIGN & set(sa.inspect(connection).get_table_names()))


def check_encoding(connection: sa.Connection) -> None:
    """Make sure that the database can store every character. Tables of MySQL have their own character set.

    :raises WrongEncoding: on PostgreSQL, the encoding of the database is not UTF8.
    """
    if connection.dialect.name == 'postgresql':
        encoding = connection.scalar(sa.select(sa.func.current_setting('server_encoding')))
        if encoding != 'UTF8':
            raise WrongEncoding(database=connection.engine.url.database, encoding=encoding)


def head() -> str:
    """Return the newest revision that this code knows."""
    return _resolve('head')


@errors.as_unavailable()
def stamp(engine: sa.Engine, revision: str) -> None:
    """Record ``revision`` as the revision of the schema, and change nothing else.

    :raises UnknownRevision: no such revision.
    :raises ForeignSchema: the tables belong to another Placement service.
    :raises SchemaLocked: another process has been changing the schema for two minutes.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        if _settle_revision(connection) is None:
            _reject_foreign_tables(connection, tables.FOREIGN)
        stamp_on(connection, target)


def stamp_on(connection: sa.Connection, revision: str) -> None:
    """Record ``revision`` as ``stamp`` does, without its checks.

    :param connection: from ``locked``.
    """
    from alembic import command

    command.stamp(_config(connection), revision)


@contextlib.contextmanager
def locked(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction for changes of the schema, and yield its connection. One process at a time can have it.

    On a Galera cluster, one process on each node can have it. On SQLite the transaction does not check foreign keys.

    :raises SchemaLocked: on MySQL and MariaDB, another process has had it for two minutes.
    """
    with engine.connect() as connection:
        connection.execution_options(**{connections.MODE: connections.Mode.WRITE_EAGER})
        with _named_lock(connection), _without_foreign_keys(connection), connection.begin():
            if connection.dialect.name == 'postgresql':
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK_ID)))
            # On SQLite the transaction itself holds the write lock of the whole file.
            yield connection


@contextlib.contextmanager
def _without_foreign_keys(connection: sa.Connection) -> Iterator[None]:
    """On SQLite, turn off the checks of foreign keys for a transaction that begins in the block.

    With these checks no table could be replaced.
    """
    if connection.dialect.name != 'sqlite':
        yield
        return
    driver: Any = connection.connection.dbapi_connection
    (checked,) = driver.execute('PRAGMA foreign_keys').fetchone()
    driver.execute('PRAGMA foreign_keys = OFF')
    try:
        yield
    finally:
        driver.execute(f'PRAGMA foreign_keys = {checked}')


@contextlib.contextmanager
def _named_lock(connection: sa.Connection) -> Iterator[None]:
    """On MySQL, hold a lock that belongs to the connection, because MySQL commits at each change of the schema.

    The lock is released after the last commit, so that the next process sees the new revision.
    """
    if not sql.is_mysql(connection.dialect):
        yield
        return
    if connection.scalar(sa.select(sa.func.get_lock(_NAMED_LOCK, _LOCK_TIMEOUT_SECONDS))) != 1:
        raise SchemaLocked(seconds=_LOCK_TIMEOUT_SECONDS)
    connection.commit()
    try:
        yield
    finally:
        connection.execute(sa.select(sa.func.release_lock(_NAMED_LOCK)))
        connection.commit()


def _config(connection: sa.Connection | None = None) -> config.Config:
    from alembic import config

    options = config.Config()
    # ConfigParser would treat a percent sign in the path as an interpolation.
    options.set_main_option('script_location', str(SCRIPTS).replace('%', '%%'))
    options.set_main_option('path_separator', 'os')
    options.attributes['connection'] = connection
    return options


def _resolve(revision: str) -> str:
    """Return the number of a revision of this code; ``head`` is the newest.

    :raises UnknownRevision: no such revision.
    """
    revisions = sorted(path.name.partition('_')[0] for path in (SCRIPTS / 'versions').glob('[0-9]*_*.py'))
    if revision == 'head':
        return revisions[-1]
    if revision not in revisions:
        raise UnknownRevision(revision=revision, known=', '.join(revisions))
    return revision


def recorded_revision_on(connection: sa.Connection) -> str | None:
    """Return what ``recorded_revision`` returns, on a connection of the caller."""
    return max(_recorded_revisions(connection), default=None)


def _recorded_revisions(connection: sa.Connection) -> tuple[str, ...]:
    """Return the recorded revisions. Revisions are numbered, so the largest is the newest.

    There are two if a process on another node of a Galera cluster finished the next step before this process recorded
    the previous one. Both steps are complete then, because a process completes a step before it records it.
    """
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return ()
    return tuple(connection.scalars(sa.select(_REVISIONS.c.version_num)))


def _settle_revision(connection: sa.Connection) -> str | None:
    """Return the recorded revision, and remove earlier ones, because with several Alembic would not continue."""
    recorded = _recorded_revisions(connection)
    newest = max(recorded, default=None)
    if len(recorded) > 1:
        connection.execute(sa.delete(_REVISIONS).where(_REVISIONS.c.version_num != newest))
    return newest


def _foreign_tables(connection: sa.Connection, names: Collection[str] = _FOREIGN) -> list[str]:
    """Return those of ``names`` that are tables of another service: the table of the revision is not there.

    If it exists without a revision, a process on another node is creating the schema.
    """
    present = set(sa.inspect(connection).get_table_names())
    return [] if VERSION_TABLE in present else sorted(present.intersection(names))


def _reject_foreign_tables(connection: sa.Connection, names: Collection[str] = _FOREIGN) -> None:
    if foreign := _foreign_tables(connection, names):
        raise ForeignSchema(tables=', '.join(foreign))


def missing_standard_names(tx: sa.Connection) -> list[str]:
    """Return the names of the standard resource classes and traits that the database lacks."""
    return [str(row[-1]) for _, _, rows in _missing_names(tx) for row in rows]


def insert_standard_names(tx: sa.Connection) -> None:
    """Insert the standard classes and traits that the database lacks. Remove and rename nothing.

    Several processes may do this at the same time, because it does not change existing rows. The caller records the
    change in the log (``change_log.record_names``).
    """
    batch = StatementBatch(tx)
    for table, columns, rows in _missing_names(tx):
        batch.add_insert(table, columns, rows, unless_present=True)
    batch.execute()


def _missing_names(tx: sa.Connection) -> Iterator[tuple[sa.Table, str, Rows]]:
    """Yield the two tables, the names of their columns, and the rows that they lack."""
    # This is not at the top: it imports a module for each group of traits.
    import os_traits

    classes: Rows = list(tables.STANDARD_CLASSES.items())
    traits: Rows = [(name,) for name in sorted(os_traits.get_traits())]
    for table, columns, rows in ((tables.resource_classes, 'id, name', classes), (tables.traits, 'name', traits)):
        present = set(tx.scalars(sa.select(table.c.name)))
        yield table, columns, [row for row in rows if row[-1] not in present]
