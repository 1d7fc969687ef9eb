"""Resource providers. They have inventories, traits and aggregates, and form trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import timeutils

from placement import exception
from placement.db import provider_tree, sql
from placement.objects import base
from placement.objects.base import Context


@base.register
class ResourceProvider(base.Timestamped):
    """One resource provider, a node of a tree."""

    VERSION = '1.0'

    id: int
    uuid: str
    name: str | None
    generation: int
    parent_provider_uuid: str | None
    root_provider_uuid: str

    @classmethod
    def get_by_uuid(cls, context: Context, uuid: str) -> ResourceProvider:
        """Read a provider.

        :param uuid: a canonical uuid.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        # No provider has a uuid that cannot be stored.
        rows = context.db.fetch_all(provider_tree.BY_UUID, {'sought': uuid}) if sql.storable(uuid) else []
        if not rows:
            raise exception.ResourceProviderNotFound(uuid=uuid)
        return cls.from_row(context, rows[0])

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

        # Not every database stores fractions of a second.
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
            # The uuid is a duplicate if it exists, otherwise the name.
            if context.db.fetch_all(provider_tree.BY_UUID, {'sought': uuid}):
                raise exception.DuplicateProviderUuid(uuid=uuid) from error
            raise exception.DuplicateProviderName(name=name) from error

    @classmethod
    def destroy(cls, context: Context, uuid: str) -> None:
        """Delete a provider with its inventories and its associations with traits and aggregates.

        :raises ResourceProviderNotFound: there is no such provider.
        :raises CannotDeleteParentProvider: it has children.
        :raises ResourceProviderInUse: it has allocations.
        """
        context.db.write(lambda tx: provider_tree.delete(tx, uuid))

    def rename(self, name: str) -> None:
        """Rename the provider. This needs only the ``uuid`` of the object, and sets all other fields.

        :raises DuplicateProviderName: another provider has the name.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        self._update(name, lambda tx: provider_tree.rename(tx, self.uuid, name))

    def rename_and_move(self, name: str, parent: str | None, *, reparenting: bool = False) -> None:
        """Rename the provider and move it below another parent. This sets the same fields as ``rename``.

        :param parent: uuid, or None for no parent.
        :param reparenting: whether a parent can be changed or removed. If false, only a root can get a parent.
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
