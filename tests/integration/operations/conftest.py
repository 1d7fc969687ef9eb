"""Fixtures of the operations tests: a Keystone for the session. The tests run only when they are requested."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.operations import identity
from tests.support.opt_in import mark_below


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this directory, which run only when they are requested."""
    mark_below(pathlib.Path(__file__).parent, items, 'operations')


@pytest.fixture(scope='session')
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[identity.Keystone]:
    """A running Keystone."""
    with identity.served(tmp_path_factory.mktemp('keystone')) as running:
        yield running
