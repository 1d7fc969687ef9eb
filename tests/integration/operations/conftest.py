"""Fixtures of the operations tests: a Keystone for the session. The tests are skipped unless asked for."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.operations import identity


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this directory, and skip them unless asked for."""
    here = pathlib.Path(__file__).parent
    asked = 'operations' in config.option.markexpr
    for item in items:
        if here in item.path.parents:
            item.add_marker('operations')
            if not asked:
                item.add_marker(pytest.mark.skip(reason='not run: needs pytest -m operations'))


@pytest.fixture(scope='session')
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[identity.Keystone]:
    """A running Keystone."""
    with identity.served(tmp_path_factory.mktemp('keystone')) as running:
        yield running
