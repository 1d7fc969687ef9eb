"""Resource classes: the kinds of resources in inventories and allocations."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import change_log, errors, name_locks, sql, tables
from placement.db.batch import StatementBatch
from placement.objects import base, named_resource
from placement.objects.base import Context

_classes = tables.resource_classes
_inventories = tables.inventories
#: Selects the largest id that any class ever had, the largest id of a class now, and the id of the class with the name.
#: Transactions that create a class lock the row of the sequence, so they run one at a time.
_READ_SEQUENCE = sql.statement(
    'SELECT last, (SELECT MAX(id) FROM {classes}), (SELECT id FROM {classes} WHERE name = ?) FROM {sequence}',
    classes=_classes,
    sequence=tables.resource_class_sequence,
)
_SET_SEQUENCE = sql.statement('UPDATE {sequence} SET last = ?', sequence=tables.resource_class_sequence)


@base.register
class ResourceClass(named_resource.NamedResource):
    """One class, standard or custom (``CUSTOM_...``)."""

    VERSION = '1.0'
    TABLE = _classes
    USES = sa.select(_inventories.c.id).where(_inventories.c.resource_class_id == sa.bindparam('sought')).limit(1)
    NOT_FOUND = exception.ResourceClassNotFound
    STANDARD = exception.CannotDeleteStandardResourceClass
    IN_USE = exception.ResourceClassInUse

    @classmethod
    def create(cls, context: Context, name: str) -> ResourceClass:
        """Insert a class with ``name``, a valid custom name.

        :returns: the class with only its id and name.
        :raises ResourceClassExists: there is such a class.
        :raises IncompleteDatabase: no largest id is recorded.
        :raises MaxRetriesExceeded: other transactions took the name or the id in each attempt.
        """

        def work(tx: sa.Connection) -> int:
            row = sql.execute_text(tx, _READ_SEQUENCE + sql.for_update(tx.dialect), name).first()
            if row is None:
                advice = 'If no backup is being restored, run: placement-manage audit --repair'
                reason = f'the table {tables.resource_class_sequence} has no rows. {advice}'
                raise errors.IncompleteDatabase(reason=reason)
            last, largest, existing = row
            if existing is not None:
                raise exception.ResourceClassExists(resource_class=name)
            # No class ever had this id. ``largest`` exceeds ``last`` only if somebody inserted a row by hand.
            new_id: int = max(last, largest) + 1
            batch = StatementBatch(tx, key_error=is_taken)
            batch.add_statement(_SET_SEQUENCE, new_id)
            batch.add_insert(_classes, 'id, name', [(new_id, name)])
            change_log.record_new_class(tx, new_id)
            batch.defer()
            return new_id

        def is_taken() -> errors.RetryTransaction:
            # The name was created while the query waited for the lock, or another class has been renamed to it since,
            # or a transaction on another node of a cluster took the id.
            return errors.RetryTransaction(exception.MaxRetriesExceeded(action=f'create resource class {name}'))

        return cls(context, id=context.db.write(work), name=name)

    def rename(self, new_name: str) -> None:
        """Give a custom class another valid custom name. Its inventories and allocations refer to its id, so they stay.

        :raises CannotUpdateStandardResourceClass: it is not custom.
        :raises ResourceClassExists: another class has the name.
        :raises ResourceClassNotFound: it was deleted meanwhile.
        """
        if not name_locks.is_custom(self.name):
            raise exception.CannotUpdateStandardResourceClass(resource_class=self.name)

        def work(tx: sa.Connection) -> ResourceClass:
            # The condition is on the name, because the class may have been deleted or renamed since it was read.
            renamed = tx.execute(_classes.update().where(_classes.c.name == self.name).values(name=new_name))
            if renamed.rowcount != 1:
                raise exception.ResourceClassNotFound(names=self.name)
            change_log.record_names(tx)
            return self.get_by_name(self._context, new_name, tx)

        try:
            fresh = self._context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.ResourceClassExists(resource_class=new_name) from error
        self.id, self.name, self.updated_at = fresh.id, fresh.name, fresh.updated_at
