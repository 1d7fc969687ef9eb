"""The filters of GET /resource_providers as one SQL condition (contract A 5.2, B 6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.db import statements, tables
from placement.objects import room

_providers = tables.resource_providers
_inventories = tables.inventories
_provider_traits = tables.resource_provider_traits
_provider_aggregates = tables.resource_provider_aggregates
_aggregates = tables.placement_aggregates


@dataclasses.dataclass(frozen=True)
class ProviderFilters:
    """What a provider must be to be listed; an empty filter lets all pass.

    ``member_of``: each set must hold at least one aggregate (uuid) of the provider. ``resources``: class name to
    amount that the provider itself must have room for. ``required`` and ``forbidden``: trait names.
    """

    name: str | None = None
    uuid: str | None = None
    in_tree: str | None = None
    member_of: tuple[frozenset[str], ...] = ()
    resources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


def matching(db: Any, tx: sa.Connection, filters: ProviderFilters) -> sa.ColumnElement[bool]:
    """The condition on ``resource_providers`` that ``filters`` amount to.

    :raises ResourceClassNotFound: a class in ``resources`` does not exist, even if nothing could match anyway.
    :raises TraitNotFound: a trait in ``required`` or ``forbidden`` does not exist; names all that do not.
    """
    class_ids = db.resource_classes.ids(tx, filters.resources)
    for name in filters.resources:
        if name not in class_ids:
            raise exception.ResourceClassNotFound(resource_class=name)
    trait_ids = known_traits(db, tx, filters.required | filters.forbidden)
    amounts = {class_ids[name]: amount for name, amount in filters.resources.items()}
    required = [trait_ids[name] for name in filters.required]
    forbidden = [trait_ids[name] for name in filters.forbidden]
    return statements.all_of(
        [
            *_identity(filters),
            *(_has_room(class_id, amount) for class_id, amount in amounts.items()),
            *(_providers.c.id.in_(_members_of(one_of)) for one_of in dict.fromkeys(filters.member_of)),
            *_traits(required, forbidden),
        ]
    )


def known_traits(db: Any, tx: sa.Connection, names: Iterable[str], *, hold: bool = False) -> dict[str, int]:
    """The ids of the traits ``names``.

    :param hold: as for ``NameCache.ids``.
    :raises TraitNotFound: some do not exist; names them all.
    """
    wanted = sorted(set(names))
    ids: dict[str, int] = db.traits.ids(tx, wanted, hold=hold)
    missing = [name for name in wanted if name not in ids]
    if missing:
        raise exception.TraitNotFound(names=', '.join(missing))
    return ids


def _identity(filters: ProviderFilters) -> Iterator[sa.ColumnElement[bool]]:
    if filters.name:
        yield _providers.c.name == filters.name
    if filters.uuid:
        yield _providers.c.uuid == filters.uuid
    if filters.in_tree:
        member = _providers.alias('member')
        root = sa.func.coalesce(member.c.root_provider_id, member.c.id)
        tree = sa.select(root).where(member.c.uuid == filters.in_tree).scalar_subquery()
        # The second half is for the roots without a root that an adopted database may have.
        yield sa.or_(_providers.c.root_provider_id == tree, _providers.c.id == tree)


def _has_room(class_id: int, amount: int) -> sa.ColumnElement[bool]:
    inv = _inventories.c
    return _providers.c.id.in_(
        sa.select(inv.resource_provider_id).where(inv.resource_class_id == class_id, room.rule(amount))
    )


def _members_of(aggregates: frozenset[str]) -> sa.Select[Any]:
    return (
        sa.select(_provider_aggregates.c.resource_provider_id)
        .join(_aggregates, _aggregates.c.id == _provider_aggregates.c.aggregate_id)
        .where(_aggregates.c.uuid.in_(sorted(aggregates)))
    )


def _traits(required: list[int], forbidden: list[int]) -> Iterator[sa.ColumnElement[bool]]:
    own = _provider_traits.c
    if required:
        having = (
            sa.select(own.resource_provider_id)
            .where(own.trait_id.in_(required))
            .group_by(own.resource_provider_id)
            .having(sa.func.count() == len(required))
        )
        yield _providers.c.id.in_(having)
    if forbidden:
        yield _providers.c.id.not_in(sa.select(own.resource_provider_id).where(own.trait_id.in_(forbidden)))
