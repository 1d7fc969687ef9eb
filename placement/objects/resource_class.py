"""Resource classes: the kinds of resources that inventories and allocations have amounts of."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import change_log, name_cache, tables
from placement.objects import base, named_resource
from placement.objects.base import Context

_classes = tables.resource_classes
_sequence = tables.resource_class_sequence
_inventories = tables.inventories


@base.register
class ResourceClass(named_resource.NamedResource):
    """One class, standard or custom (``CUSTOM_...``)."""

    VERSION = '1.0'
    TABLE = _classes
    USES = sa.select(_inventories.c.id).where(_inventories.c.resource_class_id == sa.bindparam('sought')).limit(1)
    FAILURES = named_resource.Failures(
        not_found=lambda name: exception.ResourceClassNotFound(resource_class=name),
        standard=lambda name: exception.CannotDeleteStandardResourceClass(resource_class=name),
        in_use=lambda name: exception.ResourceClassInUse(resource_class=name),
    )

    @classmethod
    def create(cls, context: Context, name: str) -> ResourceClass:
        """Insert a class with ``name``, a valid custom name.

        :raises ResourceClassExists: there is such a class.
        :raises MaxRetriesExceeded: other transactions took the name or the id in each attempt.
        """

        def work(tx: sa.Connection) -> ResourceClass:
            new_id = _next_id(tx)
            if tx.scalar(sa.select(_classes.c.id).where(_classes.c.name == name)) is not None:
                raise exception.ResourceClassExists(resource_class=name)
            try:
                tx.execute(_classes.insert().values(id=new_id, name=name))
            except db_exc.DBDuplicateEntry as error:
                # Since the query above a rename took the name, or a transaction on another node of a cluster the id.
                raise db_api.RetryTransaction(
                    exception.MaxRetriesExceeded(action=f'create resource class {name}')
                ) from error
            change_log.record_names(tx)
            return cls.get_in_transaction(context, tx, name)

        return context.db.write(work)

    def rename(self, new_name: str) -> None:
        """Give a custom class another valid custom name; inventories and allocations follow.

        :raises CannotUpdateStandardResourceClass: it is not custom.
        :raises ResourceClassExists: another class has the name.
        :raises ResourceClassNotFound: it was deleted meanwhile.
        """
        if not name_cache.is_custom(self.name):
            raise exception.CannotUpdateStandardResourceClass(resource_class=self.name)

        def work(tx: sa.Connection) -> ResourceClass:
            # By name, not by id: the class may have been deleted or renamed since it was read.
            renamed = tx.execute(_classes.update().where(_classes.c.name == self.name).values(name=new_name))
            if renamed.rowcount != 1:
                raise exception.ResourceClassNotFound(resource_class=self.name)
            change_log.record_names(tx)
            return self.get_in_transaction(self._context, tx, new_name)

        try:
            fresh = self._context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.ResourceClassExists(resource_class=new_name) from error
        self.id, self.name, self.updated_at = fresh.id, fresh.name, fresh.updated_at


@base.register
class ResourceClassList(base.ObjectList[ResourceClass]):
    """Resource classes: the standard ones in the library's order, then the custom ones in order of creation."""

    VERSION = '1.0'

    @classmethod
    def get_all(cls, context: Context) -> ResourceClassList:
        """Read all classes."""
        return cls.from_rows(context, context.db.fetch_all(_ALL))


_ALL = sa.select(_classes).order_by(_classes.c.id)


def _next_id(tx: sa.Connection) -> int:
    """Return an id that no class ever had, and make other transactions that create a class wait until this one ends."""
    last: int = tx.execute(sa.select(_sequence.c.last).with_for_update()).scalar_one()
    # Larger than the recorded id only if rows were inserted by hand.
    largest = tx.scalar(sa.select(sa.func.max(_classes.c.id))) or 0
    new_id = max(last, largest) + 1
    tx.execute(_sequence.update().values(last=new_id))
    return new_id
