"""Fixtures of the tests on generated input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from placement import conf as placement_conf
from placement import deploy
from tests.support.fixtures import app, conf, context, db, queries
from tests.support.hostile_client import World

__all__ = ['app', 'conf', 'context', 'db', 'queries']


@pytest.fixture(scope='module')
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An application with a database of its own, for hostile requests; one for all tests of a module."""
    database = tmp_path_factory.mktemp('hostile') / 'placement.sqlite'
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': f'sqlite:///{database}', 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    app = deploy.loadapp(placement_conf.load(environ={}, overrides=overrides))
    world = World(app, str(database))
    yield world
    world.close()
    app.db.dispose()
