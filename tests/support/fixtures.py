"""What tests of the whole application may ask for: one of its own on a SQLite file of its own, a counter of statements.

A directory of tests has these fixtures when its ``conftest.py`` imports them. The unit tests have none of them.
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
from placement.db import migration
from placement.db.api import Database
from placement.web.context import RequestContext

Counter = Callable[..., contextlib.AbstractContextManager[list[str]]]


def options(file: pathlib.Path, **more: Mapping[str, Any]) -> cfg.ConfigOpts:
    """Options for a SQLite file and ``noauth2``, with those of other groups, and without file or environment."""
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': f'sqlite:///{file}', 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    for group, values in more.items():
        overrides.setdefault(group, {}).update(values)
    return placement_conf.load(environ={}, config_files=[], overrides=overrides)


@functools.cache
def _made(*, filled: bool) -> bytes:
    """A SQLite database with our tables, and the standard names in them or nothing."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, 'placement.sqlite')
        db = Database(options(file))
        if filled:
            db.sync()
        else:
            migration.sync(db.engine)
        db.dispose()
        return file.read_bytes()


def prepare(file: pathlib.Path, *, filled: bool = True) -> None:
    """Make a synchronised SQLite database, or one that lacks only the rows: a copy, which takes a tenth of the time."""
    file.write_bytes(_made(filled=filled))


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    """Options for a SQLite file in a directory of the test's own, without authentication, file or environment."""
    return options(tmp_path / 'placement.sqlite')


@pytest.fixture
def app(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> Iterator[Any]:
    """The whole WSGI application, on tables that it filled itself: it is the one writer of its log."""
    prepare(tmp_path / 'placement.sqlite', filled=False)
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
