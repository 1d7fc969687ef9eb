"""The base classes of our versioned objects, and the functions that read the objects of one provider.

A class declares its fields as annotations, which the type checker also reads. ``PlacementObject`` makes the fields of
oslo.versionedobjects from them. If the fields of a class change, its ``VERSION`` has to be increased
(``tests/unit/test_objects.py`` has the fingerprints).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import sqlalchemy as sa
from oslo_utils import timeutils

from placement import exception
from placement.db import sql, tables
from placement.db.api import Database
from placement.db.generation import ProviderGeneration


@contextlib.contextmanager
def _without_messaging() -> Iterator[None]:
    """Let oslo.versionedobjects import an empty oslo.messaging (doc/dependencies.md#a-substitute-module).

    Do nothing if the process has imported the real oslo.messaging.
    """
    if 'oslo_messaging' in sys.modules:
        yield
        return
    stand_in = types.ModuleType('oslo_messaging')
    stand_in.__dict__['NoOpSerializer'] = object
    sys.modules['oslo_messaging'] = stand_in
    try:
        yield
    finally:
        del sys.modules['oslo_messaging']


with _without_messaging():
    from oslo_versionedobjects import base as ovo_base
    from oslo_versionedobjects import fields as ovo_fields

register = ovo_base.VersionedObjectRegistry.register


class Context(Protocol):
    """The part of the context of a request that objects use."""

    @property
    def db(self) -> Database:
        """The application's database."""


_FIELDS: Mapping[type, Callable[..., ovo_fields.Field[Any]]] = {
    int: ovo_fields.IntegerField,
    float: ovo_fields.FloatField,
    str: ovo_fields.StringField,
    # Without a time zone, as in the tables.
    dt.datetime: functools.partial(ovo_fields.DateTimeField, tzinfo_aware=False),
}


class PlacementObject(ovo_base.VersionedObject):
    """Base of all objects. They are made from rows and know the context of one request.

    Every annotation of a class is a field, except ``ClassVar`` and names that begin with an underscore.
    """

    OBJ_PROJECT_NAMESPACE = 'placement'
    OBJ_SERIAL_NAMESPACE = 'placement_object'

    #: The query made by ``with_provider``, if the objects belong to a provider.
    WITH_PROVIDER: ClassVar[sa.Executable]

    _context: Context

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # oslo.versionedobjects adds the fields of base classes.
        cls.fields = {}
        annotations: dict[str, Any] = inspect.get_annotations(cls, eval_str=True)
        for name, type_ in annotations.items():
            if not name.startswith('_') and typing.get_origin(type_) is not ClassVar:
                # The type is a key of ``_FIELDS``, or a union of one and None.
                alternatives = typing.get_args(type_) if isinstance(type_, types.UnionType) else (type_,)
                (value,) = (alternative for alternative in alternatives if alternative is not types.NoneType)
                cls.fields[name] = _FIELDS[value](nullable=types.NoneType in alternatives)

    @classmethod
    def from_row(cls, context: Context, row: sa.Row[Any]) -> Self:
        """Make an object from ``row``. Columns that have no field of their name are ignored."""
        return cls.from_rows(context, [row])[0]

    @classmethod
    def from_rows(cls, context: Context, rows: Sequence[sa.Row[Any]]) -> list[Self]:
        """Make one object from each row; all rows come from one query."""
        columns = enumerate(rows[0]._fields) if rows else ()
        # The values go directly to the attributes in which oslo.versionedobjects keeps them. The setters would take
        # twenty times as long to convert values that already have the right type, and would mark them as changed.
        attributes = [(f'_obj_{name}', index) for index, name in columns if name in cls.fields]
        objects = [cls(context) for _ in rows]
        for object_, row in zip(objects, rows, strict=True):
            object_.__dict__.update({attribute: row[index] for attribute, index in attributes})
        return objects

    @classmethod
    def get_all_with_provider(cls, context: Context, uuid: str) -> tuple[ProviderGeneration, list[Self]]:
        """Read a provider and its objects of this class.

        :param uuid: a canonical uuid.
        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = read_with_provider(context, cls.WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)


class Timestamped(PlacementObject):
    """An object with the times of its row, in UTC without a time zone."""

    created_at: dt.datetime | None
    updated_at: dt.datetime | None

    @property
    def modified(self) -> dt.datetime:
        """The aware time of the last update, or of the creation if there was none; now if neither is recorded."""
        return sql.with_utc(self.updated_at or self.created_at or timeutils.utcnow())


# One statement reads a provider and its related rows (inventories, traits, aggregates, allocations or usages). This
# takes one round trip, and the generation of the provider and the rows are of the same state of the database.

_providers = tables.resource_providers

#: The outer join returns one row for a provider without related rows. This column is NULL in it.
_RELATED_ID = 'related_id'


def with_provider(
    join: sa.Join,
    related_id: sa.ColumnElement[int],
    *columns: sa.ColumnElement[Any],
    order: sa.ColumnElement[int] | None = None,
) -> sa.Select[Any]:
    """Make a query for ``read_with_provider``. Call this once, at import.

    :param join: the providers and, each in its own outer join, the tables of the related rows. If these tables were
        joined with one another first, SQLite would read all their rows.
    :param related_id: the id in the last of these tables; NULL if a provider has no related row.
    :param columns: the columns of ``join`` to select.
    :param order: the column to sort by; the default is ``related_id``.
    """
    return (
        sa.select(
            _providers.c.id.label('owner_id'),
            _providers.c.generation.label('owner_generation'),
            related_id.label(_RELATED_ID),
            *columns,
        )
        .select_from(join)
        .where(_providers.c.uuid == sa.bindparam('owner_uuid'))
        .order_by(related_id if order is None else order)
    )


def read_with_provider(
    context: Context, query: sa.Executable, uuid: str, **parameters: Any
) -> tuple[ProviderGeneration, list[sa.Row[Any]]]:
    """Read a provider and its related rows.

    :param query: a query made by ``with_provider``.
    :param uuid: a canonical uuid.
    :param parameters: the values of other bind parameters of ``query``.
    :returns: the provider, and its related rows with the columns of ``query``.
    :raises ResourceProviderNotFound: there is no such provider.
    """
    # No provider has a uuid that cannot be stored.
    rows = context.db.fetch_all(query, {'owner_uuid': uuid, **parameters}) if sql.storable(uuid) else []
    if not rows:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    first = rows[0]
    provider = ProviderGeneration(first.owner_id, uuid, first.owner_generation)
    return provider, [row for row in rows if getattr(row, _RELATED_ID) is not None]
