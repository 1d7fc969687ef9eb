"""Fixtures of the operations tests: a Keystone for the session. The tests are skipped unless asked for."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.asked import skip_unless_asked
from tests.support.operations import identity


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this directory, and skip them unless asked for."""
    skip_unless_asked(config, items, pathlib.Path(__file__).parent, 'operations')


@pytest.fixture(scope='session')
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[identity.Keystone]:
    """A running Keystone."""
    with identity.served(tmp_path_factory.mktemp('keystone')) as running:
        yield running
