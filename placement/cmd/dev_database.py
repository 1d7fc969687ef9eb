"""The database of ``placement-api --dev``: an SQLite file, by default in the current directory."""

from __future__ import annotations

import pathlib

import sqlalchemy as sa

#: The name of the file, unless ``--database`` gives another path.
FILE_NAME = 'placement-dev.sqlite'


def url(path: pathlib.Path) -> str:
    """Return the value of ``[placement_database] connection`` for a file."""
    return sa.URL.create('sqlite', database=str(path.absolute())).render_as_string()


def find() -> pathlib.Path | None:
    """Return the absolute path of the file in the current directory, None when there is none."""
    path = pathlib.Path(FILE_NAME)
    return path.absolute() if path.is_file() else None
