"""How the tables are called in a database that is adopted or given back, and the step that renames them.

Another deployment calls its tables otherwise (``tables.THEIR_NAMES``). Its service, where it still runs, finds none of
them once they are renamed, so that it cannot write past what is used and the log of changes (doc/adopt.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import api as oslo_db_api

from placement.db import error_kinds, tables
from placement.db.adoption.plan import Step

#: Seconds that a change of the schema waits for the transactions of others to end.
_PATIENCE = 10
#: How often that is tried, where it ended in a deadlock.
_TRIES = 5


class Names:
    """The names that the tables which both deployments have bear in one database.

    ``present`` are the names of all tables that are there.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self.present = frozenset(sa.inspect(connection).get_table_names())
        self._borne = {
            table: name if name in self.present else table.name
            for table, name in tables.THEIR_NAMES.items()
            if name in self.present or table.name in self.present
        }
        self._selectable = {table: _selectable(name, table) for table, name in self._borne.items()}

    def __bool__(self) -> bool:
        return bool(self._borne)

    def __contains__(self, table: sa.Table) -> bool:
        return table in self._borne

    def of(self, table: sa.Table) -> str:
        """The name that a table bears."""
        return self._borne[table]

    def ours(self, name: str) -> str:
        """The name that we have for a table; one that is none of those stays."""
        return next((table.name for table, borne in self._borne.items() if borne == name), name)

    def __getitem__(self, table: sa.Table) -> sa.TableClause:
        """A table under the name that it bears, to select from."""
        return self._selectable[table]

    def doubts(self) -> Iterator[str]:
        """Tables that are missing, or there twice."""
        for table, name in tables.THEIR_NAMES.items():
            if table not in self:
                yield f'There is no table {name}.'
            elif name != table.name and {name, table.name} <= self.present:
                yield f'There are both a table {name} and a table {table.name}: drop the one that is not in use.'

    def to_ours(self) -> Iterator[Step]:
        """The step that gives the tables our names, unless they have them."""
        renamed = self._foreign()
        if renamed:
            sentence = (
                f'Let the names of the tables {", ".join(sorted(renamed))} begin with placement_, so that the other'
                ' service cannot write any more.'
            )
            yield Step(sentence, functools.partial(_rename, renamed))

    def undone(self) -> Iterator[Step]:
        """The step that takes back what ``to_ours`` did."""
        renamed = {ours: name for name, ours in self._foreign().items()}
        if renamed:
            yield Step('Let the tables have the names that they had.', functools.partial(_rename, renamed))

    def _foreign(self) -> dict[str, str]:
        return {name: table.name for table, name in self._borne.items() if name != table.name}

    def to_theirs(self) -> Iterator[Step]:
        """The step that gives the tables the names that another deployment has for them."""
        renamed = {name: tables.THEIR_NAMES[table] for table, name in self._borne.items()}
        renamed = {old: new for old, new in renamed.items() if old != new}
        if renamed:
            sentence = f'Let the names of the tables {", ".join(sorted(renamed))} no longer begin with placement_.'
            yield Step(sentence, functools.partial(_rename, renamed))


def _selectable(name: str, table: sa.Table) -> sa.TableClause:
    columns: list[sa.ColumnClause[Any]] = [sa.column(one.name, one.type) for one in table.columns]
    return sa.table(name, *columns)


def _rename(names: Mapping[str, str], connection: sa.Connection) -> None:
    if connection.dialect.name in ('mysql', 'mariadb'):
        # All or none: there a change of the schema is no part of a transaction.
        each = ', '.join(f'{old} TO {new}' for old, new in names.items())
        connection.exec_driver_sql(f'SET SESSION lock_wait_timeout = {_PATIENCE}')
        connection.exec_driver_sql(f'RENAME TABLE {each}')
        return
    for old, new in names.items():
        connection.exec_driver_sql(f'ALTER TABLE {old} RENAME TO {new}')


def keep_others_out(connection: sa.Connection, names: Names) -> None:
    """Let nobody write between the look and the changes, where a lock lasts as long as the transaction."""
    if connection.dialect.name == 'postgresql':
        present = sorted(names.of(table) for table in tables.SHARED if table in names)
        if present:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}s'")
            _lock(connection, present)


def _lock(connection: sa.Connection, names: Sequence[str]) -> None:
    def lock() -> None:
        with connection.begin_nested():
            connection.exec_driver_sql(f'LOCK TABLE {", ".join(names)} IN ACCESS EXCLUSIVE MODE')

    # Somebody who writes may hold one table and wait for another; the server may end either.
    oslo_db_api.wrap_db_retry(max_retries=_TRIES, retry_interval=0, exception_checker=error_kinds.is_deadlock)(lock)()
