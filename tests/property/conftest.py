"""Fixtures of the tests on generated input."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import applications
from tests.support.fixtures import app, conf, context, db, point_commands_at, queries
from tests.support.raw_client import Topology

__all__ = ['app', 'conf', 'context', 'db', 'point_commands_at', 'queries']


@pytest.fixture(scope='module')
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """An application with a database of its own, for malformed requests; one for all tests of a module."""
    database = tmp_path_factory.mktemp('malformed') / 'placement.sqlite'
    with applications.application(database, placement=applications.EVERY_MICROVERSION) as app:
        topology = Topology(app, str(database))
        yield topology
        topology.close()
