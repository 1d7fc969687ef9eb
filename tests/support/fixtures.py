"""Fixtures for tests of the whole application: an application on a SQLite file, and a counter of statements.

A directory of tests has these fixtures when its ``conftest.py`` imports them. Unit tests do not have them.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement import conf as placement_conf
from placement import deploy
from placement.db.api import Database
from placement.web.context import RequestContext

Counter = Callable[..., contextlib.AbstractContextManager[list[str]]]


def options(file: pathlib.Path, **more: Mapping[str, Any]) -> cfg.ConfigOpts:
    """Options for a SQLite file and ``noauth2``, and of other groups, without configuration file or environment."""
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': f'sqlite:///{file}', 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    for group, values in more.items():
        overrides.setdefault(group, {}).update(values)
    return placement_conf.load(environ={}, config_files=[], overrides=overrides)


@functools.cache
def _synchronised() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, 'placement.sqlite')
        db = Database(options(file))
        db.sync()
        db.dispose()
        return file.read_bytes()


def prepare(file: pathlib.Path) -> None:
    """Make a synchronised SQLite database: a copy, since synchronising takes ten times as long."""
    file.write_bytes(_synchronised())


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    """Options for a SQLite file of the test, without authentication, configuration file or environment."""
    return options(tmp_path / 'placement.sqlite')


@pytest.fixture
def app(conf: cfg.ConfigOpts) -> Iterator[Any]:
    """The whole WSGI application. It synchronised its database itself, so it is the only writer of the log."""
    made = deploy.loadapp(conf)
    yield made
    made.db.dispose()


@pytest.fixture
def db(app: Any) -> Database:
    """The application's database, synchronised."""
    return app.db


@pytest.fixture
def context(conf: cfg.ConfigOpts, db: Database) -> RequestContext:
    """The context of a request that an administrator makes to the application."""
    return RequestContext(conf=conf, db=db, roles=['admin'], user_id='admin', project_id='admin')


@pytest.fixture
def queries(db: Database) -> Counter:
    """Count SQL statements: ``with queries(at_most=5): ...``. BEGIN and COMMIT are not counted."""

    @contextlib.contextmanager
    def counted(at_most: int) -> Iterator[list[str]]:
        seen: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if not statement.startswith('BEGIN'):
                seen.append(statement)

        engines = (db.engine, db.asking_engine)
        for engine in engines:
            sa.event.listen(engine, 'before_cursor_execute', note)
        try:
            yield seen
        finally:
            for engine in engines:
                sa.event.remove(engine, 'before_cursor_execute', note)
        assert len(seen) <= at_most, '\n'.join(seen)

    return counted
