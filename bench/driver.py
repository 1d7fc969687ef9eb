"""The database through its driver alone: the least that a round trip costs."""

from __future__ import annotations

import importlib
from typing import Any

#: A table of the benchmark, which the transaction of the floor writes. One row per caller.
FLOOR_TABLE = 'bench_floor'
FLOOR_ROWS = 64


class Driver:
    """A connection of the driver itself. It imports only the driver, since each caller has one.

    :param module: the driver's module.
    :param arguments: those of its ``connect``.
    """

    def __init__(self, module: str, arguments: dict[str, Any]) -> None:
        self._module = module
        self._connection: Any = importlib.import_module(module).connect(**arguments)
        self._set_autocommit()
        self._cursor = self._connection.cursor()
        if module == 'sqlite3':
            self._cursor.execute('PRAGMA busy_timeout = 30000')

    def _set_autocommit(self) -> None:
        if self._module in {'pymysql', 'MySQLdb'}:
            self._connection.autocommit(True)
        elif self._module == 'psycopg':
            self._connection.autocommit = True
        else:
            self._connection.isolation_level = None

    def select(self) -> None:
        """One round trip."""
        self._cursor.execute('SELECT 1')
        self._cursor.fetchone()

    def transaction(self, statements: int, row: int) -> None:
        """As many statements, the last of which changes a row, and COMMIT. ``row`` is the caller's own."""
        self._cursor.execute('BEGIN IMMEDIATE' if self._module == 'sqlite3' else 'BEGIN')
        for _ in range(statements - 1):
            self.select()
        self._cursor.execute(f'UPDATE {FLOOR_TABLE} SET n = n + 1 WHERE id = {row}')
        self._cursor.execute('COMMIT')

    def close(self) -> None:
        """Close it."""
        self._connection.close()
