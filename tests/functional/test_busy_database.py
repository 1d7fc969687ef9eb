"""Writes that find the database locked by another writer each time that they are tried."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import applications
from tests.support.asking import ask, create_provider

CONSUMER = '7f2c2e1c-6f0c-4b5e-9d5f-0a3b1c2d4e5f'
ALLOCATING = 'Inventory and/or allocations changed while attempting to allocate: Another thread concurrently updated'


@pytest.fixture
def app(tmp_path: pathlib.Path) -> Iterator[Any]:
    """An application that tries a write twice and does not wait for the lock."""
    options = {'transaction_retries': 1, 'sqlite_busy_timeout': 0}
    with applications.application(tmp_path / 'placement.sqlite', placement_database=options) as made:
        yield made


@contextlib.contextmanager
def locked(file: pathlib.Path) -> Iterator[None]:
    """Another process is in a transaction that writes."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute('BEGIN IMMEDIATE')
        yield


@pytest.mark.parametrize(
    ('method', 'path', 'detail'),
    [
        ('PUT', f'/allocations/{CONSUMER}', ALLOCATING),
        ('POST', '/allocations', ALLOCATING),
        ('PUT', '/resource_providers/{host}/aggregates', 'Update conflict: Another thread concurrently updated'),
        (
            'DELETE',
            '/resource_providers/{host}/inventories',
            'Unable to delete inventory for resource provider {host}: ',
        ),
    ],
)
def test_a_write_without_the_lock_is_409_in_the_end(
    app: Any, tmp_path: pathlib.Path, method: str, path: str, detail: str
) -> None:
    host = create_provider(app, VCPU=4)
    claim = {
        'allocations': {host: {'resources': {'VCPU': 1}}},
        'project_id': 'project',
        'user_id': 'user',
        'consumer_generation': None,
    }
    bodies = {
        f'/allocations/{CONSUMER}': claim,
        '/allocations': {CONSUMER: claim},
        '/resource_providers/{host}/aggregates': {'resource_provider_generation': 1, 'aggregates': []},
    }
    with locked(tmp_path / 'placement.sqlite'):
        response = ask(app, method, path.format(host=host), bodies.get(path))
    assert response.status_int == 409
    (error,) = response.json['errors']
    assert error['code'] == 'placement.concurrent_update'
    assert error['detail'].startswith(detail.format(host=host))
    assert error['detail'].endswith('Please retry your update')
    assert ask(app, method, path.format(host=host), bodies.get(path)).status_int < 300
