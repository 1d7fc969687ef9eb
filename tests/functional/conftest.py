"""Fixtures of the functional tests: an application on a database of its own, and what belongs to it."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from placement.db.api import Database
from tests.support import applications
from tests.support.fixtures import (
    PointCommandsAt,
    app,
    conf,
    context,
    db,
    failed,
    other_process,
    point_commands_at,
    printed,
    queries,
)

__all__ = ['app', 'conf', 'context', 'db', 'failed', 'other_process', 'point_commands_at', 'printed', 'queries']


@pytest.fixture
def every_microversion(conf: cfg.ConfigOpts) -> None:
    """Make the application serve all microversions."""
    conf.set_override('max_microversion', applications.NEWEST_MICROVERSION, group='placement')


@pytest.fixture
def url(conf: cfg.ConfigOpts, db: Database, point_commands_at: PointCommandsAt) -> str:
    """The URL of the application's database, which commands that the test runs use."""
    return point_commands_at(conf.placement_database.connection)
