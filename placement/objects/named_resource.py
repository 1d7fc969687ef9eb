"""The base of resource classes and traits: standard names, and custom ones that clients create and delete."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import sqlalchemy as sa

from placement import exception
from placement.db import api as db_api
from placement.db import change_log, name_cache, sql
from placement.objects import base
from placement.objects.base import Context

N = TypeVar('N', bound='NamedResource')

#: Maximum number of times that ``ensure`` reads a name and tries to create it, while others create and delete it.
_MAX_ATTEMPTS = 10


class Failures(NamedTuple):
    """Make the exceptions of a class, given a name: it does not exist, it is standard, it is in use."""

    not_found: Callable[[str], exception.NotFound]
    standard: Callable[[str], exception.Invalid]
    in_use: Callable[[str], exception.Conflict]


class NamedResource(base.Timestamped):
    """A row of a table of names.

    ``TABLE`` is that table. ``USES`` selects a row that refers to the name whose id is the parameter ``sought``.
    """

    TABLE: ClassVar[sa.Table]
    USES: ClassVar[sa.Select[Any]]
    FAILURES: ClassVar[Failures]

    id: int
    name: str

    @classmethod
    def create(cls: type[N], context: Context, name: str) -> N:
        """Insert a name, which has to be a valid custom one.

        :raises NameTaken: it exists.
        """
        raise NotImplementedError

    @classmethod
    def get_by_name(cls: type[N], context: Context, name: str) -> N:
        """Read the row of ``name``.

        :raises NotFound: there is none: ``FAILURES.not_found``.
        """
        rows = context.db.fetch_all(cls.by_name(name)) if sql.storable(name) else []
        if not rows:
            raise cls.FAILURES.not_found(name)
        return cls.from_row(context, rows[0])

    @classmethod
    def ensure(cls: type[N], context: Context, name: str) -> tuple[N, bool]:
        """Read the row of ``name``, a valid custom name, and insert it if it does not exist.

        :returns: the object, and whether this call created it.
        :raises ConcurrentUpdate: other clients created and deleted it during each attempt.
        """
        for _attempt in range(_MAX_ATTEMPTS):
            try:
                return cls.get_by_name(context, name), False
            except exception.NotFound:
                pass
            # If another client creates it at the same time, the next attempt reads it, unless it was deleted again.
            with contextlib.suppress(exception.NameTaken):
                return cls.create(context, name), True
        raise exception.ConcurrentUpdate

    @classmethod
    def get_in_transaction(cls: type[N], context: Context, tx: sa.Connection, name: str) -> N:
        """As ``get_by_name``, in the transaction ``tx``."""
        row = tx.execute(cls.by_name(name)).first() if sql.storable(name) else None
        if row is None:
            raise cls.FAILURES.not_found(name)
        return cls.from_row(context, row)

    @classmethod
    def destroy(cls, context: Context, name: str) -> None:
        """Delete a custom name.

        :raises NotFound: there is none: ``FAILURES.not_found``.
        :raises Invalid: it is standard: ``FAILURES.standard``.
        :raises Conflict: it is in use: ``FAILURES.in_use``.
        """

        def work(tx: sa.Connection) -> None:
            found = cls.get_in_transaction(context, tx, name)
            if not name_cache.is_custom(name):
                raise cls.FAILURES.standard(name)
            if tx.execute(cls.USES, {'sought': found.id}).first() is not None:
                raise cls.FAILURES.in_use(name)
            # If another transaction has begun to use it since, a foreign key fails, and the next attempt finds the use.
            deleted = tx.execute(cls.TABLE.delete().where(cls.TABLE.c.id == found.id, cls.TABLE.c.name == found.name))
            if deleted.rowcount != 1:
                # It was deleted or renamed since it was read.
                raise db_api.RetryTransaction
            change_log.record_names(tx)

        context.db.write(work)

    @classmethod
    def by_name(cls, name: str) -> sa.Select[Any]:
        """Return the query of the row of ``name``."""
        return sa.select(cls.TABLE).where(cls.TABLE.c.name == name)
