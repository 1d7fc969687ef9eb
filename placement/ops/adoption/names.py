"""The names of the tables in a database that is adopted or returned, and the steps that rename them.

Another service has other names for them (``tables.UPSTREAM_NAMES``). If it still runs after the renaming, it cannot
find the tables, so it cannot change them without updating ``inventories.used`` and the change log (doc/adopt.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from placement.db import errors, retries, sql, tables
from placement.ops.adoption import Step

#: Seconds that a change of the schema waits for other transactions to end.
_LOCK_TIMEOUT_SECONDS = 10
#: Maximum number of times that locking the tables is retried after a deadlock.
_MAX_LOCK_RETRIES = 5


class Names(dict[sa.Table, sa.TableClause]):
    """Those of ``tables.SHARED`` that a database has, each with its name there, as something to select from.

    The name is ours, or the one that another service has for the table. ``present`` has the names of all tables of the
    database, ``views`` those of its views.
    """

    def __init__(self, connection: sa.Connection) -> None:
        super().__init__()
        inspector = sa.inspect(connection)
        self.present = frozenset(inspector.get_table_names())
        materialized = inspector.get_materialized_view_names() if connection.dialect.name == 'postgresql' else ()
        self.views = frozenset({*inspector.get_view_names(), *materialized})
        for table, upstream_name in tables.UPSTREAM_NAMES.items():
            name = upstream_name if upstream_name in self.present else table.name
            if name in self.present:
                self[table] = sa.table(name, *(sa.column(column.name, column.type) for column in table.columns))

    def ours(self, name: str) -> str:
        """Return our name for the table ``name`` of the database, or ``name`` if the table is not a shared one."""
        return next((table.name for table, present in self.items() if present.name == name), name)

    def problems(self) -> Iterator[str]:
        """Yield tables that are missing, or that exist under both names, and views that have the name of a table."""
        for table, name in tables.UPSTREAM_NAMES.items():
            if table not in self and table not in tables.ADDED:
                yield f'There is no table {name}.'
            if name != table.name and {name, table.name} <= self.present:
                yield f'There are both a table {name} and a table {table.name}: drop the one that is not in use.'
            for view in sorted({name, table.name} & self.views):
                yield f'There is a view {view}, which has the name of a table: drop the view.'

    def added(self) -> Iterator[Step]:
        """Yield a step for each table that the other service does not have."""
        for table in tables.SHARED:
            if table not in self:
                yield Step(f'Create the table {table.name}.', functools.partial(table.create, checkfirst=True))

    def add_prefix(self) -> Iterator[Step]:
        """Yield the step that gives the tables our names, unless they have them."""
        reason = 'add the prefix placement_, so that the other service can no longer write'
        yield from _renaming({present.name: table.name for table, present in self.items()}, reason)

    def rename_back(self, connection: sa.Connection) -> None:
        """Undo the step of ``add_prefix``."""
        names = {table.name: present.name for table, present in self.items() if present.name != table.name}
        _rename(names, connection)

    def remove_prefix(self) -> Iterator[Step]:
        """Yield the step that gives the tables the names that another service has for them, unless they have them."""
        names = {present.name: tables.UPSTREAM_NAMES[table] for table, present in self.items()}
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
        present = sorted(table.name for table in names.values())
        if present:
            sql.execute_text(connection, f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_SECONDS}s'")

            def lock() -> None:
                with connection.begin_nested():
                    sql.execute_text(connection, f'LOCK TABLE {", ".join(present)} IN ACCESS EXCLUSIVE MODE')

            # If another transaction has locked one of the tables and waits for another, the server ends one of the two.
            retries.retry(lock, errors.is_deadlock, retries=_MAX_LOCK_RETRIES)
