"""Requests that find the database locked by another writer, and writes to a provider that lose a race."""

from __future__ import annotations

import contextlib
import functools
import logging
import pathlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.capacity import InventoryRecord
from placement.db import retries
from placement.handlers import inventory, trait
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support import applications, error_details
from tests.support.event_hooks import listening
from tests.support.http_client import claim_body, create_provider, send_request
from tests.support.objects import set_aggregates, set_inventories, set_traits

CONSUMER = '7f2c2e1c-6f0c-4b5e-9d5f-0a3b1c2d4e5f'
ALLOCATING = 'Inventory and/or allocations changed while attempting to allocate: Another thread concurrently updated'


@pytest.fixture
def app(tmp_path: pathlib.Path) -> Iterator[Any]:
    """An application that does not wait for the lock."""
    options = {'connection_parameters': 'timeout=0'}
    with applications.application(tmp_path / 'placement.sqlite', placement_database=options) as app:
        yield app


@contextlib.contextmanager
def locked(file: pathlib.Path) -> Iterator[None]:
    """Another process is in a transaction that writes."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute('BEGIN IMMEDIATE')
        yield


@pytest.mark.parametrize(
    ('method', 'path', 'reason'),
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
    app: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, method: str, path: str, reason: str
) -> None:
    host = create_provider(app, VCPU=4)
    claim = claim_body({host: {'VCPU': 1}})
    bodies = {
        f'/allocations/{CONSUMER}': claim,
        '/allocations': {CONSUMER: claim},
        '/resource_providers/{host}/aggregates': {'resource_provider_generation': 1, 'aggregates': []},
    }
    attempts: list[sa.Connection] = []
    caplog.set_level(logging.INFO, 'placement.web.operation')
    with locked(tmp_path / 'placement.sqlite'), listening(app.db.engine, 'engine_connect', attempts.append):
        response = send_request(app, method, path.format(host=host), bodies.get(path))
    assert response.status_int == 409
    (error,) = response.json['errors']
    assert error['code'] == 'placement.concurrent_update'
    assert error_details.reason(error).startswith(reason.format(host=host))
    assert error['detail'].endswith('Please retry your update')
    # SQLite itself has waited, so the write is not retried; a read may precede it. There is no traceback.
    assert len(attempts) <= 2
    assert all(record.exc_info is None for record in caplog.records)
    (line,) = (record.getMessage() for record in caplog.records if record.name == 'placement.web.operation')
    assert line.endswith('Please retry your update: database is locked')
    assert send_request(app, method, path.format(host=host), bodies.get(path)).status_int in (200, 204)


def test_a_connection_waits_for_the_writer_of_a_file_that_is_not_in_wal_mode(tmp_path: pathlib.Path) -> None:
    """As another service leaves it. SQLite does not wait when it changes the mode."""
    file = tmp_path / 'placement.sqlite'
    with (
        contextlib.closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as writer,
        applications.database(file) as db,
    ):
        writer.execute('BEGIN IMMEDIATE')
        writer.execute('CREATE TABLE traits (name TEXT)')
        commit = threading.Timer(0.2, writer.execute, ['COMMIT'])
        commit.start()
        try:
            assert db.fetch_all(sa.text('SELECT * FROM traits')) == []
        finally:
            commit.join()
        assert db.fetch_all(sa.text('PRAGMA journal_mode')) == [('wal',)]


@contextlib.contextmanager
def unreadable(app: Any, file: pathlib.Path) -> Iterator[None]:
    """Another process has the whole file, the only case in which reads wait in WAL mode."""
    app.db.dispose()
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute('PRAGMA locking_mode = EXCLUSIVE')
        connection.execute('BEGIN EXCLUSIVE')
        yield


def test_a_read_without_the_lock_is_503_in_the_end(app: Any, tmp_path: pathlib.Path) -> None:
    with unreadable(app, tmp_path / 'placement.sqlite'):
        response = send_request(app, 'GET', '/traits')
    assert (response.status_int, response.headers['Retry-After']) == (503, '2')
    assert send_request(app, 'GET', '/traits').status_int == 200


@pytest.mark.parametrize(
    ('method', 'path', 'body'),
    [
        ('GET', '/resource_providers?nonsense=1', None),
        ('GET', '/resource_providers?resources=VCPU', None),
        ('GET', '/allocation_candidates?resources=VCPU', None),
        ('GET', '/traits?name=CUSTOM_A', None),
        ('GET', '/usages', None),
        ('POST', '/resource_providers', {}),
        ('POST', '/resource_classes', {}),
        ('PUT', '/resource_classes/custom_lower_case', None),
        ('PUT', '/traits/lower_case', None),
        ('PUT', f'/resource_providers/{CONSUMER}/traits', {}),
        ('PUT', f'/allocations/{CONSUMER}', {}),
        ('POST', '/allocations', {}),
    ],
)
def test_a_malformed_request_is_400_without_the_database(
    app: Any, tmp_path: pathlib.Path, method: str, path: str, body: Any
) -> None:
    with unreadable(app, tmp_path / 'placement.sqlite'):
        assert send_request(app, method, path, body).status_int == 400


@pytest.mark.parametrize('retries', [1, 5])
def test_a_read_is_retried_when_the_database_was_locked(app: Any, retries: int) -> None:
    conflicts: list[int] = []

    def fail(*_arguments: Any) -> None:
        if len(conflicts) < retries:
            conflicts.append(1)
            error = sqlite3.OperationalError('database is locked')
            error.sqlite_errorname = 'SQLITE_BUSY'
            raise error

    with listening(app.db.engine, 'do_execute', fail):
        assert send_request(app, 'GET', '/traits').status_int == 200
    assert len(conflicts) == retries


def test_a_call_is_repeated_as_often_as_allowed() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        retries.retry(fail, lambda error: isinstance(error, TimeoutError), retries=2)
    assert len(calls) == 3


@pytest.mark.parametrize('generation', [2**31, 2**64])
def test_a_generation_that_no_provider_can_have_is_409(app: Any, generation: int) -> None:
    body = {'resource_provider_generation': generation, 'aggregates': []}
    response = send_request(app, 'PUT', f'/resource_providers/{create_provider(app)}/aggregates', body)
    assert response.status_int == 409
    assert response.json['errors'][0]['code'] == 'placement.concurrent_update'


# Writes that lose a race ------------------------------------------------------------------------------------------


UUID = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'
TRAIT = 'HW_CPU_X86_VMX'


@pytest.fixture
def provider(context: RequestContext, monkeypatch: pytest.MonkeyPatch) -> ResourceProvider:
    """A provider at generation 2 whose generation another writer increments after each look-up."""
    provider = ResourceProvider.create(context, name='contended', uuid=UUID)
    set_inventories(provider, ('VCPU', InventoryRecord(4)))
    set_traits(provider, [TRAIT])
    for module, name in ((inventory, 'read_inventories'), (trait, 'read_traits')):
        monkeypatch.setattr(module, name, functools.partial(_read_beside_a_writer, getattr(module, name)))
    return provider


def _read_beside_a_writer(read: Callable[..., Any], context: RequestContext, uuid: str, *arguments: Any) -> Any:
    """Read a provider; before this returns, another writer increments the generation."""
    rows = read(context, uuid, *arguments)
    set_aggregates(ResourceProvider.get_by_uuid(context, uuid), [], increment_generation=True)
    return rows


@pytest.mark.parametrize(
    ('method', 'path', 'body', 'lead'),
    [
        ('POST', '/inventories', {'resource_class': 'VGPU', 'total': 1}, 'Update conflict: '),
        ('PUT', '/inventories', {'inventories': {}}, 'update conflict: '),
        ('DELETE', '/inventories', None, f'Unable to delete inventory for resource provider {UUID}: '),
        ('PUT', '/inventories/VCPU', {'total': 9}, 'update conflict: '),
        ('DELETE', '/inventories/VCPU', None, 'Unable to delete inventory of class VCPU: '),
        ('PUT', '/traits', {'traits': []}, ''),
        ('DELETE', '/traits', None, ''),
    ],
)
def test_the_losing_write_is_409_and_changes_nothing(
    app: Any,
    provider: ResourceProvider,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    lead: str,
) -> None:
    if method == 'PUT':
        body = {**(body or {}), 'resource_provider_generation': provider.generation}
    response = send_request(app, method, f'/resource_providers/{UUID}{path}', body)
    error = response.json['errors'][0]
    assert (error['status'], error['code']) == (409, 'placement.concurrent_update')
    assert error_details.reason(error).startswith(
        f'{lead}Another thread concurrently updated the resource provider data.'
    )
    monkeypatch.undo()
    inventories = send_request(app, 'GET', f'/resource_providers/{UUID}/inventories').json['inventories']
    assert {name: inventory['total'] for name, inventory in inventories.items()} == {'VCPU': 4}
    assert send_request(app, 'GET', f'/resource_providers/{UUID}/traits').json['traits'] == [TRAIT]
