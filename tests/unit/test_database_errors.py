"""What the errors of each database mean, in a statement and at COMMIT."""

from __future__ import annotations

import sqlite3

import pytest
import sqlalchemy as sa

from placement.db import errors
from placement.db.errors import ErrorKind


class DriverError(Exception):
    """An error of a driver that the default suite does without: PyMySQL's has the number, psycopg's the SQLSTATE."""

    sqlstate: str | None = None


def mysql(number: int, text: str = '') -> Exception:
    return DriverError(number, text)


def postgresql(sqlstate: str) -> Exception:
    error = DriverError()
    error.sqlstate = sqlstate
    return error


def sqlite(name: str) -> Exception:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ('error', 'kind', 'excludes_commit'),
    [
        (mysql(1213), ErrorKind.CONFLICT, True),
        (mysql(1205), ErrorKind.CONFLICT, True),
        (mysql(3100), ErrorKind.CONFLICT, False),
        (mysql(3101), ErrorKind.CONFLICT, False),
        (mysql(3572), ErrorKind.CONFLICT, True),
        (mysql(1180, 'Got error 149 "Lock deadlock" during COMMIT'), ErrorKind.CONFLICT, True),
        (mysql(1180, 'Got error 1490 during COMMIT'), ErrorKind.OTHER, False),
        (mysql(1317), ErrorKind.INTERRUPTED, False),
        (mysql(1969), ErrorKind.CANCELED, False),
        (mysql(1290), ErrorKind.READ_ONLY, True),
        (mysql(1021), ErrorKind.READ_ONLY, False),
        (mysql(1047), ErrorKind.UNAVAILABLE, False),
        (mysql(1146), ErrorKind.TABLE_MISSING, False),
        (postgresql('40P01'), ErrorKind.CONFLICT, True),
        (postgresql('40001'), ErrorKind.CONFLICT, True),
        (postgresql('40003'), ErrorKind.OTHER, False),
        (postgresql('57014'), ErrorKind.CANCELED, False),
        (postgresql('53100'), ErrorKind.READ_ONLY, False),
        (postgresql('25006'), ErrorKind.READ_ONLY, False),
        (postgresql('57P01'), ErrorKind.UNAVAILABLE, False),
        (sqlite('SQLITE_BUSY'), ErrorKind.SQLITE_BUSY, True),
        (sqlite('SQLITE_BUSY_SNAPSHOT'), ErrorKind.CONFLICT, True),
        (sqlite('SQLITE_LOCKED_SHAREDCACHE'), ErrorKind.CONFLICT, True),
        (sqlite('SQLITE_FULL'), ErrorKind.READ_ONLY, True),
        (sqlite('SQLITE_IOERR'), ErrorKind.UNAVAILABLE, False),
        (ZeroDivisionError(), ErrorKind.OTHER, False),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else None,
)
def test_the_kind_of_an_error(error: Exception, kind: ErrorKind, excludes_commit: bool) -> None:
    if not isinstance(error, ZeroDivisionError):
        error = sa.exc.OperationalError('COMMIT', None, error)
    assert errors.classify(error) is kind
    assert errors.excludes_commit(error) is excludes_commit
