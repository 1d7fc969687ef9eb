"""What the errors of each database mean, in a statement and at COMMIT."""

from __future__ import annotations

import pathlib
import re
import sqlite3
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

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


class Examples(NamedTuple):
    """Errors of one kind, and the fields of their row in ``errors.ERRORS``."""

    kind: ErrorKind
    errors: list[Exception | Closing]
    rolls_back_at_commit: bool = False
    discards_pool: bool = False


KNOWN = [
    Examples(
        ErrorKind.READ_ONLY,
        [mysql(1290), mysql(1792), mysql(1836), Closing(mysql(1290))],
        rolls_back_at_commit=True,
        discards_pool=True,
    ),
    Examples(
        ErrorKind.READ_ONLY,
        [sqlite('SQLITE_READONLY_DBMOVED'), sqlite('SQLITE_FULL')],
        rolls_back_at_commit=True,
        discards_pool=True,
    ),
    Examples(
        ErrorKind.READ_ONLY, [mysql(1021), mysql(1114), postgresql('53100'), postgresql('25006')], discards_pool=True
    ),
    Examples(
        ErrorKind.UNAVAILABLE,
        [mysql(1047), mysql(3782), mysql(3783), mysql(3796), mysql(3799), Closing(mysql(3796))],
        discards_pool=True,
    ),
    Examples(ErrorKind.UNAVAILABLE, [mysql(2002), mysql(2003), mysql(2006), mysql(2013), mysql(2055)]),
    Examples(ErrorKind.UNAVAILABLE, [mysql(1158), mysql(1159), mysql(1160), mysql(1161), mysql(1927)]),
    Examples(ErrorKind.UNAVAILABLE, [mysql(4031), mysql(1040), mysql(1203), mysql(1053)]),
    Examples(ErrorKind.UNAVAILABLE, [postgresql('08006'), postgresql('57P01'), postgresql('53300')]),
    Examples(ErrorKind.UNAVAILABLE, [postgresql('25P03'), postgresql('25P04'), Closing(postgresql('57014'))]),
    Examples(ErrorKind.UNAVAILABLE, [sqlite('SQLITE_IOERR_READ'), sqlite('SQLITE_NOTADB')]),
    Examples(ErrorKind.UNAVAILABLE, [sqlite('SQLITE_CORRUPT'), sqlite('SQLITE_CANTOPEN')]),
    Examples(ErrorKind.UNAVAILABLE, [db_exc.DBConnectionError(), db_exc.DBNonExistentDatabase('')]),
    Examples(ErrorKind.UNAVAILABLE, [sa.exc.TimeoutError(), Closing(DriverError('the connection is closed'))]),
    Examples(ErrorKind.CONFLICT, [mysql(3100), mysql(3101)]),
    Examples(
        ErrorKind.CONFLICT,
        [mysql(1213), mysql(1180, 'Got error 149 "Lock deadlock" during COMMIT')],
        rolls_back_at_commit=True,
    ),
    Examples(
        ErrorKind.CONFLICT, [mysql(1205), mysql(3572), mysql(1020), postgresql('55P03')], rolls_back_at_commit=True
    ),
    Examples(ErrorKind.CONFLICT, [postgresql('40P01'), postgresql('40001')], rolls_back_at_commit=True),
    Examples(
        ErrorKind.CONFLICT, [db_exc.DBDeadlock(), db_exc.DBReferenceError('', '', '', '')], rolls_back_at_commit=True
    ),
    Examples(
        ErrorKind.CONFLICT,
        [sqlite('SQLITE_LOCKED_SHAREDCACHE'), sqlite('SQLITE_BUSY_SNAPSHOT')],
        rolls_back_at_commit=True,
    ),
    Examples(ErrorKind.SQLITE_BUSY, [sqlite('SQLITE_BUSY')], rolls_back_at_commit=True),
    Examples(ErrorKind.INTERRUPTED, [mysql(1317)]),
    Examples(
        ErrorKind.CANCELED, [mysql(1969), mysql(3024), mysql(3781), mysql(3797), mysql(3798), postgresql('57014')]
    ),
    Examples(ErrorKind.TABLE_MISSING, [mysql(1146), postgresql('42P01')]),
    Examples(ErrorKind.TABLE_MISSING, [sqlite('SQLITE_ERROR', 'no such table: t')]),
    Examples(ErrorKind.OTHER, [mysql(1180, 'Got error 1490 during COMMIT'), postgresql('40003')]),
    Examples(ErrorKind.OTHER, [sqlite('SQLITE_ERROR', 'syntax error'), ZeroDivisionError()]),
]


def raised(error: Exception | Closing) -> Exception:
    """As SQLAlchemy raises it."""
    if isinstance(error, Closing):
        return sa.exc.OperationalError('COMMIT', None, error.error, connection_invalidated=True)
    if isinstance(error, DriverError | sqlite3.Error):
        return sa.exc.OperationalError('COMMIT', None, error)
    return error


@pytest.mark.parametrize(
    ('error', 'examples'),
    [pytest.param(error, examples, id=repr(error)) for examples in KNOWN for error in examples.errors],
)
def test_the_row_of_an_error(error: Exception | Closing, examples: Examples) -> None:
    row = errors.known_error_of(raised(error))
    assert row.kind is examples.kind
    assert row.rolls_back_at_commit == examples.rolls_back_at_commit
    assert row.discards_pool == examples.discards_pool


def test_an_error_that_discards_the_pool_stays_in_its_row() -> None:
    """It then counts as one that broke its connection, as all of the row with ``has_disconnects``."""
    (row_of_disconnects,) = (row for row in errors.ERRORS if row.has_disconnects)
    rows_before = errors.ERRORS[: errors.ERRORS.index(row_of_disconnects)]
    assert [row for row in errors.ERRORS if row.discards_pool and row not in rows_before] == []


def test_each_code_and_type_has_an_example() -> None:
    """One that does not close the connection, because any that does is ``UNAVAILABLE``, whatever its code is.

    It is one for each pattern, so nothing demands one for each code that a pattern such as ``57P.*`` covers.
    """
    examples = [raised(error) for known in KNOWN for error in known.errors if not isinstance(error, Closing)]
    for row in errors.ERRORS:
        matching = [error for error in examples if errors.known_error_of(error) is row]
        codes = [errors._code(error) for error in matching]
        assert [code for code in row.codes.split('|') if not any(re.fullmatch(code, tested) for tested in codes)] == []
        assert [type_ for type_ in row.types if not any(isinstance(error, type_) for error in matching)] == []


def test_the_documentation_has_the_codes_of_a_read_only_database() -> None:
    page = (pathlib.Path(__file__).parents[2] / 'doc/database.md').read_text()
    section = page.partition('### A read-only database')[2].partition('\n#')[0]
    patterns = ' '.join(row.codes for row in errors.ERRORS if row.kind is ErrorKind.READ_ONLY)
    assert set(re.findall(r'\b(?:\d{4,5}|SQLITE_\w+)', section)) == set(re.findall(r'\w+', patterns))
