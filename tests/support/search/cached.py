"""The topologies of the candidate tests as snapshots, and searches in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from placement.cache.providers import Provider
from placement.cache.snapshot import PROVIDERS_PER_PARTITION, KnownNames, Snapshot
from placement.capacity import InventoryRecord
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest, compile_request
from placement.search.search_units import CandidateSet, SearchUnit
from tests.support.search.oracle import RP, SHARES, Body, Entry, Query
from tests.support.search.topologies import CLASSES, TRAITS, request_of, root_of


def snapshot_of(topology: list[RP], size: int = PROVIDERS_PER_PARTITION) -> Snapshot:
    """The snapshot of a topology, with the classes and traits of the topology and of the generated queries."""
    classes = list(dict.fromkeys([*CLASSES, *(name for rp in topology for name in rp.inventory)]))
    traits = frozenset([*TRAITS, SHARES]).union(*(rp.traits for rp in topology))
    names = KnownNames(dict(enumerate(classes)), traits)
    return Snapshot.build(names, records_of(topology, classes), size)


def records_of(topology: list[RP], classes: Sequence[str] = CLASSES) -> list[Provider]:
    """The records of a topology, with inventories in the order of ``classes``; that at index n has the id n + 1."""
    class_ids = {name: number for number, name in enumerate(classes)}
    ids = {rp.name: number for number, rp in enumerate(topology, start=1)}
    parents = {rp.name: rp.parent for rp in topology}
    return [
        Provider(
            id=ids[rp.name],
            uuid=f'uuid of {rp.name}',
            name=rp.name,
            parent_id=ids[rp.parent] if rp.parent else None,
            root_id=ids[root_of(rp.name, parents)],
            parent_provider_uuid=f'uuid of {rp.parent}' if rp.parent else None,
            root_provider_uuid=f'uuid of {root_of(rp.name, parents)}',
            inventories={
                name: InventoryRecord(**values)
                for name, values in sorted(rp.inventory.items(), key=lambda item: class_ids[item[0]])
            },
            traits=frozenset(rp.traits),
            aggregates=frozenset(rp.aggregates),
        )
        for rp in topology
    ]


def single_trees(units: Iterable[SearchUnit]) -> Iterator[SearchUnit]:
    """Each tree of some search units as one that is searched by itself."""
    for unit in units:
        for index in range(unit.count):
            tree = unit[index : index + 1]
            tree.equivalence_key = None
            yield tree


def prefilter_of(snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget | None = None) -> Prefilter:
    return Prefilter(snapshot, compile_request(request, snapshot), budget)


def search(
    snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget, alike: bool = True
) -> Iterator[CandidateSet]:
    """The candidates of a request; each of them is a set of its own unless equivalent trees are searched once."""
    prefilter = prefilter_of(snapshot, request, budget)
    units = prefilter.search_units() if alike else single_trees(prefilter.search_units())
    return find_candidate_sets(units, prefilter.compiled, budget)


def entries(snapshot: Snapshot, query: Query, candidate_sets: Iterable[CandidateSet]) -> list[Entry]:
    """Candidates in the form of the oracle."""
    names = {provider.id: provider.name or '' for provider in snapshot.providers()}
    result = []
    for candidate in itertools.chain.from_iterable(candidate_sets):
        body = frozenset((names[id_], name, amount) for id_, name, amount in candidate.amounts)
        mapped = zip(query.groups, candidate.mappings, strict=True) if query.minor >= 34 else ()
        mappings = frozenset((group.suffix, frozenset(map(names.__getitem__, ids))) for group, ids in mapped)
        result.append(Entry(body, mappings if query.minor >= 34 else None))
    return result


def find(snapshot: Snapshot, query: Query, alike: bool = True) -> list[Body]:
    """The allocations of the candidates of a query, in the form of the oracle."""
    candidate_sets = search(snapshot, request_of(query), SearchBudget(), alike)
    return [entry.body for entry in entries(snapshot, query, candidate_sets)]
