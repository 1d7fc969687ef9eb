"""The schema at the start of a process."""

from __future__ import annotations

import pathlib

import pytest
from oslo_config import cfg

from placement import deploy
from placement.db import migration
from tests.support import applications


def test_a_start_creates_the_schema(conf: cfg.ConfigOpts) -> None:
    deploy.loadapp(conf).db.dispose()
    with applications.database(conf.placement_database.connection) as db:
        assert migration.recorded_revision(db.engine) == migration.head()


def test_a_schema_of_a_later_release_is_not_upgraded(tmp_path: pathlib.Path) -> None:
    with applications.database(tmp_path / 'placement.sqlite') as db:
        db.sync()
        with db.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE placement_alembic_version SET version_num = '999'")
        with pytest.raises(migration.UnknownRevision, match='999'):
            db.sync()
