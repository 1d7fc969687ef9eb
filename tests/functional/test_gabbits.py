"""Run every YAML suite of ``gabbits/`` against the real WSGI application, one pytest test per HTTP request.

Each file gets an application of its own on a fresh SQLite database.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from placement import deploy
from tests.support import applications, fixtures
from tests.support.gabbits import ROOT, Suite


class Stage:
    """Holds the application of one suite at a time, on an empty database in ``directory``."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.suite: Suite | None = None

    def enter(self, suite: Suite) -> None:
        """Make ``suite`` the one that can be run."""
        if suite is not self.suite:
            self.clear()
            database = self.directory / f'{suite.name.replace("/", "-")}.sqlite'
            fixtures.prepare(database)
            suite.app = deploy.loadapp(applications.options(database, **suite.setting.overrides))
            self.suite = suite

    def clear(self) -> None:
        """Close the database of the suite before."""
        if self.suite is not None:
            self.suite.app.db.dispose()
            self.suite = None


@pytest.fixture(scope='module')
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The one stage of all suites: they come one after the other."""
    stage = Stage(tmp_path_factory.mktemp('gabbits'))
    yield stage
    stage.clear()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per request of every file, named by the file and by the name in the YAML."""
    suites = [Suite(path) for path in sorted(ROOT.rglob('*.yaml'))]
    metafunc.parametrize(
        ('suite', 'index'),
        [
            pytest.param(suite, index, id=f'{suite.name}: {request.test_data["name"]}')
            for suite in suites
            for index, request in enumerate(suite.cases)
        ],
    )


def test_gabbits(stage: Stage, suite: Suite, index: int) -> None:
    stage.enter(suite)
    result = suite.run(index)
    problems = [text for _, text in result.failures + result.errors]
    if problems:
        pytest.fail('\n'.join(problems), pytrace=False)
