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


#: Kinds of errors, whether a COMMIT that fails with them has certainly not committed, whether the service closes its
#: connections, and the errors.
KNOWN: list[tuple[ErrorKind, bool, bool, list[Exception | Closing]]] = [
    (ErrorKind.READ_ONLY, True, True, [mysql(1290), mysql(1792), mysql(1836), Closing(mysql(1290))]),
    (ErrorKind.READ_ONLY, True, True, [sqlite('SQLITE_READONLY_DBMOVED'), sqlite('SQLITE_FULL')]),
    (ErrorKind.READ_ONLY, False, True, [mysql(1021), mysql(1114), postgresql('53100'), postgresql('25006')]),
    (
        ErrorKind.UNAVAILABLE,
        False,
        True,
        [mysql(1047), mysql(3782), mysql(3783), mysql(3796), mysql(3799), Closing(mysql(3796))],
    ),
    (ErrorKind.UNAVAILABLE, False, False, [mysql(2002), mysql(2003), mysql(2006), mysql(2013), mysql(2055)]),
    (ErrorKind.UNAVAILABLE, False, False, [mysql(1158), mysql(1159), mysql(1160), mysql(1161), mysql(1927)]),
    (ErrorKind.UNAVAILABLE, False, False, [mysql(4031), mysql(1040), mysql(1203), mysql(1053)]),
    (ErrorKind.UNAVAILABLE, False, False, [postgresql('08006'), postgresql('57P01'), postgresql('53300')]),
    (ErrorKind.UNAVAILABLE, False, False, [postgresql('25P03'), postgresql('25P04'), Closing(postgresql('57014'))]),
    (ErrorKind.UNAVAILABLE, False, False, [sqlite('SQLITE_IOERR_READ'), sqlite('SQLITE_NOTADB')]),
    (ErrorKind.UNAVAILABLE, False, False, [sqlite('SQLITE_CORRUPT'), sqlite('SQLITE_CANTOPEN')]),
    (ErrorKind.UNAVAILABLE, False, False, [db_exc.DBConnectionError(), db_exc.DBNonExistentDatabase('')]),
    (ErrorKind.UNAVAILABLE, False, False, [sa.exc.TimeoutError(), Closing(DriverError('the connection is closed'))]),
    (ErrorKind.CONFLICT, False, False, [mysql(3100), mysql(3101)]),
    (ErrorKind.CONFLICT, True, False, [mysql(1213), mysql(1180, 'Got error 149 "Lock deadlock" during COMMIT')]),
    (ErrorKind.CONFLICT, True, False, [mysql(1205), mysql(3572), mysql(1020), postgresql('55P03')]),
    (ErrorKind.CONFLICT, True, False, [postgresql('40P01'), postgresql('40001')]),
    (ErrorKind.CONFLICT, True, False, [db_exc.DBDeadlock(), db_exc.DBReferenceError('', '', '', '')]),
    (ErrorKind.CONFLICT, True, False, [sqlite('SQLITE_LOCKED_SHAREDCACHE'), sqlite('SQLITE_BUSY_SNAPSHOT')]),
    (ErrorKind.SQLITE_BUSY, True, False, [sqlite('SQLITE_BUSY')]),
    (ErrorKind.INTERRUPTED, False, False, [mysql(1317)]),
    (
        ErrorKind.CANCELED,
        False,
        False,
        [mysql(1969), mysql(3024), mysql(3781), mysql(3797), mysql(3798), postgresql('57014')],
    ),
    (ErrorKind.TABLE_MISSING, False, False, [mysql(1146), postgresql('42P01')]),
    (ErrorKind.TABLE_MISSING, False, False, [sqlite('SQLITE_ERROR', 'no such table: t')]),
    (ErrorKind.OTHER, False, False, [mysql(1180, 'Got error 1490 during COMMIT'), postgresql('40003')]),
    (ErrorKind.OTHER, False, False, [sqlite('SQLITE_ERROR', 'syntax error'), ZeroDivisionError()]),
]


def raised(error: Exception | Closing) -> Exception:
    """As SQLAlchemy raises it."""
    if isinstance(error, Closing):
        return sa.exc.OperationalError('COMMIT', None, error.error, connection_invalidated=True)
    if isinstance(error, DriverError | sqlite3.Error):
        return sa.exc.OperationalError('COMMIT', None, error)
    return error


@pytest.mark.parametrize(
    ('error', 'expected'),
    [pytest.param(error, expected, id=repr(error)) for *expected, known in KNOWN for error in known],
)
def test_the_kind_of_an_error(error: Exception | Closing, expected: list[object]) -> None:
    row = errors.known_error_of(raised(error))
    assert [row.kind, row.rolls_back_at_commit, row.discards_pool] == expected


def test_each_code_and_type_has_an_example() -> None:
    """One that does not close the connection, because any that does is ``UNAVAILABLE``, whatever its code is."""
    examples = [raised(error) for *_, known in KNOWN for error in known if not isinstance(error, Closing)]
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
