"""Fixtures for tests of the whole application: an application on a SQLite file, and a counter of statements.

A directory of tests has these fixtures when its ``conftest.py`` imports them. Unit tests do not have them.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement import deploy
from placement.cmd import manage
from placement.db.api import Database
from placement.web.authentication import RequestContext
from tests.support import applications
from tests.support.event_hooks import listening

Counter = Callable[..., contextlib.AbstractContextManager[list[str]]]
PointCommandsAt = Callable[[str | sa.URL], str]
Printed = Callable[..., str]


@functools.cache
def _made() -> bytes:
    """A SQLite database with our tables, and the standard names in them."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, 'placement.sqlite')
        with applications.database(file) as db:
            db.sync()
        return file.read_bytes()


def prepare(file: pathlib.Path) -> None:
    """Make a synchronized SQLite database: a copy, which takes a tenth of the time."""
    file.write_bytes(_made())


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    """Options for a SQLite file of the test, without authentication, configuration file or environment."""
    return applications.options(tmp_path / 'placement.sqlite')


@pytest.fixture
def app(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> Iterator[Any]:
    """The whole WSGI application on a database with the standard names."""
    prepare(tmp_path / 'placement.sqlite')
    app = deploy.loadapp(conf)
    yield app
    app.db.dispose()


@pytest.fixture
def db(app: Any) -> Database:
    """The application's database, synchronized."""
    return app.db


@pytest.fixture
def context(conf: cfg.ConfigOpts, db: Database) -> RequestContext:
    """The context of a request that an administrator makes to the application."""
    return applications.administrator(db, conf)


@pytest.fixture
def other_process(conf: cfg.ConfigOpts, db: Database) -> Iterator[RequestContext]:
    """The context of a request to another process on the same database."""
    with applications.database(conf.placement_database.connection) as opened:
        yield applications.administrator(opened, conf)


@pytest.fixture
def point_commands_at(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> PointCommandsAt:
    """Lets the commands that the test runs work on a database; takes its URL, and returns it as text."""

    def point(url: str | sa.URL) -> str:
        text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
        monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
        monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', text)
        return text

    return point


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs ``placement-manage`` in this process, which has to end with ``code``, and returns what it prints."""

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert manage.main(arguments) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def failed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs ``placement-manage`` in this process, which has to fail, and returns its error: one line, and no output."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        assert manage.main(arguments) == manage.FAILED
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count('\n')) == ('', 1)
        return captured.err

    return run


@pytest.fixture
def queries(db: Database) -> Counter:
    """Count SQL statements: ``with queries(at_most=5): ...``. BEGIN and COMMIT are not counted.

    Neither is the increment of a slot of the change log, which on PostgreSQL is part of the INSERT of its entries.
    """

    @contextlib.contextmanager
    def counted(at_most: int) -> Iterator[list[str]]:
        seen: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if not statement.startswith(('BEGIN', 'UPDATE placement_writer_slots SET sequence')):
                seen.append(statement)

        event = 'before_cursor_execute'
        with listening(db.engine, event, note):
            yield seen
        assert len(seen) <= at_most, '\n'.join(seen)

    return counted
