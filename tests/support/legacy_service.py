"""The writes of another service of this API to its database: plain statements in transactions."""

from __future__ import annotations

import threading
import uuid

import sqlalchemy as sa

from placement.db import errors
from tests.support import legacy_database

#: Name of a write: its statement, for a database that ``foreign.build`` made.
WRITES = {
    'a consumer': "INSERT INTO consumers (uuid, project_id, user_id, generation) VALUES ('new', 1, 1, 0)",
    'a consumer that goes': f"DELETE FROM consumers WHERE uuid = '{legacy_database.LARGE}'",
    'an allocation': (
        'INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used, created_at)'
        f" VALUES (3, '{legacy_database.LARGE}', 0, 6, '2026-01-01 00:00:00')"
    ),
    'a larger allocation': 'UPDATE allocations SET used = 16 WHERE id = 3',
    'a release': f"DELETE FROM allocations WHERE consumer_id = '{legacy_database.LARGE}'",
    'a generation': 'UPDATE resource_providers SET generation = 6 WHERE id = 1 AND generation = 5',
    'a provider': (
        'INSERT INTO resource_providers (uuid, name, generation, root_provider_id)'
        " VALUES ('00000019-0000-4000-8000-000000000000', 'new', 0, 1)"
    ),
    'a provider that goes': 'DELETE FROM resource_providers WHERE id = 3',
    'an inventory': (
        'INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit,'
        " step_size, allocation_ratio, created_at) VALUES (1, 0, 64, 0, 1, 64, 1, 1.0, '2026-01-01 00:00:00')"
    ),
    'a larger inventory': 'UPDATE inventories SET total = 1000, max_unit = 1000 WHERE id = 4',
    'an inventory that goes': 'DELETE FROM inventories WHERE id = 3',
    'a class': "INSERT INTO resource_classes (id, name) VALUES (10001, 'CUSTOM_THEIRS')",
    'a class that goes': 'DELETE FROM resource_classes WHERE id = 10000',
    'a trait': "INSERT INTO traits (id, name) VALUES (9000, 'CUSTOM_THEIRS')",
    'a trait of a provider': 'INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (1, 3)',
    'the traits of a provider': 'DELETE FROM resource_provider_traits WHERE resource_provider_id = 1',
    'a member of an aggregate': (
        'INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (3, 1)'
    ),
    'a project': "INSERT INTO projects (id, external_id) VALUES (900, 'theirs')",
    'a user': "INSERT INTO users (id, external_id) VALUES (900, 'theirs')",
}

_PROVIDER, _VCPU = 3, 0


class ForeignService:
    """A service with one connection, which stays open.

    :param before: the statement that it runs when it connects.
    """

    def __init__(self, url: str | sa.URL, before: str | None = None) -> None:
        self._engine = sa.create_engine(url)
        self.connection = self._engine.connect()
        if before is not None:
            self.connection.exec_driver_sql(before)
            self.connection.commit()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()
        self._engine.dispose()

    def write(self, statement: str) -> None:
        """Run one statement in a transaction."""
        with self.connection.begin():
            self.connection.exec_driver_sql(statement)

    def claim(self) -> bool:
        """Allocate a VCPU of the host ``foreign.OTHER`` to a new consumer; False when it finds no room."""
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
        return moved.rowcount == 1


class Busy(threading.Thread):
    """A service that claims and releases until its database rejects.

    ``written`` is how many transactions were committed, ``rejected`` the error that ended it.
    """

    def __init__(self, url: str | sa.URL) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.written = 0
        self.rejected: sa.exc.DBAPIError | None = None
        self.stop = threading.Event()

    def run(self) -> None:
        """Claim; release when there is no room."""
        service = ForeignService(self._url)
        try:
            while not self.stop.is_set() and self.rejected is None:
                self._write(service)
        finally:
            service.close()

    def _write(self, service: ForeignService) -> None:
        try:
            if not service.claim():
                service.release()
            self.written += 1
        except sa.exc.DBAPIError as error:
            # Like other services it tries again after a conflict.
            if not errors.is_conflict(error):
                self.rejected = error
