"""Single statements that only read, each in one round trip: no transaction around it and no test of the connection.

A connection that turns out to be dead is replaced and the statement asked again, which is safe for one that only reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from placement.db import error_kinds
from placement.observability.metrics import Metrics

#: Beyond one dead connection, how often a statement is asked again when something concurrent is in its way.
_TRIES = 5


class Asker:
    """Connections for single statements, in a pool of their own.

    :param url: as ``placement.db.url.engine_url`` makes it.
    :param options: the group ``placement_database``.
    :param metrics: is told of the time spent on it.
    """

    #: What the pool is called in the metrics.
    POOL = 'questions'

    def __init__(self, url: sa.URL, options: Any, metrics: Metrics) -> None:
        arguments: dict[str, Any] = {'pool_recycle': options.connection_recycle_time}
        if url.get_backend_name() == 'sqlite':
            arguments['connect_args'] = {'timeout': options.sqlite_busy_timeout, 'check_same_thread': False}
        self.engine = sa.create_engine(
            url,
            isolation_level='AUTOCOMMIT',
            poolclass=sa.QueuePool,
            # There is no transaction to end when a connection is given back.
            skip_autocommit_rollback=True,
            pool_reset_on_return=None,
            pool_size=options.max_pool_size,
            max_overflow=options.max_overflow,
            pool_timeout=options.pool_timeout,
            **arguments,
        )
        self._metrics = metrics
        metrics.watch(self.POOL, self.engine, options.max_pool_size + options.max_overflow)
        self._pid = os.getpid()
        if url.get_backend_name() in ('mysql', 'mariadb') and options.mysql_wsrep_sync_wait is not None:
            _wait_for_cluster(self.engine, options.mysql_wsrep_sync_wait)

    def all(self, statement: sa.Executable, parameters: Mapping[str, Any]) -> Sequence[sa.Row[Any]]:
        """Run ``statement`` and return its rows."""
        if self._pid != os.getpid():
            # Connections inherited through a fork belong to the parent.
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        for _ in range(_TRIES):
            rows = self._try(statement, parameters)
            if rows is not None:
                return rows
        with self._connection() as connection:
            return connection.execute(statement, parameters).all()

    def _connection(self) -> sa.Connection:
        with self._metrics.connecting(self.POOL):
            return self.engine.connect()

    def _try(self, statement: sa.Executable, parameters: Mapping[str, Any]) -> Sequence[sa.Row[Any]] | None:
        try:
            with self._connection() as connection:
                return connection.execute(statement, parameters).all()
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated or error_kinds.is_conflict(error):
                return None
            raise


def _wait_for_cluster(engine: sa.Engine, value: int) -> None:
    """Let each connection wait until its node has applied what the others had committed."""

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        with dbapi_connection.cursor() as cursor:
            cursor.execute(f'SET SESSION wsrep_sync_wait = {int(value)}')
