"""The schema's versions: bring a database to the newest, tell which it has, or declare one.

The version is kept in a table of our own, so that a database taken over from another deployment keeps its history.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import command, config, migration, script
from alembic.util import CommandError

from placement import exception
from placement.db import sqlite, tables

VERSION_TABLE = 'placement_alembic_version'
_SCRIPTS = pathlib.Path(__file__).parent / 'migrations'
#: Any number and name, the same in every process: what the database's advisory lock is taken on.
_LOCK_NUMBER = 0x706C6163
_LOCK_NAME = 'placement_schema'
_LOCK_SECONDS = 120


class ForeignSchema(exception.PlacementError):
    """The tables were made by somebody else; only ``placement-manage db adopt`` may change them."""

    template = (
        'The database already holds tables that this service did not create ({tables}).'
        ' Take it over with: placement-manage db adopt'
    )


class WrongSchema(exception.PlacementError):
    template = (
        'The schema of the database is at version {present}, not {head}. Upgrade it with: placement-manage db sync'
    )


class SchemaLocked(exception.PlacementError):
    template = 'Another process has been changing the schema for {seconds} seconds. Try again when it is done.'


class UnknownRevision(exception.PlacementError):
    template = 'There is no schema version {revision}. Known versions: {known}'


def sync(engine: sa.Engine, revision: str = 'head') -> None:
    """Upgrade the schema to ``revision``. Processes that do this at once wait for each other.

    :raises ForeignSchema: there are tables but no version of ours.
    :raises UnknownRevision: no such revision.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        present = version_on(connection)
        if present is None:
            _refuse_foreign_tables(connection)
        if present != target:
            command.upgrade(_config(connection), target)


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Take the schema back to ``revision``; ``base`` removes all tables and what is in them.

    :raises UnknownRevision: no such revision.
    """
    target = revision if revision == 'base' else _resolve(revision)
    with locked(engine) as connection:
        command.downgrade(_config(connection), target)


def version(engine: sa.Engine) -> str | None:
    """The revision that the database has, None for a database without our schema."""
    with engine.connect() as connection:
        return version_on(connection)


def head() -> str:
    """The newest revision that this code knows."""
    return _resolve('head')


def stamp(engine: sa.Engine, revision: str) -> None:
    """Declare that the database has ``revision`` without changing anything else.

    :raises UnknownRevision: no such revision.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        stamp_on(connection, target)


def stamp_on(connection: sa.Connection, revision: str) -> None:
    """As ``stamp``, in a transaction of the caller's that ``locked`` began."""
    command.stamp(_config(connection), revision)


@contextlib.contextmanager
def locked(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection in a transaction that no other process has at the same time, for changes of the schema.

    On SQLite no foreign keys are checked in it.
    """
    with engine.connect() as connection:
        connection.execution_options(**{sqlite.WRITES: True})
        with _named_lock(connection), sqlite.without_foreign_keys(connection), connection.begin():
            if connection.dialect.name == 'postgresql':
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
            # SQLite needs none: the transaction holds the write lock of the whole file.
            yield connection


@contextlib.contextmanager
def _named_lock(connection: sa.Connection) -> Iterator[None]:
    """MySQL commits at each statement that changes the schema, so its lock belongs to the connection.

    Held until after the last commit, so that whoever is next sees the version.
    """
    if connection.dialect.name not in ('mysql', 'mariadb'):
        yield
        return
    if connection.scalar(sa.select(sa.func.get_lock(_LOCK_NAME, _LOCK_SECONDS))) != 1:
        raise SchemaLocked(seconds=_LOCK_SECONDS)
    connection.commit()
    try:
        yield
    finally:
        connection.execute(sa.select(sa.func.release_lock(_LOCK_NAME)))
        connection.commit()


def _config(connection: sa.Connection | None = None) -> config.Config:
    made = config.Config()
    # ConfigParser would read a percent sign in the path as the start of an interpolation.
    made.set_main_option('script_location', str(_SCRIPTS).replace('%', '%%'))
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
    """As ``version``, in a transaction of the caller's."""
    context = migration.MigrationContext.configure(connection, opts={'version_table': VERSION_TABLE})
    return context.get_current_revision()


def _refuse_foreign_tables(connection: sa.Connection) -> None:
    present = set(sa.inspect(connection).get_table_names())
    foreign = sorted(present & set(tables.metadata.tables))
    # With a table of versions but no version in it, another node of a cluster is creating the schema right now.
    if foreign and VERSION_TABLE not in present:
        raise ForeignSchema(tables=', '.join(foreign))
