"""The names of the tables in a database that is adopted or returned, and the steps that rename them.

Another service has other names for them (``tables.THEIR_NAMES``). If it still runs after they were renamed, it does not
find them, and so cannot write without updating ``inventories.used`` and the change log (doc/adopt.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import api as oslo_db_api

from placement.db import errors, tables
from placement.db.adoption.plan import Step

#: Seconds that a change of the schema waits for other transactions to end.
_LOCK_TIMEOUT_SECONDS = 10
#: Maximum number of retries of locking the tables after a deadlock.
_MAX_LOCK_RETRIES = 5

#: Tables that older releases of other services do not have.
ADDED_TABLES = frozenset({tables.consumer_types})


class Names:
    """The names that the tables of ``tables.SHARED`` have in one database: ours or those of another service.

    ``present`` are the names of all its tables. True if there is any table of ``tables.SHARED``.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self.present = frozenset(sa.inspect(connection).get_table_names())
        self._found = {
            table: name if name in self.present else table.name
            for table, name in tables.THEIR_NAMES.items()
            if name in self.present or table.name in self.present
        }
        self._selectable = {table: _selectable(name, table) for table, name in self._found.items()}

    def __bool__(self) -> bool:
        return bool(self._found)

    def __contains__(self, table: sa.Table) -> bool:
        return table in self._found

    def of(self, table: sa.Table) -> str:
        """Return the name that ``table`` has in the database.

        :raises KeyError: it is not there.
        """
        return self._found[table]

    def ours(self, name: str) -> str:
        """Return our name of the table that is called ``name`` in the database; ``name`` itself for any other table."""
        return next((table.name for table, found in self._found.items() if found == name), name)

    def __getitem__(self, table: sa.Table) -> sa.TableClause:
        """Return ``table`` under the name that it has in the database, to select from."""
        return self._selectable[table]

    def problems(self) -> Iterator[str]:
        """Yield tables that are missing, or that exist under both names."""
        for table, name in tables.THEIR_NAMES.items():
            if table not in self and table not in ADDED_TABLES:
                yield f'There is no table {name}.'
            if name != table.name and {name, table.name} <= self.present:
                yield f'There are both a table {name} and a table {table.name}: drop the one that is not in use.'

    def added(self) -> Iterator[Step]:
        """Yield a step for each table that the other service does not have."""
        for table in tables.SHARED:
            if table not in self:
                yield Step(f'Create the table {table.name}.', functools.partial(table.create, checkfirst=True))

    def rename_to_ours(self) -> Iterator[Step]:
        """Yield the step that gives the tables our names, unless they have them."""
        renamed = self._foreign()
        if renamed:
            sentence = (
                f'Rename the tables {", ".join(sorted(renamed))}: add the prefix placement_, so that the other service'
                ' cannot write any more.'
            )
            yield Step(sentence, functools.partial(_rename, renamed))

    def rename_back(self) -> Iterator[Step]:
        """Yield the step that undoes ``rename_to_ours``."""
        renamed = {ours: name for name, ours in self._foreign().items()}
        if renamed:
            yield Step('Rename the tables back.', functools.partial(_rename, renamed))

    def _foreign(self) -> dict[str, str]:
        return {name: table.name for table, name in self._found.items() if name != table.name}

    def rename_to_theirs(self) -> Iterator[Step]:
        """Yield the step that gives the tables the names that another service has for them."""
        renamed = {name: tables.THEIR_NAMES[table] for table, name in self._found.items()}
        renamed = {old: new for old, new in renamed.items() if old != new}
        if renamed:
            sentence = f'Rename the tables {", ".join(sorted(renamed))}: remove the prefix placement_.'
            yield Step(sentence, functools.partial(_rename, renamed))


def _selectable(name: str, table: sa.Table) -> sa.TableClause:
    columns: list[sa.ColumnClause[Any]] = [sa.column(one.name, one.type) for one in table.columns]
    return sa.table(name, *columns)


def _rename(names: Mapping[str, str], connection: sa.Connection) -> None:
    if connection.dialect.name in ('mysql', 'mariadb'):
        # In one statement, so that all are renamed or none: MySQL commits each change of the schema at once.
        each = ', '.join(f'{old} TO {new}' for old, new in names.items())
        connection.exec_driver_sql(f'SET SESSION lock_wait_timeout = {_LOCK_TIMEOUT_SECONDS}')
        connection.exec_driver_sql(f'RENAME TABLE {each}')
        return
    for old, new in names.items():
        connection.exec_driver_sql(f'ALTER TABLE {old} RENAME TO {new}')


def lock_tables(connection: sa.Connection, names: Names) -> None:
    """On PostgreSQL, lock the tables until the transaction ends, so that nothing is written before they are renamed."""
    if connection.dialect.name == 'postgresql':
        present = sorted(names.of(table) for table in tables.SHARED if table in names)
        if present:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_SECONDS}s'")
            _lock(connection, present)


def _lock(connection: sa.Connection, names: Sequence[str]) -> None:
    def lock() -> None:
        with connection.begin_nested():
            connection.exec_driver_sql(f'LOCK TABLE {", ".join(names)} IN ACCESS EXCLUSIVE MODE')

    # Another transaction may have locked one of the tables and wait for another. The server ends one of the two.
    oslo_db_api.wrap_db_retry(max_retries=_MAX_LOCK_RETRIES, retry_interval=0, exception_checker=errors.is_deadlock)(
        lock
    )()
