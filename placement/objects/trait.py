"""Traits: names of qualities of providers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import change_log, generation, name_locks, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderGeneration
from placement.objects import base, named_resource
from placement.objects.base import Context

_traits, _providers = tables.traits, tables.resource_providers
_provider_traits = tables.resource_provider_traits

_DELETE = 'DELETE FROM {table} WHERE resource_provider_id = ? AND trait_id IN ({ids})'
_JOINED = _providers.outerjoin(_provider_traits, _provider_traits.c.resource_provider_id == _providers.c.id).outerjoin(
    _traits, _traits.c.id == _provider_traits.c.trait_id
)


@base.register
class Trait(named_resource.NamedResource):
    """One trait, standard or custom (``CUSTOM_...``)."""

    VERSION = '1.0'
    TABLE = _traits
    #: In order of id.
    WITH_PROVIDER = base.with_provider(_JOINED, _traits.c.id, *_traits.c)
    USES = sa.select(_provider_traits.c.trait_id).where(_provider_traits.c.trait_id == sa.bindparam('sought')).limit(1)
    NOT_FOUND = exception.TraitNotFound
    STANDARD = exception.CannotDeleteStandardTrait
    IN_USE = exception.TraitInUse

    @classmethod
    def create(cls, context: Context, name: str) -> Trait:
        """Insert a trait with ``name``, a valid custom name.

        :raises TraitExists: there is such a trait.
        """

        def work(tx: sa.Connection) -> Trait:
            inserted = tx.execute(_traits.insert().values(name=name))
            change_log.record_new_trait(tx, sql.new_id(inserted))
            return cls.get_by_name(context, name, tx)

        try:
            return context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            raise exception.TraitExists(name=name) from error

    @classmethod
    def replace_all(
        cls,
        context: Context,
        provider: ProviderGeneration,
        present: Sequence[Trait],
        named: Sequence[Trait],
        names: Iterable[str],
    ) -> tuple[ProviderGeneration, list[Trait]]:
        """Give the provider exactly these traits. Increment the generation only if its traits change.

        :param present: the traits that ``read_traits`` returned with ``provider``. They are valid as long as the
            generation of the provider stays the same.
        :param named: the traits that ``read_traits`` returned for ``names``. Custom ones may have been deleted since.
        :returns: the changed provider and its new traits.
        :raises TraitNotFound: some do not exist; the error names them all.
        :raises ConcurrentProviderUpdate: another write incremented the generation.
        """
        desired = sorted(set(names))
        by_name = {trait.name: trait for trait in (*present, *named)}
        missing = sorted(set(desired) - by_name.keys())
        if missing:
            raise exception.TraitNotFound(names=', '.join(missing))
        present_ids = {trait.name: trait.id for trait in present}
        removed = sorted(present_ids[name] for name in present_ids.keys() - desired)
        added = {name: by_name[name].id for name in desired if name not in present_ids}

        def work(tx: sa.Connection) -> None:
            # The custom traits may have been deleted since they were read. This takes a shared lock.
            custom_names = [name for name in added if name_locks.is_custom(name)]
            custom = name_locks.lock_names(tx, _traits, custom_names)
            deleted = sorted(set(custom_names) - custom.keys())
            if deleted:
                raise exception.TraitNotFound(names=', '.join(deleted))
            batch = StatementBatch(tx)
            generation.increment_one(batch, provider)
            batch.add_for_ids(_DELETE, removed, provider.id, table=_provider_traits)
            new_rows = [(provider.id, id_) for id_ in sorted((added | custom).values())]
            batch.add_insert(_provider_traits, 'resource_provider_id, trait_id', new_rows)
            batch.defer()

        if removed or added:
            context.db.write(work)
        traits = sorted([by_name[name] for name in desired], key=lambda trait: trait.id)
        return provider.incremented() if removed or added else provider, traits


#: Conditions for ``Trait.get_names``: at least one provider has the trait, or no provider has it.
ASSOCIATED = sql.statement(
    'EXISTS (SELECT 1 FROM {associations} WHERE trait_id = {traits}.id)', associations=_provider_traits, traits=_traits
)
NOT_ASSOCIATED = f'NOT {ASSOCIATED}'

_NAMED = _providers.outerjoin(_traits, _traits.c.name.in_(sa.bindparam('names', expanding=True)))
#: Selects the traits of a provider, and the traits that a request names.
_WITH_NAMED = sa.union_all(
    base.with_provider(_JOINED, _traits.c.id, *_traits.c, sa.literal(1).label('present')).order_by(None),
    base.with_provider(_NAMED, _traits.c.id, *_traits.c, sa.literal(0).label('present')).order_by(None),
)


def read_traits(
    context: Context, uuid: str, names: Sequence[str] = ()
) -> tuple[ProviderGeneration, list[Trait], list[Trait]]:
    """Read a provider, its traits, and those of ``names`` that exist.

    :param uuid: a canonical uuid.
    :raises ResourceProviderNotFound: no such provider.
    """
    storable = [name for name in names if sql.storable(name)]
    provider, rows = base.read_with_provider(context, _WITH_NAMED, uuid, names=storable[: sql.MAX_VALUES_PER_STATEMENT])
    for chunk in sql.chunks(storable[sql.MAX_VALUES_PER_STATEMENT :]):
        chunk_rows = base.read_with_provider(context, _WITH_NAMED, uuid, names=chunk)[1]
        rows += [row for row in chunk_rows if not row.present]
    present, named = ([row for row in rows if row.present == flag] for flag in (1, 0))
    return provider, Trait.from_rows(context, present), Trait.from_rows(context, named)
