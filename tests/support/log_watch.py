"""Checks every write of a test run: a transaction that changes cached tables has to record each provider it changed.

What changed is found by comparing rows, not from the statements: the cached tables that a transaction is about to
change are read before its first statement, and again before its COMMIT. Only on SQLite, where no other transaction
can write meanwhile; the statements are the same on every database.
"""

from __future__ import annotations

import collections
import contextlib
import re
import weakref
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from placement.db import change_log, tables
from placement.db.change_log import NO_PROVIDER, ChangeKind
from tests.support.event_hooks import listening

_CHANGE = re.compile(
    r'\s*(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE|DELETE\s+FROM)\s+"?(\w+)', re.IGNORECASE
)

#: Table: the column with the provider of a row; None for names, which belong to no provider.
_OWNER = {
    'placement_resource_providers': 'id',
    'placement_inventories': 'resource_provider_id',
    'placement_resource_provider_traits': 'resource_provider_id',
    'placement_resource_provider_aggregates': 'resource_provider_id',
    'placement_resource_classes': None,
    'placement_traits': None,
}
#: Table: the columns that a change of usage changes.
_OF_USAGE = {
    'placement_resource_providers': {'generation', 'updated_at'},
    'placement_inventories': {'used', 'updated_at'},
}

Row = tuple[Any, ...]
#: Provider: its rows in one table.
Contents = dict[int, set[Row]]


class Watch:
    """The changes that were not recorded since the last call."""

    def __init__(self) -> None:
        self.unrecorded: list[str] = []
        self._before: weakref.WeakKeyDictionary[sa.Connection, dict[str, Contents]] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def on_all_engines(self) -> Iterator[None]:
        """Check the transactions of all engines of this process."""
        with (
            listening(sa.Engine, 'before_cursor_execute', self._look_before),
            listening(sa.Engine, 'commit', self._look_after),
        ):
            yield

    def _look_before(self, connection: sa.Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        match = _CHANGE.match(statement)
        if match is None or match[1] not in _OWNER:
            return
        notes = _notes(connection)
        if notes is not None:
            before = self._before.setdefault(connection, {})
            if match[1] not in before:
                before[match[1]] = _contents(connection, match[1])

    def _look_after(self, connection: sa.Connection) -> None:
        notes = _notes(connection)
        before = self._before.pop(connection, None)
        if notes is None or before is None:
            return
        if ChangeKind.RELOAD in notes.values():
            return
        changed: dict[int, ChangeKind] = {}
        for table, contents in before.items():
            for owner, what in _compare(table, contents, _contents(connection, table)):
                changed[owner] = max(what, changed.get(owner, what))
        for owner, what in changed.items():
            recorded = notes.get(owner, 0)
            if what is ChangeKind.NAMES:
                # An entry for all names also stands for new ones.
                recorded = max(recorded, notes.get(NO_PROVIDER, 0))
            if recorded < what:
                text = 'names changed' if what is ChangeKind.NAMES else f'provider {owner} changed'
                self.unrecorded.append(f'{text} ({what.name}), recorded was {notes}')


def _notes(connection: sa.Connection) -> dict[int, ChangeKind] | None:
    if connection.dialect.name != 'sqlite':
        return None
    return connection.get_execution_options().get(change_log._CHANGES)


def _contents(connection: sa.Connection, table: str) -> Contents:
    """All rows of a table by provider, read without events."""
    owner = _OWNER[table]
    columns = tables.metadata.tables[table].columns.keys()
    cursor = connection.connection.cursor()
    try:
        cursor.execute(f'SELECT {", ".join(columns)} FROM {table}')
        rows: Contents = collections.defaultdict(set)
        position = columns.index(owner) if owner else None
        for row in cursor.fetchall():
            rows[NO_PROVIDER if position is None else row[position]].add(tuple(row))
        return rows
    finally:
        cursor.close()


def _compare(table: str, before: Contents, after: Contents) -> Iterator[tuple[int, ChangeKind]]:
    for owner in before.keys() | after.keys():
        old, new = before.get(owner, set()), after.get(owner, set())
        if old != new:
            if _OWNER[table] is None:
                yield from ((_new_name(table, row), ChangeKind.NAMES) for row in new - old)
                if old - new:
                    yield NO_PROVIDER, ChangeKind.NAMES
            elif _without_usage(table, old) == _without_usage(table, new):
                yield owner, ChangeKind.USAGE
            else:
                yield owner, ChangeKind.PROVIDER


def _new_name(table: str, row: Row) -> int:
    """What stands for a new name in the log."""
    id_ = row[tables.metadata.tables[table].columns.keys().index('id')]
    return -2 * id_ - (1 if table == tables.resource_classes.name else 0)


def _without_usage(table: str, rows: set[Row]) -> set[Row]:
    columns = tables.metadata.tables[table].columns.keys()
    positions = [position for position, name in enumerate(columns) if name not in _OF_USAGE.get(table, set())]
    return {tuple(row[position] for position in positions) for row in rows}
