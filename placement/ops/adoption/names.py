"""The names of the tables in a database that is adopted or returned, and the steps that rename them.

Another service has other names for them (``tables.UPSTREAM_NAMES``). If it still runs after the renaming, it cannot
find the tables, so it cannot change them without updating ``inventories.used`` and the change log (doc/adopt.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from placement.db import errors, sql, tables
from placement.ops.adoption import Step

#: Seconds that a change of the schema waits for other transactions to end.
_LOCK_TIMEOUT_SECONDS = 10
#: Maximum number of times that locking the tables is retried after a deadlock.
_MAX_LOCK_RETRIES = 5


class Names:
    """The names of the ``tables.SHARED`` in one database: ours or the names that another service has for them.

    ``present`` has the names of all tables of the database. The object is true if any of ``tables.SHARED`` exists.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self.present = frozenset(sa.inspect(connection).get_table_names())
        self._names = {
            table: name if name in self.present else table.name
            for table, name in tables.UPSTREAM_NAMES.items()
            if name in self.present or table.name in self.present
        }
        self._selectable = {
            table: sa.table(name, *(sa.column(column.name, column.type) for column in table.columns))
            for table, name in self._names.items()
        }

    def __bool__(self) -> bool:
        return bool(self._names)

    def __contains__(self, table: sa.Table) -> bool:
        return table in self._names

    def existing_name(self, table: sa.Table) -> str:
        """Return the name that ``table`` has in the database.

        :raises KeyError: the table does not exist.
        """
        return self._names[table]

    def ours(self, name: str) -> str:
        """Return our name for the table ``name`` of the database, or ``name`` if the table is not a shared one."""
        return next((table.name for table, present in self._names.items() if present == name), name)

    def __getitem__(self, table: sa.Table) -> sa.TableClause:
        """Return ``table`` with its name in the database, as something to select from."""
        return self._selectable[table]

    def problems(self) -> Iterator[str]:
        """Yield tables that are missing, or that exist under both names."""
        for table, name in tables.UPSTREAM_NAMES.items():
            if table not in self and table not in tables.ADDED:
                yield f'There is no table {name}.'
            if name != table.name and {name, table.name} <= self.present:
                yield f'There are both a table {name} and a table {table.name}: drop the one that is not in use.'

    def added(self) -> Iterator[Step]:
        """Yield a step for each table that the other service does not have."""
        for table in tables.SHARED:
            if table not in self:
                yield Step(f'Create the table {table.name}.', functools.partial(table.create, checkfirst=True))

    def add_prefix(self) -> Iterator[Step]:
        """Yield the step that gives the tables our names, unless they have them."""
        reason = 'add the prefix placement_, so that the other service can no longer write'
        yield from _renaming({name: table.name for table, name in self._names.items()}, reason)

    def rename_back(self, connection: sa.Connection) -> None:
        """Undo the step of ``add_prefix``."""
        _rename({table.name: name for table, name in self._names.items() if name != table.name}, connection)

    def remove_prefix(self) -> Iterator[Step]:
        """Yield the step that gives the tables the names that another service has for them, unless they have them."""
        names = {name: tables.UPSTREAM_NAMES[table] for table, name in self._names.items()}
        yield from _renaming(names, 'remove the prefix placement_')


def _renaming(names: Mapping[str, str], reason: str) -> Iterator[Step]:
    """Yield the step that renames tables; none if they have the new names already."""
    renamed = {old: new for old, new in names.items() if old != new}
    if renamed:
        yield Step(f'Rename the tables {", ".join(sorted(renamed))}: {reason}.', functools.partial(_rename, renamed))


def _rename(names: Mapping[str, str], connection: sa.Connection) -> None:
    if names and sql.is_mysql(connection.dialect):
        # MySQL commits each change of the schema immediately. One statement renames either all tables or none.
        renames = ', '.join(f'{old} TO {new}' for old, new in names.items())
        sql.execute_text(connection, f'SET SESSION lock_wait_timeout = {_LOCK_TIMEOUT_SECONDS}')
        sql.execute_text(connection, f'RENAME TABLE {renames}')
        return
    for old, new in names.items():
        sql.execute_text(connection, f'ALTER TABLE {old} RENAME TO {new}')


def lock_tables(connection: sa.Connection, names: Names) -> None:
    """On PostgreSQL, lock the tables until the transaction ends, so that nothing is written before they are renamed."""
    if connection.dialect.name == 'postgresql':
        present = sorted(names.existing_name(table) for table in tables.SHARED if table in names)
        if present:
            sql.execute_text(connection, f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_SECONDS}s'")

            def lock() -> None:
                with connection.begin_nested():
                    sql.execute_text(connection, f'LOCK TABLE {", ".join(present)} IN ACCESS EXCLUSIVE MODE')

            # If another transaction has locked one of the tables and waits for another, the server ends one of the two.
            errors.retry(lock, errors.is_deadlock, retries=_MAX_LOCK_RETRIES)
