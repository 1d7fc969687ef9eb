"""The schema on each database: its creation, and upgrades of the first release.

``schema_001`` has the statements that create revision 001. They do not change with ``placement.db.tables``, so the
upgrade shows whether the migrations lead to the tables that are declared there. ``migrations`` has those of a release
that does not exist, for the rules that each migration has to follow.
"""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import autogenerate
from alembic.migration import MigrationContext

from placement.cmd import manage, status
from placement.db import migration, sql, tables
from tests.support import applications, corruption, databases
from tests.support.event_hooks import listening
from tests.support.fixtures import PointCommandsAt
from tests.support.http_client import claim_body, send_request

FIRST = pathlib.Path(__file__).parent / 'schema_001'
NEXT_RELEASE = pathlib.Path(__file__).parent / 'migrations'


@pytest.fixture
def engine(setting: databases.Setting, tmp_path: pathlib.Path) -> Iterator[sa.Engine]:
    """An engine on an empty database."""
    with databases.empty(setting.server, tmp_path) as url:
        engine = sa.create_engine(url)
        yield engine
        engine.dispose()


def differences(engine: sa.Engine) -> list[Any]:
    """Return how the schema of the database differs from the declared tables."""
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={'version_table': migration.VERSION_TABLE, 'compare_server_default': True}
        )
        return list(autogenerate.compare_metadata(context, tables.metadata))


def create_first(engine: sa.Engine) -> None:
    """Create the schema of revision 001 in an empty database."""
    name = 'mysql' if sql.is_mysql(engine.dialect) else engine.dialect.name
    text = (FIRST / f'{name}.sql').read_text()
    with engine.begin() as connection:
        if getattr(engine.dialect, 'is_mariadb', False):
            # The only difference between the schemas on MySQL and MariaDB.
            text = text.replace('utf8mb4_0900_bin', 'utf8mb4_nopad_bin')
        for statement in text.split(';\n'):
            if statement.strip():
                connection.exec_driver_sql(statement)


@databases.ON_EACH
def test_sync_creates_what_the_tables_declare_and_leaves_one_revision(engine: sa.Engine) -> None:
    migration.sync(engine)
    assert differences(engine) == []
    # On Galera a process may record a revision when another node's has made the schema and all upgrades.
    corruption.plant(engine.url, f"INSERT INTO {migration.VERSION_TABLE} VALUES ('000')")
    migration.check_revision(engine)
    migration.sync(engine)
    assert differences(engine) == []
    assert corruption.column(engine.url, f'SELECT version_num FROM {migration.VERSION_TABLE}') == [migration.head()]


@databases.ON_EACH
def test_an_interrupted_creation_is_finished_by_another_process(engine: sa.Engine) -> None:
    """MySQL commits each change of the schema."""
    migration.sync(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(f'DELETE FROM {migration.VERSION_TABLE}')
        connection.exec_driver_sql('DELETE FROM placement_resource_class_sequence')
        tables.change_log.drop(connection)
        tables.resource_provider_traits.drop(connection)
        next(index for index in tables.allocations.indexes if 'owner' in str(index.name)).drop(connection)
    migration.sync(engine)
    assert migration.recorded_revision(engine) == migration.head()
    assert differences(engine) == []
    last = tables.FIRST_CUSTOM_CLASS_ID - 1
    assert corruption.column(engine.url, 'SELECT last FROM placement_resource_class_sequence') == [last]


@databases.ON_MARIADB
def test_a_row_that_ends_too_early_is_read_again(engine: sa.Engine) -> None:
    """A change of the schema on another node of Galera interrupts a statement on this one in the middle of a row."""
    interrupted: list[str] = []

    def interrupt(_connection: Any, cursor: Any, statement: str, *_arguments: Any) -> None:
        if statement.startswith('SHOW CREATE TABLE') and not interrupted:
            interrupted.append(statement)
            # The rest of the response stays unread, as in the middle of a row.
            cursor.connection._execute_command(3, statement)
            raise AssertionError('Result length not requested length')

    with listening(sa.Engine, 'before_cursor_execute', interrupt), applications.database(engine.url) as db:
        db.sync()
    assert interrupted
    assert migration.recorded_revision(engine) == migration.head()


@databases.ON_MARIADB
def test_mariadb_in_the_url_creates_the_same_schema_and_translates_errors(engine: sa.Engine) -> None:
    with applications.application(engine.url.set(drivername='mariadb+pymysql')) as app:
        body = {'name': 'host', 'uuid': corruption.ROOT}
        statuses = [send_request(app, 'POST', '/resource_providers', body).status_int for _ in range(2)]
    assert statuses == [200, 409]
    assert differences(engine) == []


@pytest.mark.postgresql
def test_an_encoding_that_lacks_characters_is_refused(
    point_commands_at: PointCommandsAt, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the statement that creates a right database."""
    options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with databases.fresh(databases.server_url('postgresql'), options) as url:
        point_commands_at(url)
        for command in (['db', 'sync'], ['db', 'adopt'], ['audit']):
            assert manage.main(command) == manage.FAILED
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(
                f'placement-manage: The encoding of the database {url.database} is LATIN1, not UTF8.'
            )
        assert status.main(['upgrade', 'check', '--json']) == status.FAILED
        checks = {check['check']: check for check in json.loads(capsys.readouterr().out)['checks']}
        assert (checks['Schema']['result'], checks['Schema']['details']) == (2, line.partition(': ')[2])
        statement = line[line.index('CREATE DATABASE ') :]
        databases.execute(url, statement)
        right = url.set(database=f'{url.database}_utf8')
        try:
            point_commands_at(right)
            assert manage.main(['db', 'sync']) == 0
        finally:
            databases.execute(url, f'DROP DATABASE {right.database} WITH (FORCE)')


@databases.EVERYWHERE
def test_the_schema_of_the_first_release_is_upgraded_to_the_declared_tables(engine: sa.Engine) -> None:
    create_first(engine)
    assert migration.recorded_revision(engine) == '001'
    corruption.plant(engine.url, *corruption.SOUND)
    migration.sync(engine)
    assert migration.recorded_revision(engine) == migration.head()
    assert differences(engine) == []


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Make a release that has two more migrations of this one."""
    scripts = tmp_path / 'migrations'
    shutil.copytree(migration.SCRIPTS, scripts)
    shutil.copytree(NEXT_RELEASE, scripts / 'versions', dirs_exist_ok=True)
    monkeypatch.setattr(migration, 'SCRIPTS', scripts)


@databases.EVERYWHERE
@pytest.mark.usefixtures('next_release')
def test_rows_are_copied_while_clients_read_and_claim(engine: sa.Engine) -> None:
    """A lock that lasted from the change of the table to the end of the copy would be a 503 or a 409 here."""
    create_first(engine)
    rows = ', '.join(f"(1, 'consumer-{number}', 0, 1)" for number in range(2500))
    corruption.plant(
        engine.url,
        *corruption.SOUND,
        'UPDATE placement_inventories SET total = 9999, used = 2502 WHERE id = 1',
        f'INSERT INTO placement_allocations (resource_provider_id, consumer_id, resource_class_id, used) VALUES {rows}',
    )
    statuses: list[int] = []

    def work(app: Any) -> None:
        """Read and claim as clients do, once for each batch. SQLite has one writer at a time."""
        paths = (f'/allocations/{corruption.HOLDER}', f'/resource_providers/{corruption.ROOT}/usages')
        requests: list[tuple[Any, ...]] = [
            ('GET', path) for path in (*paths, '/allocation_candidates?resources=VCPU:1')
        ]
        if engine.dialect.name != 'sqlite':
            requests += [('PUT', f'/allocations/{uuid.uuid4()}', claim_body({corruption.ROOT: {'VCPU': 1}}))]
        statuses.extend(send_request(app, *request).status_int for request in requests)

    options = {'sync_on_startup': False, 'lock_wait_timeout': 1, 'max_transaction_retries': 0}
    with (
        applications.database(engine.url) as db,
        applications.application(engine.url, placement_database=options) as app,
    ):
        db.insert_standard_names()

        def copied(_connection: Any, _cursor: Any, statement: str, *_arguments: Any) -> None:
            if statement.startswith('UPDATE placement_allocations SET note'):
                work(app)

        with listening(sa.Engine, 'after_cursor_execute', copied):
            db.sync()
    assert migration.recorded_revision(engine) == '003'
    # There are three batches.
    expected = [200, 200, 200] if engine.dialect.name == 'sqlite' else [200, 200, 200, 204]
    assert statuses == expected * 3
    # Claims of the previous release leave the column NULL. That of the last batch came too late.
    unfilled = corruption.column(engine.url, 'SELECT COUNT(*) FROM placement_allocations WHERE note IS NULL')
    assert unfilled == [0 if engine.dialect.name == 'sqlite' else 1]


@databases.ON_EACH
@pytest.mark.usefixtures('next_release')
def test_ten_processes_upgrade_the_schema_at_once(engine: sa.Engine) -> None:
    create_first(engine)
    corruption.plant(engine.url, *corruption.SOUND)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(migration.sync, [engine] * 10))
    assert migration.recorded_revision(engine) == migration.head() == '003'
    assert corruption.column(engine.url, 'SELECT note FROM placement_allocations') == [2]
