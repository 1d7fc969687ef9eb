"""The ids of what a candidate request names, looked up once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.db import statements, tables

_aggregates = tables.placement_aggregates


@dataclass(frozen=True)
class Names:
    """Ids by name. ``aggregate_ids`` holds only those of the request's aggregates that exist."""

    class_ids: Mapping[str, int]
    trait_ids: Mapping[str, int]
    aggregate_ids: Mapping[str, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, '_uuids', {id_: uuid for uuid, id_ in self.aggregate_ids.items()})

    @property
    def sharing_trait_id(self) -> int:
        """The id of the trait that makes a provider share."""
        return self.trait_ids[SHARING_TRAIT]

    def aggregate_uuids(self, ids: Collection[int]) -> frozenset[str]:
        """Return the uuids of those of ``ids`` that the request names."""
        uuids: Mapping[int, str] = self.__dict__['_uuids']
        if not ids or not uuids:
            return frozenset()
        return frozenset(uuids[id_] for id_ in ids if id_ in uuids)


def look_up(db: Any, tx: sa.Connection, request: CandidateRequest) -> Names:
    """Return the ids of every name in any group.

    :param db: the ``placement.db.api.Database`` of ``tx``.
    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist, required or forbidden; it names all of them.
    """
    classes = [name for group in request.groups for name in group.resources]
    class_ids = db.resource_classes.ids(tx, classes)
    for name in classes:
        if name not in class_ids:
            raise exception.ResourceClassNotFound(resource_class=name)
    trait_ids = db.traits.ids(tx, request.traits | {SHARING_TRAIT})
    missing = sorted(request.traits - trait_ids.keys())
    if missing:
        raise exception.TraitNotFound(names=', '.join(missing))
    return Names(class_ids, trait_ids, _aggregate_ids(tx, request.aggregates))


def _aggregate_ids(tx: sa.Connection, uuids: Iterable[str]) -> dict[str, int]:
    query = sa.select(_aggregates.c.uuid, _aggregates.c.id)
    return {
        row.uuid: row.id
        for batch in statements.batches(sorted(uuids))
        for row in tx.execute(query.where(_aggregates.c.uuid.in_(batch)))
    }
