"""Traits: names of qualities that a provider has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import change_log, generation, name_cache, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderVersion
from placement.objects import base, named_resource, provider_query
from placement.objects.base import Context

_traits, _providers = tables.traits, tables.resource_providers
_provider_traits = tables.resource_provider_traits


@base.register
class Trait(named_resource.NamedResource):
    """One trait, standard or custom (``CUSTOM_...``)."""

    VERSION = '1.0'
    TABLE = _traits
    USES = sa.select(_provider_traits.c.trait_id).where(_provider_traits.c.trait_id == sa.bindparam('sought')).limit(1)
    FAILURES = named_resource.Failures(
        not_found=lambda name: exception.TraitNotFound(names=name),
        standard=lambda name: exception.CannotDeleteStandardTrait(name=name),
        in_use=lambda name: exception.TraitInUse(name=name),
    )

    @classmethod
    def create(cls, context: Context, name: str) -> Trait:
        """Insert a trait with ``name``, a valid custom name.

        :raises TraitExists: there is such a trait.
        """

        def work(tx: sa.Connection) -> Trait:
            tx.execute(_traits.insert().values(name=name))
            change_log.record_names(tx)
            return cls.get_in_transaction(context, tx, name)

        try:
            return context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.TraitExists(name=name) from error


@base.register
class TraitList(base.ObjectList[Trait]):
    """Traits in order of id."""

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
        """Read the traits that pass all filters; None is no filter.

        :param names: the name is one of these.
        :param prefix: the name starts with this.
        :param associated: True: at least one provider has the trait. False: none has.
        """
        query = _LISTED[associated]
        # Filtered here, because LIKE ignores case on some databases, and there are only hundreds of traits.
        rows = [
            row
            for row in context.db.fetch_all(query)
            if (names is None or row.name in names) and (prefix is None or row.name.startswith(prefix))
        ]
        return cls.from_rows(context, rows)

    @classmethod
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[ProviderVersion, TraitList]:
        """Read a provider and its traits.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_query.read_with_parts(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)


_ALL = sa.select(_traits).order_by(_traits.c.id)
_ASSOCIATED = sa.exists().where(_provider_traits.c.trait_id == _traits.c.id)
#: By the parameter ``associated`` of ``get_all``.
_LISTED = {None: _ALL, True: _ALL.where(_ASSOCIATED), False: _ALL.where(~_ASSOCIATED)}

_JOINED = _providers.outerjoin(_provider_traits, _provider_traits.c.resource_provider_id == _providers.c.id).outerjoin(
    _traits, _traits.c.id == _provider_traits.c.trait_id
)
_WANTED = _providers.outerjoin(_traits, _traits.c.name.in_(sa.bindparam('wanted', expanding=True)))
_WITH_PROVIDER = provider_query.statement(_JOINED, _traits.c.id, *_traits.c)
#: The traits of a provider, and those that a request names.
_WITH_WANTED = sa.union_all(
    provider_query.statement(_JOINED, _traits.c.id, *_traits.c, sa.literal(1).label('present')).order_by(None),
    provider_query.statement(_WANTED, _traits.c.id, *_traits.c, sa.literal(0).label('present')).order_by(None),
)


def read_traits(context: Context, uuid: str, wanted: Sequence[str] = ()) -> tuple[ProviderVersion, list[sa.Row[Any]]]:
    """Read a provider, its traits, and the traits ``wanted``.

    :param uuid: canonical.
    :param wanted: names.
    :returns: the provider, and the rows of its traits, with ``present`` 1, and of those of ``wanted`` that exist, with
        0.
    :raises ResourceProviderNotFound: no such provider.
    """
    sought = [name for name in wanted if sql.storable(name)]
    provider, rows = provider_query.read_with_parts(
        context, _WITH_WANTED, uuid, wanted=sought[: sql.MAX_VALUES_PER_STATEMENT]
    )
    for chunk in sql.chunks(sought[sql.MAX_VALUES_PER_STATEMENT :]):
        more = provider_query.read_with_parts(context, _WITH_WANTED, uuid, wanted=chunk)[1]
        rows += [row for row in more if not row.present]
    return provider, rows


class TraitDiff:
    """The difference between the traits that a provider has and those ``wanted``.

    :param rows: the rows that ``read_traits`` returned for ``wanted``. They are valid as long as the generation of the
        provider stays the same, except for custom traits to be added, which may be deleted meanwhile.
    """

    def __init__(self, rows: Sequence[sa.Row[Any]], wanted: Collection[str]) -> None:
        present = {row.name: row for row in rows if row.present}
        known = {row.name: row for row in rows}
        #: The names that do not exist, in the order of ``wanted``.
        self.missing = [name for name in wanted if name not in known]
        #: The rows of the traits that the provider has after that, in order of id.
        self.result = sorted((known[name] for name in wanted if name in known), key=lambda row: row.id)
        self._removed = sorted(row.id for name, row in present.items() if name not in wanted)
        self._added = {row.name: row.id for row in self.result if row.name not in present}

    @property
    def is_empty(self) -> bool:
        """Whether no trait is added or removed."""
        return not (self._removed or self._added)

    def add_statements(self, batch: StatementBatch, traits: name_cache.NameCache, provider: ProviderVersion) -> None:
        """Lock the custom traits to be added, shared. Add to ``batch`` the increment of the generation and the changes.

        :raises TraitNotFound: some of the custom traits were deleted meanwhile; names them all.
        """
        custom = [name for name in self._added if name_cache.is_custom(name)]
        added = self._added | traits.lock_ids(batch.tx, custom)
        generation.increment_one(batch, provider)
        for chunk in sql.chunks(self._removed):
            which = f'resource_provider_id = ? AND trait_id IN ({sql.placeholders(len(chunk))})'
            batch.add(f'DELETE FROM placement_resource_provider_traits WHERE {which}', provider.id, *chunk)  # noqa: S608
        rows = [(provider.id, id_) for id_ in sorted(added.values())]
        columns = 'resource_provider_id, trait_id'
        for text, values in sql.bulk_insert(batch.tx, 'placement_resource_provider_traits', columns, rows):
            batch.add(text, *values)
