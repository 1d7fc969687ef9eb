"""The topologies of the candidate tests as snapshots, and searches in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import KnownNames, Snapshot
from placement.candidates.limits import SearchLimits
from placement.candidates.providers import InventoryRecord, Provider
from placement.candidates.search import search
from tests.support.candidates.oracle import RP, SHARES, Body, Query
from tests.support.candidates.topologies import CLASSES, TRAITS, request_of, root_of

CLASS_IDS = {name: number for number, name in enumerate(CLASSES)}
NAMES = KnownNames({number: name for name, number in CLASS_IDS.items()}, frozenset([*TRAITS, SHARES]))
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def records_of(topology: list[RP], generation: int = 0, class_ids: Mapping[str, int] = CLASS_IDS) -> list[Provider]:
    """The records of a topology; the provider at index n has the id n + 1."""
    ids = {rp.name: number for number, rp in enumerate(topology, start=1)}
    parents = {rp.name: rp.parent for rp in topology}
    return [
        Provider(
            id=ids[rp.name],
            uuid=f'uuid of {rp.name}',
            name=rp.name,
            generation=generation,
            parent_id=ids[rp.parent] if rp.parent else None,
            root_id=ids[root_of(rp.name, parents)],
            parent_provider_uuid=f'uuid of {rp.parent}' if rp.parent else None,
            root_provider_uuid=f'uuid of {root_of(rp.name, parents)}',
            modified=NOW,
            inventories={
                name: InventoryRecord(**values)
                for name, values in sorted(rp.inventory.items(), key=lambda item: class_ids[item[0]])
            },
            traits=frozenset(rp.traits),
            aggregates=frozenset(rp.aggregates),
        )
        for rp in topology
    ]


def found(state: Snapshot, query: Query, alike: bool = True) -> list[Body]:
    """The candidates that a search of the cache finds, in the form of the oracle."""
    request = request_of(query)
    names = {record.id: record.name or '' for record in state.providers()}
    prefilter = Prefilter(state, request, alike)
    return [
        frozenset((names[provider], name, amount) for provider, name, amount in candidate.amounts)
        for family in search(prefilter.search_units(), prefilter.compiled, SearchLimits())
        for candidate in family
    ]
