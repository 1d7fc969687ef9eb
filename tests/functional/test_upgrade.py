"""Upgrades of the schema during which no process of an earlier release may run."""

from __future__ import annotations

import pathlib
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
import webob
from oslo_config import cfg

from placement import deploy
from placement.cmd import manage
from placement.db import migration, tables
from tests.support import applications
from tests.support.fixtures import PointCommandsAt
from tests.support.http_client import ask


@pytest.fixture
def url(conf: cfg.ConfigOpts, point_commands_at: PointCommandsAt) -> str:
    """A database at version 001; applications and commands that the test runs use it."""
    found = point_commands_at(conf.placement_database.connection)
    with applications.database(found) as db:
        migration.sync(db.engine, '001')
    return found


def test_a_start_does_not_upgrade_the_schema(conf: cfg.ConfigOpts, url: str) -> None:
    """Otherwise the first new process of a rolling restart would upgrade it while the old ones run."""
    with pytest.raises(migration.StopOthers) as refused:
        deploy.loadapp(conf)
    assert str(refused.value) == (
        'The schema of the database is at version 001. Processes of the release that made it must not write any more'
        ' once it is upgraded, as others would not notice. Stop all of them, then run: placement-manage db sync'
    )
    with applications.database(url) as db:
        assert db.schema_version() == '001'


def test_a_start_does_not_replace_the_log_that_others_write(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    """Processes of the release before would not find its tables."""
    with applications.database(tmp_path / 'placement.sqlite') as db:
        migration.sync(db.engine, '004')
        with pytest.raises(migration.StopOthers):
            deploy.loadapp(conf)
        assert {'writers', 'changes'} <= set(sa.inspect(db.engine).get_table_names())
        db.sync(attended=True)
        present = set(sa.inspect(db.engine).get_table_names())
        assert not {'writers', 'changes'} & present
        assert {table.name for table in tables.LOG} <= present
        migration.downgrade(db.engine, '004')
        migration.sync(db.engine)
    deploy.loadapp(conf).db.dispose()


def test_db_sync_upgrades_the_schema(conf: cfg.ConfigOpts, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(['db', 'sync']) == 0
    assert f'at version {migration.head()},' in capsys.readouterr().out
    deploy.loadapp(conf).db.dispose()


def test_the_version_of_the_tables_is_that_of_the_newest_migration() -> None:
    assert migration.head() == tables.VERSION


def test_a_process_of_another_release_does_not_begin_to_write(app: Any) -> None:
    """A process that has slots of the change log goes on, until it needs another one."""

    def create() -> webob.Response:
        return ask(app, 'POST', '/resource_providers', {'name': str(uuid.uuid4())}, '1.0')

    assert create().status_code == 201
    with app.db.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE placement_alembic_version SET version_num = '999'")
    assert create().status_code == 201
    with app.db.engine.begin() as connection:
        connection.execute(tables.change_log_slots.update().values(sequence=77))
    assert create().status_code == 503
    with app.db.reader() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(tables.resource_providers)) == 2


def test_a_schema_of_a_later_release_is_not_upgraded(tmp_path: pathlib.Path) -> None:
    """The error names the version, and does not ask to stop other processes."""
    with applications.database(tmp_path / 'placement.sqlite') as db:
        db.sync()
        with db.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE placement_alembic_version SET version_num = '999'")
        with pytest.raises(Exception, match='999'):
            db.sync()


def test_a_compatible_upgrade_needs_no_stop_of_other_processes(tmp_path: pathlib.Path) -> None:
    """Processes of the release before may go on, since the newer one can read what they write."""
    with applications.database(tmp_path / 'placement.sqlite') as db:
        migration.sync(db.engine, '002')
        migration.sync(db.engine, '003', others=migration.Others.UNKNOWN)
        assert db.schema_version() == '003'
