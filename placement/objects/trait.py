"""Traits: what a provider is like, as names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, generation, name_cache, statements, tables
from placement.db.api import Database
from placement.db.generation import KnownProvider
from placement.db.together import Together
from placement.objects import base, custom_name, provider_parts
from placement.objects.base import Context

_traits, _providers = tables.traits, tables.resource_providers
_provider_traits = tables.resource_provider_traits


@base.register
class Trait(custom_name.CustomName):
    """One trait, standard or custom (``CUSTOM_...``)."""

    VERSION = '1.0'
    TABLE = _traits
    USES = sa.select(_provider_traits.c.trait_id).where(_provider_traits.c.trait_id == sa.bindparam('sought')).limit(1)
    FAILURES = custom_name.Failures(
        not_found=lambda name: exception.TraitNotFound(names=name),
        standard=lambda name: exception.CannotDeleteStandardTrait(name=name),
        in_use=lambda name: exception.TraitInUse(name=name),
    )

    @classmethod
    def create(cls, context: Context, name: str) -> Trait:
        """Store a trait under ``name``, a valid custom name.

        :raises TraitExists: there is one already.
        """

        def work(tx: sa.Connection) -> Trait:
            tx.execute(_traits.insert().values(name=name))
            changes.names(tx)
            return cls.read(context, tx, name)

        try:
            return context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.TraitExists(name=name) from error


@base.register
class TraitList(base.ObjectList[Trait]):
    """Traits in order of creation."""

    VERSION = '1.0'

    @classmethod
    def get_all(
        cls,
        context: Context,
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
        return cls.from_rows(context, rows)

    @classmethod
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[provider_parts.Provider, TraitList]:
        """A provider and its traits.

        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)


_ALL = sa.select(_traits).order_by(_traits.c.id)
_ASSOCIATED = sa.exists().where(_provider_traits.c.trait_id == _traits.c.id)
#: By whether at least one provider, or none, has the trait; None for all.
_LISTED = {None: _ALL, True: _ALL.where(_ASSOCIATED), False: _ALL.where(~_ASSOCIATED)}

_JOINED = _providers.outerjoin(_provider_traits, _provider_traits.c.resource_provider_id == _providers.c.id).outerjoin(
    _traits, _traits.c.id == _provider_traits.c.trait_id
)
_WANTED = _providers.outerjoin(_traits, _traits.c.name.in_(sa.bindparam('wanted', expanding=True)))
_WITH_PROVIDER = provider_parts.statement(_JOINED, _traits.c.id, *_traits.c)
#: The traits of a provider, and those that a request wants it to have.
_WITH_WANTED = sa.union_all(
    provider_parts.statement(_JOINED, _traits.c.id, *_traits.c, sa.literal(1).label('present')).order_by(None),
    provider_parts.statement(_WANTED, _traits.c.id, *_traits.c, sa.literal(0).label('present')).order_by(None),
)


def read(context: Context, uuid: str, wanted: Sequence[str] = ()) -> tuple[provider_parts.Provider, list[sa.Row[Any]]]:
    """A provider and the rows of its traits (``present`` is 1) and of those of ``wanted`` that exist (0).

    :raises ResourceProviderNotFound: no such provider.
    """
    sought = [name for name in wanted if statements.storable(name)]
    provider, rows = provider_parts.read(context, _WITH_WANTED, uuid, wanted=sought[: statements.BATCH])
    for batch in statements.batches(sought[statements.BATCH :]):
        more = provider_parts.read(context, _WITH_WANTED, uuid, wanted=batch)[1]
        rows += [row for row in more if not row.present]
    return provider, rows


class Exchange:
    """What is to be done to give a provider exactly the traits ``wanted``.

    :param rows: what ``read`` gave for them. Right as long as the generation does not move, but for custom traits that
        are to be added.
    """

    def __init__(self, rows: Sequence[sa.Row[Any]], wanted: Collection[str]) -> None:
        present = {row.name: row for row in rows if row.present}
        known = {row.name: row for row in rows}
        #: The names that are unheard of, in the order of ``wanted``.
        self.missing = [name for name in wanted if name not in known]
        #: The rows of the traits that it has in the end, in order of creation.
        self.kept = sorted((known[name] for name in wanted if name in known), key=lambda row: row.id)
        self._gone = sorted(row.id for name, row in present.items() if name not in wanted)
        self._added = {row.name: row.id for row in self.kept if row.name not in present}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be done."""
        return not (self._gone or self._added)

    def carry_out(self, db: Database, tx: sa.Connection, provider: KnownProvider) -> None:
        """Do it, and move the generation.

        :raises TraitNotFound: with all names that do not exist.
        :raises ConcurrentProviderUpdate: the generation moved.
        """
        custom = [name for name in self._added if name_cache.is_custom(name)]
        added = self._added | db.traits.hold(tx, custom)
        together = Together(tx)
        generation.bump(together, provider)
        for batch in statements.batches(self._gone):
            gone = f'resource_provider_id = ? AND trait_id IN ({statements.marks(len(batch))})'
            together.add(f'DELETE FROM placement_resource_provider_traits WHERE {gone}', provider.id, *batch)  # noqa: S608
        rows = [(provider.id, id_) for id_ in sorted(added.values())]
        columns = 'resource_provider_id, trait_id'
        for text, values in statements.insertions(tx, 'placement_resource_provider_traits', columns, rows):
            together.add(text, *values)
        try:
            together.run_last()
        except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
            # A trait was deleted on another node of a cluster since we looked; the next attempt names it.
            raise db_api.TryAgain from error
