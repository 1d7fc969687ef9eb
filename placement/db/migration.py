"""The versions of the schema: upgrade a database, read which version it has, or record one.

The version is in a table of our own, so an adopted database keeps the version table of the service that made it.
"""

from __future__ import annotations

import contextlib
import enum
import pathlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import command, config, migration, script
from alembic.operations import Operations
from alembic.util import CommandError
from oslo_db import exception as db_exc

from placement import exception
from placement.db import connections, sessions, sqlite, tables

VERSION_TABLE = tables.VERSION_TABLE
_SCRIPTS = pathlib.Path(__file__).parent / 'migrations'
#: The number (PostgreSQL) and the name (MySQL) of the advisory lock that a process holds while it changes the schema.
_LOCK_NUMBER = 0x706C6163
_LOCK_NAME = 'placement_schema'
_LOCK_SECONDS = 120

#: Versions to which a database may be upgraded only when no process of an earlier release runs any more: that would not
#: write the change log (002) or not in its present form (005), or would not find the tables (004).
_OTHERS_STOPPED = frozenset({'002', '004', '005'})


class WrongSchema(exception.PlacementError):
    template = (
        'The schema of the database is at version {present}, not {head}. Upgrade it with: placement-manage db sync'
    )


class ForeignSchema(WrongSchema):
    """The tables were made by another Placement service; only ``placement-manage db adopt`` may change them."""

    template = (
        'The database already holds tables that this service did not create ({tables}).'
        ' Take it over with: placement-manage db adopt'
    )


class SchemaLocked(exception.PlacementError):
    template = 'Another process has been changing the schema for {seconds} seconds. Try again when it is done.'


class StopOthers(exception.PlacementError):
    """Processes of an earlier release may still run, which must not write to the upgraded database."""

    template = (
        'The schema of the database is at version {present}. Processes of the release that made it must not write any'
        ' more once it is upgraded, as others would not notice{found}. Stop all of them, then run:'
        ' placement-manage db sync{option}'
    )


class UnknownRevision(exception.PlacementError):
    template = 'There is no schema version {revision}. Known versions: {known}'


class Others(enum.Enum):
    """What is known of processes of an earlier release, for an upgrade that needs them to be stopped."""

    #: Nothing, as this is the start of a process: do not upgrade.
    UNKNOWN = 'unknown'
    #: A person says that they are stopped: upgrade unless there are other connections.
    LOOK = 'look'
    #: A person says that they are stopped, and that other connections are of something else: upgrade.
    STOPPED = 'stopped'


def sync(engine: sa.Engine, revision: str = 'head', others: Others = Others.LOOK) -> None:
    """Upgrade the schema to ``revision``. Processes that do this at the same time wait for one another.

    :param others: matters only where the upgrade needs processes of an earlier release to be stopped.
    :raises ForeignSchema: there are tables but no version of ours.
    :raises UnknownRevision: no such revision.
    :raises StopOthers: processes of an earlier release may still run.
    :raises SchemaLocked: another process has been changing the schema for two minutes.
    :raises RetryRequest: a process on another node of a cluster is upgrading the schema, too.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        present = version_on(connection)
        if present is None:
            _refuse_foreign_tables(connection)
            _create(connection, target)
        elif present != target:
            if _OTHERS_STOPPED & set(_between(present, target)):
                _require_others_stopped(connection, present, others)
            _upgrade(connection, target)


def _create(connection: sa.Connection, target: str) -> None:
    """Create the tables in an empty database, and only then record the version.

    No lock holds on all nodes of a Galera cluster, so several processes may do this at the same time. Therefore tables
    that exist are left alone, and no version is recorded before all tables exist: another process would take it for
    that of an earlier release. Only one process can record it; the others fail and try again.
    """
    # Before the other tables: without it, tables that an interrupted attempt left would look like those of another
    # service.
    version_num = sa.Column('version_num', sa.String(32), nullable=False)
    primary_key = sa.PrimaryKeyConstraint('version_num', name=f'{VERSION_TABLE}_pkc')
    sa.Table(VERSION_TABLE, sa.MetaData(), version_num, primary_key).create(connection, checkfirst=True)
    if target == head():
        tables.create(connection)
    else:
        _run_migrations(connection, target)
    stamp_on(connection, target)


def _run_migrations(connection: sa.Connection, target: str) -> None:
    """Run the migrations up to ``target`` without recording their versions."""
    migrations = script.ScriptDirectory.from_config(_config()).iterate_revisions(target, 'base')
    with Operations.context(migration.MigrationContext.configure(connection)):
        for one in reversed(list(migrations)):
            one.module.upgrade()


def _upgrade(connection: sa.Connection, target: str) -> None:
    try:
        command.upgrade(_config(connection), target)
    except CommandError as error:
        if connection.dialect.name not in ('mysql', 'mariadb'):
            raise
        # A process on another node of a cluster has upgraded the database since its version was read.
        raise db_exc.RetryRequest(error) from error


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Downgrade the schema to ``revision``; ``base`` drops all tables.

    :raises UnknownRevision: no such revision.
    :raises SchemaLocked: another process has been changing the schema for two minutes.
    """
    target = revision if revision == 'base' else _resolve(revision)
    with locked(engine) as connection:
        command.downgrade(_config(connection), target)


def version(engine: sa.Engine) -> str | None:
    """The revision that is recorded in the database, None for a database without our schema."""
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
            _refuse_foreign_tables(connection)
    if present != head():
        raise WrongSchema(present=present or 'none', head=head())


def head() -> str:
    """The newest revision that this code knows."""
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
            _refuse_foreign_tables(connection, theirs_only=True)
        stamp_on(connection, target)


def stamp_on(connection: sa.Connection, revision: str) -> None:
    """As ``stamp``, without its checks.

    :param connection: from ``locked``.
    """
    command.stamp(_config(connection), revision)


@contextlib.contextmanager
def locked(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection in a transaction for changes of the schema, which one process at a time can have.

    On a Galera cluster that is one process for each node. On SQLite foreign keys are not checked in it.

    :raises SchemaLocked: MySQL and MariaDB: another process has had it for two minutes.
    """
    with engine.connect() as connection:
        connection.execution_options(**{connections.BEGIN: connections.WRITE_TESTED})
        with _named_lock(connection), sqlite.without_foreign_keys(connection), connection.begin():
            if connection.dialect.name == 'postgresql':
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
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
    """As ``version``, on a connection of the caller."""
    context = migration.MigrationContext.configure(connection, opts={'version_table': VERSION_TABLE})
    return context.get_current_revision()


def _between(present: str, target: str) -> list[str]:
    """The revisions after ``present`` up to ``target``; none when ``present`` is not known."""
    scripts = script.ScriptDirectory.from_config(_config())
    known = {one.revision for one in scripts.walk_revisions()}
    if present not in known:
        return []
    return [one.revision for one in scripts.iterate_revisions(target, present)]


def _require_others_stopped(connection: sa.Connection, present: str, others: Others) -> None:
    if others is Others.STOPPED:
        return
    if others is Others.UNKNOWN:
        raise StopOthers(present=present, found='', option='')
    # Processes that want to upgrade, too, wait for our lock within three seconds, and then are not counted.
    count = len(sessions.staying(connection, own=True))
    if count:
        found = f', and {count} other connections of this account are open'
        option = ' (with --others-are-stopped if these are of something else)'
        raise StopOthers(present=present, found=found, option=option)


def _refuse_foreign_tables(connection: sa.Connection, theirs_only: bool = False) -> None:
    present = set(sa.inspect(connection).get_table_names())
    foreign = sorted(present & (tables.FOREIGN if theirs_only else tables.FOREIGN | set(tables.metadata.tables)))
    # A version table without a version: a process on another node of a cluster is creating the schema.
    if foreign and VERSION_TABLE not in present:
        raise ForeignSchema(tables=', '.join(foreign))
