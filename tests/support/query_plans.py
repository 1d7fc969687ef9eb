"""How SQLite finds the rows that a statement is about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from placement.db import tables
from placement.db.api import Database
from tests.support.event_hooks import listening

#: Tables that do not grow with the cloud.
_CATALOGUES = (
    tables.resource_classes,
    tables.resource_class_sequence,
    tables.traits,
    tables.consumer_types,
    tables.change_log_slots,
)
_GROWING = set(tables.metadata.tables) - {table.name for table in _CATALOGUES}


@contextlib.contextmanager
def no_scans(db: Database) -> Iterator[None]:
    """Assert at the end that no statement in between read the whole of a table that grows with the cloud."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not statement.startswith('BEGIN'):
            seen.append((statement, parameters[0] if many else parameters))

    event = 'before_cursor_execute'
    with listening(db.engine, event, note):
        yield
    with db.engine.connect() as connection:
        for statement, parameters in seen:
            plan = connection.exec_driver_sql(f'EXPLAIN QUERY PLAN {statement}', parameters).all()
            scanned = {words[1] for words in (row.detail.split() for row in plan) if words[0] == 'SCAN'}
            assert not scanned & _GROWING, f'{statement}\n{[row.detail for row in plan]}'
