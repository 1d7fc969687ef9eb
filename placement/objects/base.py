"""What all our versioned objects share."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_utils import timeutils


@contextlib.contextmanager
def _without_messaging() -> Iterator[None]:
    """Keep oslo.messaging out while oslo.versionedobjects is imported.

    It is imported there only as the base of a serializer for RPC, which we have no use for, and brings eventlet into
    the process. A process that already has it keeps it.
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
    from oslo_versionedobjects import fields as fields

P = TypeVar('P', bound='PlacementObject')
L = TypeVar('L', bound='ObjectList')

register = ovo_base.VersionedObjectRegistry.register


class PlacementObject(ovo_base.VersionedObject):
    """Base of all objects: made from rows, bound to the context of one request."""

    OBJ_PROJECT_NAMESPACE = 'placement'
    OBJ_SERIAL_NAMESPACE = 'placement_object'

    @classmethod
    def from_row(cls: type[P], context: Any, row: sa.Row[Any]) -> P:
        """The object whose fields are the columns of ``row`` that have a field's name."""
        made = cls(context)
        for name, value in row._asdict().items():
            if name in cls.fields:
                # Past the field's setter, which would convert what the database gives in the right type, at ten times
                # the cost, and note a change.
                setattr(made, f'_obj_{name}', value)
        return made


class Timestamped(PlacementObject):
    """An object that knows when its row was last written."""

    created_at: dt.datetime | None
    updated_at: dt.datetime | None
    fields = {
        'created_at': fields.DateTimeField(nullable=True),
        'updated_at': fields.DateTimeField(nullable=True),
    }

    @property
    def modified(self) -> dt.datetime:
        """When the thing was last updated, or created if it never was; now if nobody recorded it."""
        return modified(self.updated_at, self.created_at)


class ObjectList(ovo_base.ObjectListBase[Any], PlacementObject):
    """A list of objects: iterates, indexes and has a length."""

    @classmethod
    def from_rows(cls: type[L], context: Any, member: type[PlacementObject], rows: Iterable[sa.Row[Any]]) -> L:
        """The list of one ``member`` for each of ``rows``."""
        return cls(context, objects=[member.from_row(context, row) for row in rows])


def modified(updated_at: dt.datetime | None, created_at: dt.datetime | None) -> dt.datetime:
    """The aware UTC time of a row's last change, from the two columns as stored (UTC, with or without zone)."""
    when = updated_at or created_at or timeutils.utcnow()
    return when if when.tzinfo else when.replace(tzinfo=dt.timezone.utc)
