"""Fixtures of the browser tests: a browser, and the page of three clouds. They run only when they are requested."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.page import browser, realistic_cloud
from tests.support import applications, clouds, servers
from tests.support.clouds import Cloud

CLOUDS: dict[str, Callable[[], Cloud]] = {
    'empty': Cloud,
    'nested': clouds.nested,
    'realistic': realistic_cloud.realistic,
}
LOG = (
    '2026-01-02 03:{:02}:05.006 7 INFO placement.handlers.allocation_candidate [-]'
    ' No allocation candidates for {}: resources\n'
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of this directory, which runs only when it is requested."""
    item.add_marker('page')


@pytest.fixture(scope='session')
def chromium() -> Iterator[Any]:
    """A running browser."""
    with browser.chromium() as running:
        yield running


@pytest.fixture(scope='session')
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of ``placement-manage page``, by the name of the cloud that it shows."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(_served(make(), tmp_path_factory.mktemp(name))) for name, make in CLOUDS.items()
        }


@contextlib.contextmanager
def _served(cloud: Cloud, directory: pathlib.Path) -> Iterator[str]:
    connection = f'sqlite:///{directory}/placement.sqlite'
    with applications.database(connection) as db:
        db.sync()
        clouds.create_cloud(db, cloud)
    log = directory / 'placement.log'
    queries = ('resources=VCPU:64,MEMORY_MB:4096', 'resources=VCPU:32,MEMORY_MB:4096', 'resources=CUSTOM_GPU:8')
    log.write_text(''.join(LOG.format(number, query) for number, query in enumerate(queries)))
    address = f'127.0.0.1:{servers.free_port()}'
    command = [str(pathlib.Path(sys.executable).with_name('placement-manage')), 'page', '--bind', address]
    environ = servers.clean_environ(
        OS_PLACEMENT_CONFIG_DIR=str(directory),
        OS_PLACEMENT_DATABASE__CONNECTION=connection,
        OS_DEFAULT__LOG_FILE=str(log),
    )
    with servers.running(command, f'http://{address}/', directory / 'page.log', environ):
        yield f'http://{address}'
