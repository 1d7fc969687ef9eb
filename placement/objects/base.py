"""The base classes of our versioned objects.

A class declares its fields as annotations, which the type checker reads, too; ``PlacementObject`` makes the fields of
oslo.versionedobjects from them. A change of the fields of a class requires a higher ``VERSION``
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
from typing import Any, ClassVar, Protocol, TypeVar

import sqlalchemy as sa
from oslo_config import cfg
from oslo_utils import timeutils

from placement.db.api import Database


@contextlib.contextmanager
def _without_messaging() -> Iterator[None]:
    """Let oslo.versionedobjects import an empty oslo.messaging (doc/dependencies.md#a-substitute-module).

    Does nothing if the process has imported the real one.
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

P = TypeVar('P', bound='PlacementObject')
L = TypeVar('L', bound='ObjectList[Any]')

register = ovo_base.VersionedObjectRegistry.register


class Context(Protocol):
    """The part of the context of a request that objects use."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The application's configuration."""

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


def _is_field(name: str, type_: Any) -> bool:
    return not name.startswith('_') and typing.get_origin(type_) is not ClassVar


def _field(type_: Any) -> ovo_fields.Field[Any]:
    """Return the field for an annotation, which is a key of ``_FIELDS`` or such a type ``| None``."""
    alternatives = typing.get_args(type_) if isinstance(type_, types.UnionType) else (type_,)
    (value,) = (one for one in alternatives if one is not types.NoneType)
    return _FIELDS[value](nullable=types.NoneType in alternatives)


class PlacementObject(ovo_base.VersionedObject):
    """Base of all objects, which are made of rows and know the context of one request.

    Every annotation of a class is a field, unless it is a ``ClassVar`` or its name begins with an underscore.
    """

    OBJ_PROJECT_NAMESPACE = 'placement'
    OBJ_SERIAL_NAMESPACE = 'placement_object'

    _context: Context

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = inspect.get_annotations(cls, eval_str=True)
        # oslo.versionedobjects adds the fields of base classes.
        cls.fields = {name: _field(type_) for name, type_ in annotations.items() if _is_field(name, type_)}

    @classmethod
    def from_row(cls: type[P], context: Context, row: sa.Row[Any]) -> P:
        """Make an object of ``row``. Columns that are not named like a field are ignored."""
        return cls.from_each(context, [row])[0]

    @classmethod
    def from_each(cls: type[P], context: Context, rows: Sequence[sa.Row[Any]]) -> list[P]:
        """Make an object of each of ``rows``, all of one query."""
        columns = enumerate(rows[0]._fields) if rows else ()
        # Written to the attributes in which oslo.versionedobjects keeps the values. The setters would take twenty times
        # as long to convert values that have the right type already, and would mark them as changed.
        kept = [(f'_obj_{name}', at) for at, name in columns if name in cls.fields]
        made = [cls(context) for _ in rows]
        for one, row in zip(made, rows, strict=True):
            one.__dict__.update({attribute: row[at] for attribute, at in kept})
        return made


class Timestamped(PlacementObject):
    """An object with the times of its row, in UTC without a time zone."""

    created_at: dt.datetime | None
    updated_at: dt.datetime | None

    @property
    def modified(self) -> dt.datetime:
        """The aware time of the last update or, if there was none, of the creation; now if neither is recorded."""
        return modified(self.updated_at, self.created_at)


class ObjectList(ovo_base.ObjectListBase[P], PlacementObject):
    """A list of objects of one class, with iteration, index and length: ``ObjectList[Trait]`` is one of traits."""

    #: The class of the objects in the list.
    MEMBER: ClassVar[type[PlacementObject]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        (itself,) = cls.__dict__['__orig_bases__']
        (cls.MEMBER,) = typing.get_args(itself)
        cls.fields = {'objects': ovo_fields.ListOfObjectsField(cls.MEMBER.__name__)}

    @classmethod
    def from_rows(cls: type[L], context: Context, rows: Sequence[sa.Row[Any]]) -> L:
        """Make a list with an object of each of ``rows``, all of one query."""
        made = cls(context)
        # The setter would check each object again.
        made.__dict__['_obj_objects'] = cls.MEMBER.from_each(context, rows)
        return made


def modified(updated_at: dt.datetime | None, created_at: dt.datetime | None) -> dt.datetime:
    """Return the time of a row's last change as an aware datetime in UTC.

    :param updated_at: the column, in UTC with or without a time zone, as is ``created_at``.
    """
    when = updated_at or created_at or timeutils.utcnow()
    return when if when.tzinfo else when.replace(tzinfo=dt.timezone.utc)
