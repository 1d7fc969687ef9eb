"""The views under which readers of another Placement service find its tables, in a second database (doc/adopt.md)."""

from __future__ import annotations

import pathlib

from placement.db import tables
from tests.support.pages import ROOT

#: What only this service has in the shared tables.
_OWN_COLUMNS = {
    tables.inventories: {'used'},
    tables.allocations: set(tables.CONSUMER_COPIES),
}
_HEADERS = {
    'mysql': """\
-- Views in a second database, placement_upstream, with the names and columns that other Placement services have for
-- their tables. For programs that read these tables: doc/adopt.md. The tables are in the database placement.
CREATE DATABASE placement_upstream CHARACTER SET utf8mb4;
""",
    'postgresql': """\
-- Views in a second schema, placement_upstream, with the names and columns that other Placement services have for
-- their tables. For programs that read these tables: doc/adopt.md. The tables are in the schema public.
CREATE SCHEMA placement_upstream;
""",
}
_SOURCES = {'mysql': 'placement', 'postgresql': 'public'}


def file(backend: str) -> pathlib.Path:
    """Return the path of the file with the views for ``mysql`` (also MariaDB) or ``postgresql``."""
    return ROOT / 'etc' / 'sql' / f'upstream-views-{backend}.sql'


def script(backend: str) -> str:
    """Return the contents of that file, made from the declarations of the tables."""
    views = [_HEADERS[backend]]
    for table, name in sorted(tables.UPSTREAM_NAMES.items(), key=lambda item: item[1]):
        columns = [column.name for column in table.columns if column.name not in _OWN_COLUMNS.get(table, ())]
        source = f'{_SOURCES[backend]}.{table.name}'
        views.append(f'CREATE VIEW placement_upstream.{name} AS\n  SELECT {", ".join(columns)}\n  FROM {source};\n')
    return ''.join(views)
