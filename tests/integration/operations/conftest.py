"""Fixtures: a Keystone for the session, and placement served by ``placement-api`` as each test configures it."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import identity, services

Placement = Callable[..., contextlib.AbstractContextManager[str]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what lies here, and leave it out of a run that did not ask for it."""
    here = pathlib.Path(__file__).parent
    asked = 'operations' in (config.option.markexpr or '')
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


@pytest.fixture
def configure(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """Write placement.conf into a directory and return the directory: ``configure(api={'auth_strategy': ...}, ...)``.

    Without other words: SQLite in the directory, and the ``noauth2`` strategy.
    """

    def write(**groups: dict[str, Any]) -> pathlib.Path:
        return services.write_configuration(tmp_path, groups)

    return write


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Placement:
    """Start ``placement-api`` on the configuration in a directory: ``with server(directory, ...) as url``."""

    @contextlib.contextmanager
    def start(directory: pathlib.Path, *arguments: str) -> Iterator[str]:
        with services.placement_api(directory, *arguments) as (url, _):
            yield url

    return start
