"""Database servers for the tests: found through the environment, each test in a database of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tools import nodes

_LOCAL = {
    'postgresql': 'postgresql+psycopg://postgres@127.0.0.1/postgres',
    'mariadb': f'mysql+pymysql://root@127.0.0.1/?{nodes.WITHOUT_TLS}',
}

#: Variable of the environment that is set while the tests of MariaDB run on MySQL (``pytest -m mysql``).
ON_MYSQL = 'PLACEMENT_TEST_ON_MYSQL'

_ISOLATION_LEVELS = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')


@dataclasses.dataclass(frozen=True)
class Setting:
    """A database server, the statement that is run, or set, for each of its sessions, and a driver other than usual."""

    server: str
    name: str
    isolation: str | None = None
    statement: str | None = None
    driver: str | None = None

    def session_url(self, url: sa.URL) -> str:
        """``url`` with this setting for every connection that is made with it."""
        if self.isolation and self.server == 'postgresql':
            level = self.isolation.lower().replace(' ', '\\ ')
            url = url.update_query_dict({'options': f'-c default_transaction_isolation={level}'})
        elif self.statement:
            url = url.update_query_dict({'init_command': self.statement})
        return url.render_as_string(hide_password=False)


def on_mysql() -> bool:
    """Whether the tests of MariaDB run on MySQL."""
    return ON_MYSQL in os.environ


def settings() -> list[Setting]:
    """Every server at every isolation level, and the snapshot isolation that MariaDB has and MySQL does not."""
    chosen = [Setting('postgresql', level.lower().replace(' ', '-'), isolation=level) for level in _ISOLATION_LEVELS]
    chosen += [
        Setting('mariadb', level.lower().replace(' ', '-'), level, f'SET SESSION TRANSACTION ISOLATION LEVEL {level}')
        for level in _ISOLATION_LEVELS
    ]
    if not on_mysql():
        chosen.append(Setting('mariadb', 'snapshot', None, 'SET SESSION innodb_snapshot_isolation=ON'))
    return chosen


def defaults() -> list[Setting]:
    """Every server with its own default isolation level."""
    return [Setting('postgresql', 'default'), Setting('mariadb', 'default')]


def mysqlclient() -> Setting:
    """MariaDB through mysqlclient, a driver in C, for the tests of what is sent to the server and what it answers."""
    return Setting('mariadb', 'mysqlclient', driver='mysql+mysqldb')


def parameters(*chosen: Setting) -> list[object]:
    """The settings as parameters of a test, marked with the server that they need."""
    marks = {setting.server: getattr(pytest.mark, setting.server) for setting in chosen if setting.server != 'sqlite'}
    return [
        pytest.param(setting, marks=marks.get(setting.server, ()), id=f'{setting.server}-{setting.name}')
        for setting in chosen
    ]


def on(*chosen: Setting) -> pytest.MarkDecorator:
    """Run a test, or those of a module, in these settings."""
    return pytest.mark.parametrize('setting', parameters(*chosen), indirect=True)


#: On SQLite a test runs without any server.
SQLITE = Setting('sqlite', 'default')
EVERYWHERE = on(SQLITE, *defaults())
ON_EACH = on(*defaults())
ON_MARIADB = on(defaults()[1])


def server_url(server: str, driver: str | None = None) -> sa.URL:
    """The administrator's URL of ``postgresql`` or ``mariadb``, from the environment or the local one."""
    url = sa.make_url(os.environ.get(f'PLACEMENT_TEST_{server.upper()}_URL', _LOCAL[server]))
    # Parameters are those of the usual driver.
    return url.set(drivername=driver, query={}) if driver else url


@contextlib.contextmanager
def fresh(url: sa.URL, options: str = '') -> Iterator[sa.URL]:
    """The URL of a new, empty database on the server at ``url``, dropped at the end.

    :param options: the end of its CREATE DATABASE; by default, for every character on MariaDB.
    """
    name = f'placement_test_{uuid.uuid4().hex[:12]}'
    postgresql = url.get_backend_name() == 'postgresql'
    execute(url, f'CREATE DATABASE {name} {options or ("" if postgresql else "CHARACTER SET utf8mb4")}')
    try:
        yield url.set(database=name)
    finally:
        execute(url, f'DROP DATABASE {name}' + (' WITH (FORCE)' if postgresql else ''))


def recreate(database: sa.URL) -> None:
    """Drop and create a database, to whose server an administrator can connect, with the same name."""
    server = server_url('postgresql' if database.get_backend_name() == 'postgresql' else 'mariadb')
    execute(server, f'DROP DATABASE {database.database}')
    execute(server, f'CREATE DATABASE {database.database}')


@contextlib.contextmanager
def empty(server: str, directory: pathlib.Path, driver: str | None = None) -> Iterator[sa.URL]:
    """The URL of a new, empty database, which on SQLite is a file in ``directory``."""
    if server == 'sqlite':
        yield sa.make_url(f'sqlite:///{directory}/placement.sqlite')
        return
    with fresh(server_url(server, driver)) as url:
        yield url


def execute(url: sa.URL, statement: str) -> None:
    """Run one statement outside of a transaction."""
    engine = sa.create_engine(url, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(statement))


def other_sessions(connection: sa.Connection) -> dict[int, str]:
    """The sessions on the database of ``connection``, but for its own: id, and command (MariaDB) or state."""
    query = 'SELECT id, command FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()'
    if connection.dialect.name == 'postgresql':
        query = 'SELECT pid, state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()'
    return {row[0]: row[1] for row in connection.exec_driver_sql(query)}


def has_other_sessions(database: sa.URL) -> bool:
    """Whether any session is on this database."""
    engine = sa.create_engine(database, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT')
    with engine.connect() as connection:
        return bool(other_sessions(connection))


def end_connections(database: sa.URL) -> None:
    """Make the server end all connections to this database."""
    engine = sa.create_engine(database, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT')
    with engine.connect() as connection:
        if engine.dialect.name == 'postgresql':
            connection.exec_driver_sql(
                'SELECT pg_terminate_backend(pid) FROM pg_stat_activity'
                ' WHERE datname = current_database() AND pid <> pg_backend_pid()'
            )
            return
        for id_ in other_sessions(connection):
            connection.exec_driver_sql(f'KILL {id_}')
