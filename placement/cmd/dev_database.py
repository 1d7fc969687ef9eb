"""The database of ``placement-api --dev``: a file that is found again from the directory that it was made in."""

from __future__ import annotations

import pathlib

import sqlalchemy as sa

#: Its name, unless ``--database`` says otherwise.
FILE_NAME = 'placement-dev.sqlite'


def url(path: pathlib.Path) -> str:
    """Return the value of ``[placement_database] connection`` for a file."""
    return sa.URL.create('sqlite', database=str(path.absolute())).render_as_string()


def here() -> pathlib.Path | None:
    """Return the file in the current directory, None when there is none."""
    path = pathlib.Path(FILE_NAME)
    return path.absolute() if path.is_file() else None
