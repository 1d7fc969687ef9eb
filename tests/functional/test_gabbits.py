"""Run every YAML suite of ``gabbits/`` against the real WSGI application, one pytest test per HTTP request.

Each file gets an application of its own on a fresh SQLite database. The suites below ``gabbits/configured/``
need a configuration or a mount point that differs from the default; ``CONFIGURED`` says which.
"""

from __future__ import annotations

import dataclasses
import pathlib
import unittest
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from gabbi import handlers, suitemaker, utils

from placement import conf as placement_conf
from placement import deploy

ROOT = pathlib.Path(__file__).parents[2] / 'gabbits'
HOST = 'placement.example.com'

Overrides = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a suite needs of its application: configuration overrides and the path it is mounted below."""

    overrides: Overrides = dataclasses.field(default_factory=dict)
    prefix: str = ''


CONFIGURED = {
    'cors': Setting(overrides={'cors': {'allowed_origin': ['https://dashboard.example.com']}}),
    'mounted': Setting(prefix='/placement'),
}


class Suite:
    """One YAML file, its requests, and the application that answers them while the ``suite`` fixture is up."""

    def __init__(self, path: pathlib.Path) -> None:
        self.name = str(path.relative_to(ROOT).with_suffix(''))
        self.setting = CONFIGURED[path.stem] if path.parent.name == 'configured' else Setting()
        self.app: Any = None
        self.cases = self._load(path)

    def _load(self, path: pathlib.Path) -> list[unittest.TestCase]:
        """The requests of the file as gabbi test cases, in order; nothing is sent yet."""
        built = suitemaker.test_suite_from_dict(
            loader=unittest.TestLoader(),
            test_base_name=path.stem,
            suite_dict=utils.load_yaml(yaml_file=str(path)),
            test_directory=str(path.parent),
            host=HOST,
            port=80,
            fixture_module=None,
            intercept=lambda: self._respond,
            prefix=self.setting.prefix,
            handlers=[handler() for handler in handlers.RESPONSE_HANDLERS],
            test_loader_name=__name__,
        )
        return list(built)

    def _respond(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Pass a request on to the application, with the path spelled as PEP 3333 wants it.

        httpx leaves the mount prefix in PATH_INFO, and leaves the path as text instead of latin-1 decoded bytes.
        """
        path = environ['PATH_INFO'].removeprefix(environ['SCRIPT_NAME'])
        environ['PATH_INFO'] = path.encode('utf-8').decode('latin-1')
        answer: Iterable[bytes] = self.app(environ, start_response)
        return answer

    def run(self, index: int) -> unittest.TestResult:
        """Send request ``index``, after those before it that have not been sent (a selection of tests, or xdist)."""
        for earlier in self.cases[:index]:
            if not earlier.has_run:  # type: ignore[attr-defined]
                earlier.run(unittest.TestResult())
        result = unittest.TestResult()
        self.cases[index].run(result)
        return result


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per request of every file, named by file and by the sentence in the YAML."""
    if 'suite' not in metafunc.fixturenames:
        return
    suites = [Suite(path) for path in sorted(ROOT.rglob('*.yaml'))]
    requests = [(suite, index) for suite in suites for index in range(len(suite.cases))]
    ids = [f'{suite.name}: {suite.cases[index].test_data["name"]}' for suite, index in requests]  # type: ignore[attr-defined]
    metafunc.parametrize(('suite', 'index'), requests, ids=ids, indirect=['suite'], scope='module')


@pytest.fixture(scope='module')
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The suite of the test, its application up on an empty database."""
    suite: Suite = request.param
    database = tmp_path_factory.mktemp('gabbits') / 'placement.sqlite'
    overrides: dict[str, Mapping[str, Any]] = {
        'placement_database': {'connection': f'sqlite:///{database}', 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
        **suite.setting.overrides,
    }
    suite.app = deploy.loadapp(placement_conf.load(environ={}, overrides=overrides))
    yield suite
    suite.app.db.dispose()


def test_gabbits(suite: Suite, index: int) -> None:
    result = suite.run(index)
    problems = [text for _, text in result.failures + result.errors]
    if problems:
        pytest.fail('\n'.join(problems), pytrace=False)
