"""What the errors of each database mean, in a statement and at COMMIT."""

from __future__ import annotations

import pathlib
import re
import sqlite3
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from placement.db import errors
from placement.db.errors import ErrorKind


class DriverError(Exception):
    """An error of a driver that the default suite does without: PyMySQL's has the number, psycopg's the SQLSTATE."""

    sqlstate: str | None = None


class Closing(NamedTuple):
    """An error after which the driver or the service has closed the connection."""

    error: Exception


def mysql(number: int, text: str = '') -> Exception:
    return DriverError(number, text)


def postgresql(sqlstate: str) -> Exception:
    error = DriverError()
    error.sqlstate = sqlstate
    return error


def sqlite(name: str, text: str = '') -> Exception:
    error = sqlite3.OperationalError(text or name)
    error.sqlite_errorname = name
    return error


#: Errors, their kinds, and whether a COMMIT that fails with them has certainly not committed.
KNOWN: list[tuple[Exception | Closing, ErrorKind, bool]] = [
    (mysql(1213), ErrorKind.CONFLICT, True),
    (mysql(1205), ErrorKind.CONFLICT, True),
    (mysql(3100), ErrorKind.CONFLICT, False),
    (mysql(3101), ErrorKind.CONFLICT, False),
    (mysql(3572), ErrorKind.CONFLICT, True),
    (mysql(1180, 'Got error 149 "Lock deadlock" during COMMIT'), ErrorKind.CONFLICT, True),
    (mysql(1180, 'Got error 1490 during COMMIT'), ErrorKind.OTHER, False),
    (mysql(1317), ErrorKind.INTERRUPTED, False),
    (mysql(1969), ErrorKind.CANCELED, False),
    (Closing(mysql(1290)), ErrorKind.READ_ONLY, True),
    (Closing(mysql(1021)), ErrorKind.READ_ONLY, False),
    (mysql(1040), ErrorKind.UNAVAILABLE, False),
    (Closing(mysql(1047)), ErrorKind.UNAVAILABLE, False),
    (Closing(mysql(2013)), ErrorKind.UNAVAILABLE, False),
    (Closing(mysql(4031)), ErrorKind.UNAVAILABLE, False),
    (mysql(1146), ErrorKind.TABLE_MISSING, False),
    (postgresql('40P01'), ErrorKind.CONFLICT, True),
    (postgresql('40001'), ErrorKind.CONFLICT, True),
    (postgresql('40003'), ErrorKind.OTHER, False),
    (postgresql('57014'), ErrorKind.CANCELED, False),
    (Closing(postgresql('57014')), ErrorKind.UNAVAILABLE, False),
    (Closing(postgresql('53100')), ErrorKind.READ_ONLY, False),
    (Closing(postgresql('25006')), ErrorKind.READ_ONLY, False),
    (Closing(postgresql('25P03')), ErrorKind.UNAVAILABLE, False),
    (Closing(postgresql('57P01')), ErrorKind.UNAVAILABLE, False),
    (postgresql('57P03'), ErrorKind.UNAVAILABLE, False),
    (Closing(postgresql('57P05')), ErrorKind.UNAVAILABLE, False),
    (Closing(DriverError('the connection is closed')), ErrorKind.UNAVAILABLE, False),
    (sqlite('SQLITE_BUSY'), ErrorKind.SQLITE_BUSY, True),
    (sqlite('SQLITE_BUSY_SNAPSHOT'), ErrorKind.CONFLICT, True),
    (sqlite('SQLITE_LOCKED_SHAREDCACHE'), ErrorKind.CONFLICT, True),
    (Closing(sqlite('SQLITE_FULL')), ErrorKind.READ_ONLY, True),
    (sqlite('SQLITE_IOERR'), ErrorKind.UNAVAILABLE, False),
    (sqlite('SQLITE_ERROR', 'no such table: t'), ErrorKind.TABLE_MISSING, False),
    (ZeroDivisionError(), ErrorKind.OTHER, False),
]


def of_driver(error: Exception | Closing) -> Exception:
    """As SQLAlchemy raises it."""
    if isinstance(error, ZeroDivisionError):
        return error
    if isinstance(error, Closing):
        return sa.exc.OperationalError('COMMIT', None, error.error, connection_invalidated=True)
    return sa.exc.OperationalError('COMMIT', None, error)


@pytest.mark.parametrize(
    ('error', 'kind', 'excludes_commit'),
    KNOWN,
    ids=lambda value: repr(value) if isinstance(value, Exception | Closing) else None,
)
def test_the_kind_of_an_error(error: Exception | Closing, kind: ErrorKind, excludes_commit: bool) -> None:
    row = errors.row_of(of_driver(error))
    assert (row.kind, row.excludes_commit) == (kind, excludes_commit)


def test_each_row_of_the_table_is_tested() -> None:
    assert {errors.row_of(of_driver(error)) for error, _, _ in KNOWN} == set(errors.ERRORS)


def test_the_documentation_has_the_codes_of_a_read_only_database() -> None:
    page = (pathlib.Path(__file__).parents[2] / 'doc/database.md').read_text()
    section = page.partition('### A read-only database')[2].partition('\n#')[0]
    patterns = ' '.join(row.codes for row in errors.ERRORS if row.kind is ErrorKind.READ_ONLY)
    assert set(re.findall(r'\b(?:\d{4,5}|SQLITE_\w+)', section)) == set(re.findall(r'\w+', patterns))
