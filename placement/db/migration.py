"""The versions of the schema: upgrade a database, read which version it has, or record one.

The version is in a table of our own, so an adopted database keeps the version table of the service that made it.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import command, config, migration, script
from alembic.util import CommandError
from oslo_db import exception as db_exc

from placement import exception
from placement.db import connections, sqlite, tables

VERSION_TABLE = 'placement_alembic_version'
SCRIPTS = pathlib.Path(__file__).parent / 'migrations'
#: The number (PostgreSQL) and the name (MySQL) of the advisory lock that a process holds while it changes the schema.
_ADVISORY_LOCK_ID = 0x706C6163
_NAMED_LOCK = 'placement_schema'
_LOCK_TIMEOUT_SECONDS = 120


class WrongSchema(exception.PlacementError):
    template = (
        'The schema of the database is at version {present}, not {head}. Upgrade it with: placement-manage db sync'
    )


class ForeignSchema(WrongSchema):
    """The tables were made by another Placement service; only ``placement-manage db adopt`` may change them."""

    template = (
        'The database already has tables that this service did not create ({tables}).'
        ' Adopt it with: placement-manage db adopt'
    )


class SchemaLocked(exception.PlacementError):
    template = 'Another process has been changing the schema for {seconds} seconds. Retry when it is done.'


class UnknownRevision(exception.PlacementError):
    template = 'There is no schema version {revision}. Known versions: {known}'


def sync(engine: sa.Engine) -> None:
    """Create the schema, or upgrade it to the newest version. Processes that do so at the same time wait for another.

    :raises ForeignSchema: there are tables but no version of ours.
    :raises UnknownRevision: the schema is that of a later release.
    :raises SchemaLocked: another process has been changing the schema for two minutes.
    :raises RetryRequest: a process on another node of a cluster is upgrading the schema, too.
    """
    with locked(engine) as connection:
        present = version_on(connection)
        if present is None:
            _reject_foreign_tables(connection)
            # Before the other tables: without it, tables that an interrupted attempt left would look like those of
            # another service.
            command.ensure_version(_config(connection))
        elif present == head():
            return
        else:
            _resolve(present)
        try:
            command.upgrade(_config(connection), 'head')
        except CommandError as error:
            if connection.dialect.name not in ('mysql', 'mariadb'):
                raise
            # No lock covers all nodes of a Galera cluster: a process on another node upgraded the database since.
            raise db_exc.RetryRequest(error) from error


def version(engine: sa.Engine) -> str | None:
    """Return the revision that is recorded in the database, None for a database without our schema."""
    with engine.connect() as connection:
        return version_on(connection)


def check(engine: sa.Engine) -> None:
    """Make sure that the schema is the one that this code was written for.

    :raises ForeignSchema: the tables are those of another Placement service.
    :raises WrongSchema: the database has another version, or none.
    """
    with engine.connect() as connection:
        present = version_on(connection)
        if present is None:
            _reject_foreign_tables(connection)
    if present != head():
        raise WrongSchema(present=present or 'none', head=head())


def head() -> str:
    """Return the newest revision that this code knows."""
    return _resolve('head')


def stamp(engine: sa.Engine, revision: str) -> None:
    """Record ``revision`` as the version of the schema, without changing anything else.

    :raises UnknownRevision: no such revision.
    :raises ForeignSchema: the tables are those of another Placement service.
    :raises SchemaLocked: another process has been changing the schema for two minutes.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        if version_on(connection) is None:
            _reject_foreign_tables(connection, theirs_only=True)
        stamp_on(connection, target)


def stamp_on(connection: sa.Connection, revision: str) -> None:
    """Record ``revision`` as ``stamp`` does, without its checks.

    :param connection: from ``locked``.
    """
    command.stamp(_config(connection), revision)


@contextlib.contextmanager
def locked(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction for changes of the schema, and yield its connection; one process at a time can have it.

    On a Galera cluster that is one process for each node. On SQLite foreign keys are not checked in it.

    :raises SchemaLocked: MySQL and MariaDB: another process has had it for two minutes.
    """
    with engine.connect() as connection:
        connection.execution_options(**{connections.BEGIN: connections.WRITE_TESTED})
        with _named_lock(connection), sqlite.without_foreign_keys(connection), connection.begin():
            if connection.dialect.name == 'postgresql':
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK_ID)))
            # On SQLite the transaction itself holds the write lock of the whole file.
            yield connection


@contextlib.contextmanager
def _named_lock(connection: sa.Connection) -> Iterator[None]:
    """Hold a lock of MySQL that belongs to the connection, because MySQL commits at each change of the schema.

    It is released after the last commit, so that the next process sees the new version. Does nothing on others.
    """
    if connection.dialect.name not in ('mysql', 'mariadb'):
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
    made = config.Config()
    # ConfigParser would read a percent sign in the path as the start of an interpolation.
    made.set_main_option('script_location', str(SCRIPTS).replace('%', '%%'))
    made.set_main_option('path_separator', 'os')
    made.attributes['connection'] = connection
    return made


def _resolve(revision: str) -> str:
    scripts = script.ScriptDirectory.from_config(_config())
    try:
        found = scripts.get_revision(revision)
    except CommandError:
        found = None
    if found is None:
        known = ', '.join(reversed([known.revision for known in scripts.walk_revisions()]))
        raise UnknownRevision(revision=revision, known=known)
    return found.revision


def version_on(connection: sa.Connection) -> str | None:
    """Return the version that ``version`` returns, on a connection of the caller."""
    context = migration.MigrationContext.configure(connection, opts={'version_table': VERSION_TABLE})
    return context.get_current_revision()


def _reject_foreign_tables(connection: sa.Connection, theirs_only: bool = False) -> None:
    present = set(sa.inspect(connection).get_table_names())
    foreign = sorted(present & (tables.FOREIGN if theirs_only else tables.FOREIGN | set(tables.metadata.tables)))
    # A version table without a version: a process on another node of a cluster is creating the schema.
    if foreign and VERSION_TABLE not in present:
        raise ForeignSchema(tables=', '.join(foreign))
