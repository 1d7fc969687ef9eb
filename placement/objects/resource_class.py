"""Resource classes: what can be had an amount of."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, names, tables
from placement.objects import base, named
from placement.objects.base import fields

_classes = tables.resource_classes
_class_ids = tables.resource_class_ids
_inventories = tables.inventories


@base.register
class ResourceClass(named.Named):
    """One class, standard or custom (``CUSTOM_...``)."""

    TABLE = _classes

    @classmethod
    def not_found(cls, name: str) -> exception.NotFound:
        """What to raise when there is no class called ``name``."""
        return exception.ResourceClassNotFound(resource_class=name)

    @classmethod
    def create(cls, context: Any, name: str) -> ResourceClass:
        """Store a class under ``name``, a valid custom name.

        :raises ResourceClassExists: there is one already.
        :raises MaxRetriesExceeded: other processes kept taking the next id.
        """

        def work(tx: sa.Connection) -> ResourceClass:
            new_id = _next_id(tx)
            if tx.scalar(sa.select(_classes.c.id).where(_classes.c.name == name)) is not None:
                raise exception.ResourceClassExists(resource_class=name)
            try:
                tx.execute(_classes.insert().values(id=new_id, name=name))
            except db_exc.DBDuplicateEntry as error:
                # A rename took the name since we looked, or another node of a cluster the id; the next attempt tells.
                raise db_api.TryAgain(exception.MaxRetriesExceeded(action=f'create resource class {name}')) from error
            changes.names(tx)
            return cls.read(context, tx, name)

        created: ResourceClass = context.db.write(work)
        return created

    @classmethod
    def destroy(cls, context: Any, name: str) -> None:
        """Remove a custom class.

        :raises ResourceClassNotFound: there is none.
        :raises CannotDeleteStandardResourceClass: it is not custom.
        :raises ResourceClassInUse: a provider has inventory of it.
        """

        def work(tx: sa.Connection) -> None:
            found = cls.read(context, tx, name)
            if not names.is_custom(name):
                raise exception.CannotDeleteStandardResourceClass(resource_class=name)
            inventory = sa.select(_inventories.c.id).where(_inventories.c.resource_class_id == found.id).limit(1)
            if tx.scalar(inventory) is not None:
                raise exception.ResourceClassInUse(resource_class=name)
            try:
                cls.delete_row(tx, found)
            except db_exc.DBReferenceError as error:
                # A provider got inventory of it since we looked.
                raise exception.ResourceClassInUse(resource_class=name) from error
            changes.names(tx)

        context.db.write(work)

    def rename(self, new_name: str) -> None:
        """Give a custom class another valid custom name; inventories and allocations follow.

        :raises CannotUpdateStandardResourceClass: it is not custom.
        :raises ResourceClassExists: another class has the name.
        :raises ResourceClassNotFound: it was deleted meanwhile.
        """
        if not names.is_custom(self.name):
            raise exception.CannotUpdateStandardResourceClass(resource_class=self.name)

        def work(tx: sa.Connection) -> ResourceClass:
            # By name: since this was read the row may have gone, or have been given another name.
            renamed = tx.execute(_classes.update().where(_classes.c.name == self.name).values(name=new_name))
            if renamed.rowcount != 1:
                raise exception.ResourceClassNotFound(resource_class=self.name)
            changes.names(tx)
            return self.read(self._context, tx, new_name)

        try:
            fresh = self._context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.ResourceClassExists(resource_class=new_name) from error
        self.id, self.name, self.updated_at = fresh.id, fresh.name, fresh.updated_at


@base.register
class ResourceClassList(base.ObjectList):
    """Resource classes: the standard ones in the library's order, then the custom ones in order of creation."""

    fields = {'objects': fields.ListOfObjectsField('ResourceClass')}

    @classmethod
    def get_all(cls, context: Any) -> ResourceClassList:
        """All classes."""
        return cls.from_rows(context, ResourceClass, context.db.ask(_ALL))


_ALL = sa.select(_classes).order_by(_classes.c.id)


def _next_id(tx: sa.Connection) -> int:
    """An id that no class ever had. Whoever creates another class waits until the transaction ends.

    Ids below the first are the positions of standard classes.
    """
    last: int = tx.execute(sa.select(_class_ids.c.last).with_for_update()).scalar_one()
    # Beyond what is remembered only where somebody else inserted rows.
    largest = tx.scalar(sa.select(sa.func.max(_classes.c.id))) or 0
    new_id = max(last, largest) + 1
    tx.execute(_class_ids.update().values(last=new_id))
    return new_id
