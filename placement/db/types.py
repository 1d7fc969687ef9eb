"""Column types that behave the same on every database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import TypeCompiler


class Text(sa.String):
    """A string of up to ``length`` code points, compared code point by code point.

    SQLite and PostgreSQL do that by themselves. MySQL and MariaDB fold case and ignore trailing blanks unless
    told otherwise, which would make two different names one.
    """

    cache_ok = True
    __visit_name__ = 'placement_text'


@compiles(Text)
def _plain(type_: Text, _compiler: TypeCompiler, **_kw: Any) -> str:
    return f'VARCHAR({type_.length})'


@compiles(Text, 'mysql')
@compiles(Text, 'mariadb')
def _mysql(type_: Text, compiler: TypeCompiler, **_kw: Any) -> str:
    # MariaDB and MySQL 8 name the collation "bytes, trailing blanks count" differently.
    collation = 'utf8mb4_nopad_bin' if getattr(compiler.dialect, 'is_mariadb', False) else 'utf8mb4_0900_bin'
    return f'VARCHAR({type_.length}) CHARACTER SET utf8mb4 COLLATE {collation}'
