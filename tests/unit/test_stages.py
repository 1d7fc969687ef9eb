"""Tests that need servers or programs run only when they are requested."""

from __future__ import annotations

import pytest

pytest_plugins = ['pytester']

CONFTEST = """
import pytest
from tests.support import stages

def pytest_configure(config):
    for need in stages.NEEDS:
        config.addinivalue_line('markers', need)

def pytest_itemcollected(item):
    stages.mark_for_mysql(item)

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    stages.deselect_unrequested(config, items)
"""
TESTS = """
import pytest

def test_plain(): pass
@pytest.mark.postgresql
def test_postgresql(): pass
@pytest.mark.mariadb
def test_mariadb(): pass
"""


@pytest.mark.parametrize(
    ('arguments', 'required', 'passed'),
    [
        ([], '', 1),
        ([], 'postgresql, mariadb', 3),
        (['-m', 'mariadb'], '', 1),
        (['-m', 'mysql'], '', 1),
        (['-m', 'not mariadb'], 'postgresql', 2),
    ],
)
def test_only_what_is_requested_runs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: list[str], required: str, passed: int
) -> None:
    monkeypatch.setenv('PLACEMENT_TEST_REQUIRE', required)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    ran = pytester.runpytest_inprocess('-p', 'no:cacheprovider', *arguments)
    ran.assert_outcomes(passed=passed, deselected=3 - passed)
