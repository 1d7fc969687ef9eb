"""Column types and functions that behave the same on every database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler, TypeCompiler
from sqlalchemy.sql.functions import FunctionElement


class Text(sa.String):
    """A string of up to ``length`` code points, compared code point by code point.

    This is the default of SQLite and PostgreSQL. The default of MySQL and MariaDB ignores case and trailing blanks, so
    different names would be equal.
    """

    cache_ok = True
    __visit_name__ = 'placement_text'


@compiles(Text)
def _plain(type_: Text, _compiler: TypeCompiler, **_kw: Any) -> str:
    return f'VARCHAR({type_.length})'


@compiles(Text, 'mysql')
@compiles(Text, 'mariadb')
def _mysql(type_: Text, compiler: TypeCompiler, **_kw: Any) -> str:
    # MariaDB and MySQL 8 have different names for the collation that compares all bytes, including trailing blanks.
    collation = 'utf8mb4_nopad_bin' if getattr(compiler.dialect, 'is_mariadb', False) else 'utf8mb4_0900_bin'
    return f'VARCHAR({type_.length}) CHARACTER SET utf8mb4 COLLATE {collation}'


#: By name of the dialect, the current time by the clock of the database, in UTC without a time zone. MySQL requires the
#: parentheses in the default of a column.
UTC_NOW = {
    'sqlite': 'CURRENT_TIMESTAMP',
    'postgresql': "timezone('utc', now())",
    'mysql': '(utc_timestamp())',
    'mariadb': '(utc_timestamp())',
}


class UtcNow(FunctionElement[Any]):
    """``UTC_NOW`` as an expression, which can be the default of a column."""

    inherit_cache = True
    type = sa.DateTime()


@compiles(UtcNow)
def _utc_now(_element: UtcNow, compiler: SQLCompiler, **_kw: Any) -> str:
    return UTC_NOW[compiler.dialect.name]
