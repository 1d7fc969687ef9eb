"""Resource providers: they have inventories, traits and aggregates, and form trees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import timeutils

from placement import exception
from placement.db import change_log, generation, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderVersion
from placement.objects import aggregate, base, inventory, provider_tree, trait
from placement.objects.base import Context

_providers = tables.resource_providers


#: Reads a provider with its parts, given a context and a uuid: ``inventory.read_inventories`` or ``trait.read_traits``.
Reader = Callable[[Context, str], tuple[ProviderVersion, list[sa.Row[Any]]]]


@base.register
class ResourceProvider(base.Timestamped):
    """One resource provider, a node of a tree.

    A write of its inventories, traits or aggregates succeeds only if the generation in the database is still the
    ``generation`` of this object.
    """

    VERSION = '1.0'

    id: int
    uuid: str
    name: str | None
    generation: int
    parent_provider_uuid: str | None
    root_provider_uuid: str

    #: The parts that ``get_with`` read, until a write uses them.
    _parts: Sequence[sa.Row[Any]] | None = None

    @classmethod
    def get_by_uuid(cls, context: Context, uuid: str) -> ResourceProvider:
        """Read a provider.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        # No provider has a uuid that cannot be stored.
        rows = context.db.fetch_all(provider_tree.BY_UUID, {'sought': uuid}) if sql.storable(uuid) else []
        if not rows:
            raise exception.ResourceProviderNotFound(uuid=uuid)
        return cls.from_row(context, rows[0])

    @classmethod
    def get_with(cls, context: Context, uuid: str, read: Reader) -> ResourceProvider:
        """Read a provider together with the parts that the write after this needs, in one statement.

        Of its fields only ``id``, ``uuid`` and ``generation`` are set.

        :param uuid: canonical.
        :param read: reads the parts, for example ``inventory.read_inventories``.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        found, parts = read(context, uuid)
        provider = cls(context, **found._asdict())
        provider._parts = parts
        return provider

    @classmethod
    def create(
        cls, context: Context, *, name: str, uuid: str, parent_provider_uuid: str | None = None
    ) -> ResourceProvider:
        """Insert a provider, as a root unless a parent is given.

        :raises ParentProviderIsSelf: the parent is the provider itself.
        :raises ParentProviderNotFound: there is no such parent.
        :raises DuplicateProviderUuid: the uuid is taken (whether or not the name is).
        :raises DuplicateProviderName: only the name is taken.
        """
        if parent_provider_uuid == uuid:
            raise exception.ParentProviderIsSelf

        # Without fractions of a second, which not every database keeps.
        created_at = timeutils.utcnow().replace(microsecond=0)

        def work(tx: sa.Connection) -> ResourceProvider:
            own_id, root_uuid = provider_tree.insert(
                tx, name=name, uuid=uuid, parent_uuid=parent_provider_uuid, created_at=created_at
            )
            return cls(
                context,
                id=own_id,
                uuid=uuid,
                name=name,
                generation=0,
                parent_provider_uuid=parent_provider_uuid,
                root_provider_uuid=root_uuid,
                created_at=created_at,
                updated_at=None,
            )

        try:
            return context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise cls._which_is_taken(context, name, uuid) from error

    @classmethod
    def destroy(cls, context: Context, uuid: str) -> None:
        """Delete a provider with its inventories and its associations with traits and aggregates.

        :raises ResourceProviderNotFound: there is no such provider.
        :raises CannotDeleteParentProvider: it has children.
        :raises ResourceProviderInUse: it has allocations.
        """
        context.db.write(lambda tx: provider_tree.delete(tx, uuid))

    def rename(self, name: str) -> None:
        """Rename the provider. Needs only the ``uuid`` of the object, and sets all other fields.

        :raises DuplicateProviderName: another provider has the name.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        self._update(name, lambda tx: provider_tree.rename(tx, self.uuid, name))

    def rename_and_move(self, name: str, parent: str | None, *, reparenting: bool = False) -> None:
        """As ``rename``; change the parent, too.

        :param parent: uuid, or None for no parent.
        :param reparenting: whether a parent can be changed and removed. If false, only a root can get a parent.
        :raises ParentProviderNotFound, ReparentingNotAllowed, UnparentingNotAllowed, ProviderTreeLoop: as for
            ``provider_tree.rename_and_move``.
        """
        uuid = self.uuid
        self._update(name, lambda tx: provider_tree.rename_and_move(tx, uuid, name, parent, reparenting=reparenting))

    def _update(self, name: str, work: Callable[[sa.Connection], dict[str, Any]]) -> None:
        try:
            fresh = self._context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.DuplicateProviderName(name=name) from error
        for field in self.fields:
            setattr(self, field, fresh[field])
        self.obj_reset_changes()

    @property
    def version(self) -> ProviderVersion:
        """The generation of the provider, with its ids."""
        return ProviderVersion(self.id, self.uuid, self.generation)

    def check_generation(self, sent: int) -> None:
        """Compare the generation that the caller ``sent`` with that of this object.

        :raises ProviderGenerationMismatch: they differ.
        """
        if sent != self.generation:
            raise exception.ProviderGenerationMismatch

    # Inventories ---------------------------------------------------------------------------------------------

    def add_inventory(self, record: inventory.Inventory) -> None:
        """Add the inventory of one class.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryExists: the provider has an inventory of the class.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        try:
            self._change(lambda batch: inventory.add(batch, self._context.db.resource_classes, self.version, record))
        except db_exc.DBDuplicateEntry as error:
            raise exception.InventoryExists(resource_class=record.resource_class, uuid=self.uuid) from error

    def set_inventories(self, records: Sequence[inventory.Inventory]) -> None:
        """Make ``records`` all inventories of the provider.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryInUse: a class that is not in ``records`` has allocations.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        present = self._take_parts(inventory.read_inventories)
        classes = self._context.db.resource_classes
        self._change(lambda batch: inventory.replace_all(batch, classes, self.version, present, records))
        inventory.warn_of_overcommitment(self.uuid, {row.resource_class: row.used for row in present}, records)

    def update_inventory(self, record: inventory.Inventory) -> None:
        """Overwrite the inventory of one class.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryRecordNotFound: the provider has no inventory of it.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        present = self._take_parts(inventory.read_inventories)
        classes = self._context.db.resource_classes
        self._change(lambda batch: inventory.update(batch, classes, self.version, present, record))
        inventory.warn_of_overcommitment(self.uuid, {row.resource_class: row.used for row in present}, [record])

    def delete_inventory(self, resource_class: str) -> None:
        """Delete the inventory of one class.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryNotFound: there is none.
        :raises InventoryInUse: it has allocations.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        present = self._take_parts(inventory.read_inventories)
        classes = self._context.db.resource_classes
        self._change(lambda batch: inventory.delete(batch, classes, self.version, present, resource_class))

    def delete_inventories(self) -> None:
        """Delete all inventories.

        :raises InventoryInUse: some have allocations.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        self.set_inventories([])

    # Aggregates and traits -----------------------------------------------------------------------------------

    @classmethod
    def reference(cls, context: Context, uuid: str, generation: int | None = None) -> ResourceProvider:
        """Return an object for ``rename`` and ``set_aggregates``, without reading the provider.

        :param uuid: canonical.
        :param generation: the one that the caller sent; None if it sent none.
        """
        return cls(context, uuid=uuid, **({} if generation is None else {'generation': generation}))

    def set_aggregates(self, uuids: Iterable[str], increment_generation: bool) -> None:
        """Put the provider into exactly these aggregates. Those that do not exist are created.

        :param increment_generation: check and increment the generation (from microversion 1.19). If false, the
            generation stays as it is, and need not be set.
        :raises ProviderGenerationMismatch: the generation is another one.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        wanted = sorted(set(uuids))
        known = self._context.db.aggregates

        def work(tx: sa.Connection) -> None:
            own_id = (
                generation.increment_by_uuid(tx, self.uuid, self.generation) if increment_generation else self._lock(tx)
            )
            if own_id is None:
                if tx.execute(provider_tree.BY_UUID, {'sought': self.uuid}).first() is None:
                    raise exception.ResourceProviderNotFound(uuid=self.uuid)
                raise exception.ProviderGenerationMismatch
            aggregate.replace(tx, known, own_id, wanted)

        self._context.db.write(work)
        if increment_generation:
            self.generation += 1

    def set_traits(self, names: Iterable[str]) -> trait.TraitList:
        """Give the provider exactly these traits. The generation is incremented only if that changes anything.

        :returns: the traits that it has after that.
        :raises TraitNotFound: some do not exist; names them all.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        wanted = sorted(set(names))
        diff = trait.TraitDiff(self._take_parts(functools.partial(trait.read_traits, wanted=wanted)), wanted)
        if diff.missing:
            raise exception.TraitNotFound(names=', '.join(diff.missing))
        if not diff.is_empty:
            self._change(lambda batch: diff.add_statements(batch, self._context.db.traits, self.version))
        return trait.TraitList.from_rows(self._context, diff.result)

    def clear_traits(self) -> None:
        """Remove all traits. The generation is incremented only if there were any.

        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        self.set_traits([])

    # Inside --------------------------------------------------------------------------------------------------

    def _take_parts(self, read: Reader) -> Sequence[sa.Row[Any]]:
        """Return the parts of the provider at its ``generation``: once those of ``get_with``, then read again.

        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        parts, self._parts = self._parts, None
        if parts is None:
            found, parts = read(self._context, self.uuid)
            if (found.id, found.generation) != (self.id, self.generation):
                raise exception.ConcurrentProviderUpdate
        return parts

    def _change(self, add: Callable[[StatementBatch], None]) -> None:
        """Execute the statements of ``add``, one of which increments the generation, as a transaction."""

        def work(tx: sa.Connection) -> None:
            batch = StatementBatch(tx)
            add(batch)
            batch.execute_final()

        self._context.db.write(work)
        self.generation += 1

    def _lock(self, tx: sa.Connection) -> int | None:
        """Lock the provider's row, record its change in the log, and return its id, None if it does not exist."""
        found = tx.execute(_LOCK, {'sought': self.uuid}).scalar_one_or_none()
        if found is not None:
            change_log.record_providers(tx, [found])
        return found

    @classmethod
    def _which_is_taken(cls, context: Context, name: str, uuid: str) -> exception.Conflict:
        try:
            cls.get_by_uuid(context, uuid)
        except exception.ResourceProviderNotFound:
            return exception.DuplicateProviderName(name=name)
        return exception.DuplicateProviderUuid(uuid=uuid)


_LOCK = sa.select(_providers.c.id).where(_providers.c.uuid == sa.bindparam('sought')).with_for_update()
