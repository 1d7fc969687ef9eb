"""Column types and functions that behave the same on every database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler, TypeCompiler
from sqlalchemy.sql.functions import FunctionElement


class Text(sa.String):
    """A string of up to ``length`` code points, compared code point by code point.

    SQLite and PostgreSQL compare so by default. MySQL and MariaDB ignore case and trailing blanks by default, so that
    two different names would be equal.
    """

    cache_ok = True
    __visit_name__ = 'placement_text'


@compiles(Text)
def _plain(type_: Text, _compiler: TypeCompiler, **_kw: Any) -> str:
    return f'VARCHAR({type_.length})'


@compiles(Text, 'mysql')
@compiles(Text, 'mariadb')
def _mysql(type_: Text, compiler: TypeCompiler, **_kw: Any) -> str:
    # MariaDB and MySQL 8 have different names for the collation that compares bytes, trailing blanks included.
    collation = 'utf8mb4_nopad_bin' if getattr(compiler.dialect, 'is_mariadb', False) else 'utf8mb4_0900_bin'
    return f'VARCHAR({type_.length}) CHARACTER SET utf8mb4 COLLATE {collation}'


#: The present moment by the clock of the database, in UTC without a time zone, by name of the dialect. MySQL wants an
#: expression that is the default of a column in parentheses.
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
