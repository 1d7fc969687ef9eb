"""What resource classes and traits have in common: a name that is standard for good, or custom and may come and go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, name_cache, statements
from placement.objects import base
from placement.objects.base import Context

N = TypeVar('N', bound='CustomName')

#: How often to look for, and create, a name that others create and delete.
_ATTEMPTS = 10


class Failures(NamedTuple):
    """What to raise, given a name, when there is none, when it is standard and cannot go, and when it is in use."""

    not_found: Callable[[str], exception.NotFound]
    standard: Callable[[str], exception.Invalid]
    in_use: Callable[[str], exception.Conflict]


class CustomName(base.Timestamped):
    """A row of a table of names, which anybody may add to; some of the names are standard.

    ``TABLE`` is that table, ``USES`` selects from whatever refers to the row whose id is ``sought``.
    """

    TABLE: ClassVar[sa.Table]
    USES: ClassVar[sa.Select[Any]]
    FAILURES: ClassVar[Failures]

    id: int
    name: str

    @classmethod
    def create(cls: type[N], context: Context, name: str) -> N:
        """Store a new row under a valid custom name.

        :raises NameTaken: there is one already.
        """
        raise NotImplementedError

    @classmethod
    def get_by_name(cls: type[N], context: Context, name: str) -> N:
        """The one called ``name``.

        :raises NotFound: there is none; which kind depends on the class.
        """
        rows = context.db.ask(cls.by_name(name)) if statements.storable(name) else []
        if not rows:
            raise cls.FAILURES.not_found(name)
        return cls.from_row(context, rows[0])

    @classmethod
    def ensure(cls: type[N], context: Context, name: str) -> tuple[N, bool]:
        """The one called ``name``, a valid custom name, and whether this call created it.

        :raises ConcurrentUpdate: others kept creating and deleting it.
        """
        for _attempt in range(_ATTEMPTS):
            try:
                return cls.get_by_name(context, name), False
            except exception.NotFound:
                pass
            # When somebody else creates it right now, there is one; unless it is deleted again before we look.
            with contextlib.suppress(exception.NameTaken):
                return cls.create(context, name), True
        raise exception.ConcurrentUpdate

    @classmethod
    def read(cls: type[N], context: Context, tx: sa.Connection, name: str) -> N:
        """The one called ``name``, as a transaction sees it.

        :raises NotFound: there is none; which kind depends on the class.
        """
        row = tx.execute(cls.by_name(name)).first() if statements.storable(name) else None
        if row is None:
            raise cls.FAILURES.not_found(name)
        return cls.from_row(context, row)

    @classmethod
    def destroy(cls, context: Context, name: str) -> None:
        """Remove a custom name.

        :raises NotFound: there is none; which kind depends on the class, as it does below.
        :raises Invalid: it is not custom.
        :raises Conflict: it is in use.
        """

        def work(tx: sa.Connection) -> None:
            found = cls.read(context, tx, name)
            if not name_cache.is_custom(name):
                raise cls.FAILURES.standard(name)
            if tx.execute(cls.USES, {'sought': found.id}).first() is not None:
                raise cls.FAILURES.in_use(name)
            try:
                cls._delete(tx, found)
            except db_exc.DBReferenceError as error:
                # Somebody began to use it since we looked.
                raise cls.FAILURES.in_use(name) from error
            changes.names(tx)

        context.db.write(work)

    @classmethod
    def by_name(cls, name: str) -> sa.Select[Any]:
        """What selects the row called ``name``."""
        return sa.select(cls.TABLE).where(cls.TABLE.c.name == name)

    @classmethod
    def _delete(cls, tx: sa.Connection, found: CustomName) -> None:
        """Delete the row that was read as ``found``; start over when it is not what it was."""
        gone = tx.execute(cls.TABLE.delete().where(cls.TABLE.c.id == found.id, cls.TABLE.c.name == found.name))
        if gone.rowcount != 1:
            raise db_api.TryAgain
