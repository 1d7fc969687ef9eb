"""Another service of this API, which writes plain statements to its database, and ours after the adoption."""

from __future__ import annotations

import contextlib
import threading
import uuid
from typing import Any

import sqlalchemy as sa

from placement import deploy
from placement.db import errors
from tests.support import applications, corruption, legacy_database
from tests.support.http_client import claim_body, send_request

_PROVIDER, _VCPU = 3, 0


class ProviderChanged(Exception):
    """Another session changed the generation of the provider meanwhile, so the transaction may not be committed."""


class ForeignService:
    """A service with one connection, which stays open."""

    def __init__(self, url: str | sa.URL) -> None:
        self._engine = sa.create_engine(url)
        self.connection = self._engine.connect()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()
        self._engine.dispose()

    def write(self, statement: str) -> None:
        """Run one statement in a transaction."""
        with self.connection.begin():
            self.connection.exec_driver_sql(statement)

    def claim(self) -> bool:
        """Allocate a VCPU of the host ``legacy_database.OTHER`` to a new consumer; False when it finds no room.

        :raises ProviderChanged: nothing was written.
        """
        with self.connection.begin():
            return self.begin_claim()

    def release(self) -> None:
        """Delete the allocations of all consumers that have one VCPU."""
        with self.connection.begin():
            self.connection.exec_driver_sql('DELETE FROM allocations WHERE used = 1')
            self.connection.exec_driver_sql(
                'DELETE FROM consumers WHERE uuid NOT IN (SELECT consumer_id FROM allocations)'
            )

    def begin_claim(self) -> bool:
        """As ``claim``, without a transaction around it."""
        execute = self.connection.exec_driver_sql
        generation = execute(f'SELECT generation FROM resource_providers WHERE id = {_PROVIDER}').scalar_one() or 0
        total = execute(
            f'SELECT total FROM inventories WHERE resource_provider_id = {_PROVIDER} AND resource_class_id = 0'
        )
        used = execute(
            f'SELECT SUM(used) FROM allocations WHERE resource_provider_id = {_PROVIDER} AND resource_class_id = 0'
        )
        if (used.scalar_one() or 0) >= total.scalar_one():
            return False
        consumer = uuid.uuid4()
        execute(f"INSERT INTO consumers (uuid, project_id, user_id, generation) VALUES ('{consumer}', 1, 1, 0)")
        execute(
            'INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used, created_at)'
            f" VALUES ({_PROVIDER}, '{consumer}', {_VCPU}, 1, '2026-01-01 00:00:00')"
        )
        moved = execute(
            f'UPDATE resource_providers SET generation = {generation + 1} WHERE id = {_PROVIDER}'
            f' AND coalesce(generation, 0) = {generation}'
        )
        if moved.rowcount != 1:
            raise ProviderChanged
        return True


class Busy(threading.Thread):
    """A service that claims and releases until its database rejects.

    ``written`` is how many transactions were committed, ``rejected`` the error that ended it.
    """

    def __init__(self, url: str | sa.URL) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.written = 0
        self.rejected: sa.exc.DBAPIError | None = None

    def run(self) -> None:
        """Claim; release when there is no room."""
        service = ForeignService(self._url)
        try:
            while self.rejected is None:
                self._write(service)
        finally:
            service.close()

    def _write(self, service: ForeignService) -> None:
        try:
            if not service.claim():
                service.release()
            self.written += 1
        except ProviderChanged:
            # Like other services it tries again after a conflict.
            return
        except sa.exc.DBAPIError as error:
            if not errors.is_conflict(error):
                self.rejected = error


def our_service(url: str | sa.URL) -> contextlib.AbstractContextManager[deploy.Application]:
    """An application on a database, which does not create the schema."""
    return applications.application(
        url, placement_database={'sync_on_startup': False}, placement=applications.EVERY_MICROVERSION
    )


def check_usages(url: str | sa.URL) -> None:
    """The recorded usages are the sums of the allocations."""
    assert corruption.column(url, _WRONG) == []


_WRONG = """SELECT id FROM placement_inventories WHERE used <> (
    SELECT coalesce(sum(a.used), 0) FROM placement_allocations a
    WHERE a.resource_provider_id = placement_inventories.resource_provider_id
    AND a.resource_class_id = placement_inventories.resource_class_id)"""


def check_no_oversell(url: str | sa.URL) -> None:
    """No more is claimed than there is, also after the writes of the other service."""
    with our_service(url) as app:
        fill(app)
    check_usages(url)


def fill(app: Any) -> None:
    """Claim all VCPUs that are left of ``legacy_database.OTHER``, which has 8, and check that it was not oversold."""
    claim = claim_body({legacy_database.OTHER: {'VCPU': 1}})
    statuses = [send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim).status_code for _ in range(9)]
    assert set(statuses) <= {204, 409}
    assert statuses[-1] == 409
    usages = send_request(app, 'GET', f'/resource_providers/{legacy_database.OTHER}/usages').json['usages']
    assert usages['VCPU'] == 8
    # So do searches, which read the cache.
    summaries = send_request(app, 'GET', '/allocation_candidates?resources=CUSTOM_GOLD:1').json['provider_summaries']
    assert summaries[legacy_database.OTHER]['resources']['VCPU']['used'] == 8
