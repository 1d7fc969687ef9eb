"""Traits: what a provider is like, as names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, names, statements, tables
from placement.objects import base, generation, named, provider_parts
from placement.objects.base import fields

_traits = tables.traits
_provider_traits = tables.resource_provider_traits


@base.register
class Trait(named.Named):
    """One trait, standard or custom (``CUSTOM_...``)."""

    TABLE = _traits

    @classmethod
    def not_found(cls, name: str) -> exception.NotFound:
        """What to raise when there is no trait called ``name``."""
        return exception.TraitNotFound(names=name)

    @classmethod
    def create(cls, context: Any, name: str) -> Trait:
        """Store a trait under ``name``, a valid custom name.

        :raises TraitExists: there is one already.
        """

        def work(tx: sa.Connection) -> Trait:
            tx.execute(_traits.insert().values(name=name))
            changes.names(tx)
            return cls.read(context, tx, name)

        try:
            created: Trait = context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.TraitExists(name=name) from error
        return created

    @classmethod
    def destroy(cls, context: Any, name: str) -> None:
        """Remove a custom trait.

        :raises TraitNotFound: there is none.
        :raises CannotDeleteStandardTrait: it is not custom.
        :raises TraitInUse: a provider has it.
        """

        def work(tx: sa.Connection) -> None:
            trait = cls.read(context, tx, name)
            if not names.is_custom(name):
                raise exception.CannotDeleteStandardTrait(name=name)
            if tx.execute(_having(trait.id)).first() is not None:
                raise exception.TraitInUse(name=name)
            try:
                cls.delete_row(tx, trait)
            except db_exc.DBReferenceError as error:
                # A provider got it since we looked.
                raise exception.TraitInUse(name=name) from error
            changes.names(tx)

        context.db.write(work)


@base.register
class TraitList(base.ObjectList):
    """Traits in order of creation."""

    fields = {'objects': fields.ListOfObjectsField('Trait')}

    @classmethod
    def get_all(
        cls,
        context: Any,
        *,
        names: Collection[str] | None = None,
        prefix: str | None = None,
        associated: bool | None = None,
    ) -> TraitList:
        """The traits that pass all filters given.

        :param names: the trait's name is one of these.
        :param prefix: the name starts with this, literally.
        :param associated: whether at least one provider, or none, has the trait.
        """
        query = _LISTED[associated]
        # Compared here: LIKE folds case on some databases, and there are but hundreds of traits.
        rows = [
            row
            for row in context.db.ask(query)
            if (names is None or row.name in names) and (prefix is None or row.name.startswith(prefix))
        ]
        return cls.from_rows(context, Trait, rows)

    @classmethod
    def get_with_provider(cls, context: Any, uuid: str) -> tuple[provider_parts.Provider, TraitList]:
        """A provider and its traits.

        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, Trait, rows)


_ALL = sa.select(_traits).order_by(_traits.c.id)
_ASSOCIATED = sa.exists().where(_provider_traits.c.trait_id == _traits.c.id)
#: By whether at least one provider, or none, has the trait; None for all.
_LISTED = {None: _ALL, True: _ALL.where(_ASSOCIATED), False: _ALL.where(~_ASSOCIATED)}

_WITH_PROVIDER = provider_parts.statement(
    _provider_traits.join(_traits, _traits.c.id == _provider_traits.c.trait_id),
    _provider_traits.c.resource_provider_id,
    _traits.c.id,
    *_traits.c,
)


def replace(db: Any, tx: sa.Connection, provider: Any, wanted: Sequence[str]) -> bool:
    """Make ``wanted`` all the traits of ``provider``; move its generation and return True if that changes anything.

    :raises TraitNotFound: with all names that do not exist.
    :raises ConcurrentProviderUpdate: the generation moved.
    """
    wanted_ids = set(_known_ids(db, tx, wanted).values())
    present_ids = {row.id for row in tx.execute(_of_provider(provider.id))}
    if wanted_ids == present_ids:
        generation.check(tx, provider)
        return False
    generation.bump(tx, provider)
    own = _provider_traits.c.resource_provider_id == provider.id
    for batch in statements.batches(sorted(present_ids - wanted_ids)):
        tx.execute(_provider_traits.delete().where(own, _provider_traits.c.trait_id.in_(batch)))
    added = [{'resource_provider_id': provider.id, 'trait_id': id_} for id_ in sorted(wanted_ids - present_ids)]
    if added:
        _associate(tx, added)
    return True


def _known_ids(db: Any, tx: sa.Connection, wanted: Sequence[str]) -> dict[str, int]:
    """The ids of the traits ``wanted``, held until the transaction ends.

    :raises TraitNotFound: some do not exist; names them all.
    """
    ids: dict[str, int] = db.traits.ids(tx, wanted, hold=True)
    missing = [name for name in wanted if name not in ids]
    if missing:
        raise exception.TraitNotFound(names=', '.join(missing))
    return ids


def _associate(tx: sa.Connection, rows: list[dict[str, int]]) -> None:
    try:
        tx.execute(_provider_traits.insert(), rows)
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # A trait was deleted on another node of a cluster since we looked; the next attempt names it.
        raise db_api.TryAgain from error


def _of_provider(provider_id: int) -> sa.Select[Any]:
    return (
        sa.select(_traits)
        .join(_provider_traits, _provider_traits.c.trait_id == _traits.c.id)
        .where(_provider_traits.c.resource_provider_id == provider_id)
        .order_by(_traits.c.id)
    )


def _having(trait_id: int) -> sa.Select[Any]:
    return sa.select(_provider_traits.c.trait_id).where(_provider_traits.c.trait_id == trait_id).limit(1)
