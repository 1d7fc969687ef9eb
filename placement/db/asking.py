"""Single statements that only read, each in one round trip: in autocommit, on a connection that is not tested before.

If the connection turns out to be dead, the statement is run again on a new one, which is safe because it only reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from placement.db import error_kinds
from placement.observability.metrics import Metrics

#: How many times the statement is run again after an error that says that the connection is dead or that there was a
#: conflict.
_TRIES = 5


class Asker:
    """Connections for single statements, in a pool of their own.

    :param url: from ``placement.db.url.engine_url``.
    :param options: the group ``placement_database``.
    :param metrics: observes the pool, and how long it takes to get a connection.
    """

    #: The name of the pool in the metrics.
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
        """Run ``statement`` and return its rows.

        :param parameters: values of its bind parameters, by name.
        :raises DBAPIError: the last try failed, or one failed for another reason than those of ``_TRIES``.
        """
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
    """Set ``wsrep_sync_wait``: a read then waits until its node has applied what was committed on other nodes."""

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        with dbapi_connection.cursor() as cursor:
            cursor.execute(f'SET SESSION wsrep_sync_wait = {int(value)}')
