"""The schema's versions: bring a database to the newest, tell which it has, or declare one.

The version is kept in a table of our own, so that a database taken over from another deployment keeps its history.
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
from placement.db import company, sqlite, tables

VERSION_TABLE = tables.VERSION_TABLE
_SCRIPTS = pathlib.Path(__file__).parent / 'migrations'
#: Any number and name, the same in every process: what the database's advisory lock is taken on.
_LOCK_NUMBER = 0x706C6163
_LOCK_NAME = 'placement_schema'
_LOCK_SECONDS = 120

#: Versions that bring what a process of an earlier release would leave out when it writes: it must have ended before.
#: 002: the log of changes. 004: names of tables, without which it does not find them.
_ALONE = frozenset({'002', '004'})


class WrongSchema(exception.PlacementError):
    template = (
        'The schema of the database is at version {present}, not {head}. Upgrade it with: placement-manage db sync'
    )


class ForeignSchema(WrongSchema):
    """The tables were made by somebody else; only ``placement-manage db adopt`` may change them."""

    template = (
        'The database already holds tables that this service did not create ({tables}).'
        ' Take it over with: placement-manage db adopt'
    )


class SchemaLocked(exception.PlacementError):
    template = 'Another process has been changing the schema for {seconds} seconds. Try again when it is done.'


class StopOthers(exception.PlacementError):
    """Processes of an earlier release may still run, and would go on writing in their own way."""

    template = (
        'The schema of the database is at version {present}. Processes of the release that made it must not write any'
        ' more once it is upgraded, as others would not notice{found}. Stop all of them, then run:'
        ' placement-manage db sync{option}'
    )


class UnknownRevision(exception.PlacementError):
    template = 'There is no schema version {revision}. Known versions: {known}'


class Others(enum.Enum):
    """What to do about processes of an earlier release that may still run, where the upgrade must not meet any."""

    #: Nobody has looked after them: do not upgrade.
    UNKNOWN = 'unknown'
    #: Somebody has, so upgrade unless there are other connections.
    LOOK = 'look'
    #: Somebody has, and knows what other connections are.
    STOPPED = 'stopped'


def sync(engine: sa.Engine, revision: str = 'head', others: Others = Others.LOOK) -> None:
    """Upgrade the schema to ``revision``. Processes that do this at once wait for each other.

    :raises ForeignSchema: there are tables but no version of ours.
    :raises UnknownRevision: no such revision.
    :raises StopOthers: processes of an earlier release may still run, and would do harm.
    :raises RetryRequest: another node of a cluster is doing the same.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        present = version_on(connection)
        if present is None:
            _refuse_foreign_tables(connection)
            _create(connection, target)
        elif present != target:
            if _ALONE & set(_between(present, target)):
                _refuse_company(connection, present, others)
            _upgrade(connection, target)


def _create(connection: sa.Connection, target: str) -> None:
    """Make the tables in an empty database, and only then record the version.

    The nodes of a Galera cluster know no lock in common. Each may do the same at once, so what is there already is left
    alone; one that loses a race tries again. None of them sees a version on the way, which would look like that of an
    earlier release; and all but one fail to record it.
    """
    # First, so that what an attempt leaves that was cut short is not taken for the tables of somebody else.
    version_num = sa.Column('version_num', sa.String(32), nullable=False)
    primary_key = sa.PrimaryKeyConstraint('version_num', name=f'{VERSION_TABLE}_pkc')
    sa.Table(VERSION_TABLE, sa.MetaData(), version_num, primary_key).create(connection, checkfirst=True)
    if target == head():
        tables.create(connection)
    else:
        _take_steps(connection, target)
    stamp_on(connection, target)


def _take_steps(connection: sa.Connection, target: str) -> None:
    """Make an earlier version, in the steps in which it came to be."""
    steps = script.ScriptDirectory.from_config(_config()).iterate_revisions(target, 'base')
    with Operations.context(migration.MigrationContext.configure(connection)):
        for step in reversed(list(steps)):
            step.module.upgrade()


def _upgrade(connection: sa.Connection, target: str) -> None:
    try:
        command.upgrade(_config(connection), target)
    except CommandError as error:
        if connection.dialect.name not in ('mysql', 'mariadb'):
            raise
        # Another node of a cluster has moved the version on since we looked.
        raise db_exc.RetryRequest(error) from error


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


def check(engine: sa.Engine) -> None:
    """Make sure that the schema is the one that this code was written for.

    :raises ForeignSchema: the tables are those of another deployment.
    :raises WrongSchema: it is any other.
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
    """Declare that the database has ``revision`` without changing anything else.

    :raises UnknownRevision: no such revision.
    :raises ForeignSchema: the tables are those of another deployment.
    """
    target = _resolve(revision)
    with locked(engine) as connection:
        if version_on(connection) is None:
            _refuse_foreign_tables(connection, theirs_only=True)
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


def _between(present: str, target: str) -> list[str]:
    """The revisions that lead from one to the other, none when ``present`` is not an earlier one."""
    scripts = script.ScriptDirectory.from_config(_config())
    known = {one.revision for one in scripts.walk_revisions()}
    if present not in known:
        return []
    return [one.revision for one in scripts.iterate_revisions(target, present)]


def _refuse_company(connection: sa.Connection, present: str, others: Others) -> None:
    if others is Others.STOPPED:
        return
    if others is Others.UNKNOWN:
        raise StopOthers(present=present, found='', option='')
    # Others that upgrade at the same time come to wait for us in a moment, and do not count then.
    count = len(company.staying(connection, own=True))
    if count:
        found = f', and {count} other connections of this account are open'
        option = ' (with --others-are-stopped if these are of something else)'
        raise StopOthers(present=present, found=found, option=option)


def _refuse_foreign_tables(connection: sa.Connection, theirs_only: bool = False) -> None:
    present = set(sa.inspect(connection).get_table_names())
    foreign = sorted(present & (tables.FOREIGN if theirs_only else tables.FOREIGN | set(tables.metadata.tables)))
    # With a table of versions but no version in it, another node of a cluster is creating the schema right now.
    if foreign and VERSION_TABLE not in present:
        raise ForeignSchema(tables=', '.join(foreign))
