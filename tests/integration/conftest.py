"""Fixtures of the integration tests: a database per setting, and servers on it."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from tests.integration import locking
from tests.support import applications, databases, logs, servers
from tests.support.fixtures import app, conf, context, db, failed, point_commands_at, printed, queries

__all__ = ['app', 'conf', 'context', 'db', 'failed', 'point_commands_at', 'printed', 'queries']


@pytest.fixture(scope='module')
def setting(request: pytest.FixtureRequest) -> databases.Setting:
    """The server and isolation level of a test; parametrize it with ``databases.on``."""
    chosen: databases.Setting = request.param
    return chosen


@pytest.fixture
def url(server: str, tmp_path: pathlib.Path) -> Iterator[sa.URL]:
    """The URL of a database with the schema; parametrize ``server`` with ``logs.SERVERS``."""
    with logs.fresh(server, tmp_path) as url:
        yield url


@pytest.fixture(scope='module')
def database(setting: databases.Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.URL]:
    """An empty database on the setting's server, without the setting."""
    with databases.empty(setting.server, tmp_path_factory.mktemp('database'), setting.driver) as url:
        yield url


@pytest.fixture(scope='module')
def load_application(
    setting: databases.Setting, database: sa.URL
) -> Iterator[Callable[[Mapping[str, Mapping[str, Any]]], Any]]:
    """Make WSGI applications on the setting's database, given more options; closed at the end."""
    with contextlib.ExitStack() as stack:

        def load(overrides: Mapping[str, Mapping[str, Any]]) -> Any:
            return stack.enter_context(applications.application(setting.session_url(database), **overrides))

        yield load


@pytest.fixture(scope='module')
def service(load_application: Callable[..., Any], database: sa.URL) -> Iterator[locking.Service]:
    """An application on the setting's database, with every microversion, and a session that makes its clients wait."""
    options = {'placement': applications.EVERY_MICROVERSION, 'placement_database': locking.LONG_WAITS}
    service = locking.Service(load_application(options), database)
    yield service
    service.close()


@pytest.fixture(scope='module')
def server(
    setting: databases.Setting, database: sa.URL, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    """Two workers of placement-api on the setting's database, shared by the tests of a module."""
    directory: pathlib.Path = tmp_path_factory.mktemp('placement-api')
    url = setting.session_url(database)
    with servers.serving(url, directory) as running:
        yield running
