"""Every YAML suite of ``gabbits/`` on PostgreSQL and MariaDB, all of them in one database."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import databases, gabbits


@databases.ON_EACH
@pytest.mark.parametrize(
    'path', sorted(gabbits.ROOT.rglob('*.yaml')), ids=lambda path: str(path.relative_to(gabbits.ROOT))
)
def test_suite(load_application: Callable[..., Any], path: pathlib.Path) -> None:
    suite = gabbits.Suite(path)
    suite.app = application = load_application(suite.setting.overrides)
    results = [suite.run(index) for index in range(len(suite.cases))]
    # Servers allow about a hundred connections, which is too few for all suites at once.
    application.db.dispose()
    problems = [text for result in results for _, text in result.failures + result.errors]
    assert not problems, '\n'.join(problems)
    assert sum(result.testsRun for result in results) == len(suite.cases)
