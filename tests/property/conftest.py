"""Fixtures of the tests on generated input."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import applications
from tests.support.fixtures import app, conf, context, db, point_commands_at, queries
from tests.support.hostile_client import World

__all__ = ['app', 'conf', 'context', 'db', 'point_commands_at', 'queries']


@pytest.fixture(scope='module')
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An application with a database of its own, for hostile requests; one for all tests of a module."""
    database = tmp_path_factory.mktemp('hostile') / 'placement.sqlite'
    with applications.application(database, placement={'max_microversion': '1.39'}) as app:
        world = World(app, str(database))
        yield world
        world.close()
