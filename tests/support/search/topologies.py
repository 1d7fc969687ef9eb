"""Test topologies for the candidate search: random ones, and how to turn one into the rows that the search reads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from placement.cache.providers import InventoryRecord, Provider
from placement.search import assignments
from placement.search.budget import SearchBudget
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.requirements import CompiledRequest, compile_request
from placement.search.search_units import CandidateSet, SearchUnit, SharingIndex
from placement.search.solver.variables import Rejections
from tests.support.search.oracle import RP, SHARES, Body, Group, Query, record

Test = TypeVar('Test', bound=Callable[..., Any])

CLASSES = ['VCPU', 'MEMORY_MB', 'DISK_GB']
TRAITS = ['HW_CPU_X86_AVX2', 'CUSTOM_RED']
AGGREGATES = ['north', 'south', 'east']

#: Minor versions to draw from: one of each range in which the candidates query differs, the newest more often.
MINORS = (10, 17, 21, 22, 24, 25, 28, 29, 29, 29)


def thorough(examples: int) -> Callable[[Test], Test]:
    """Mark a test that tries ``examples`` topologies; an eighth of them unless Hypothesis' profile is thorough."""
    everything = settings.get_current_profile_name() == 'thorough'
    chosen = settings(
        max_examples=examples if everything else max(examples // 8, 10),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    return lambda test: pytest.mark.thorough(chosen(test))


class Rows:
    """A topology as rows: anchors, sharing index, and the way back from ids to names."""

    def __init__(self, topology: list[RP]) -> None:
        ids = {rp.name: number for number, rp in enumerate(topology, start=1)}
        parents = {rp.name: rp.parent for rp in topology}
        self.names = {number: name for name, number in ids.items()}
        self.providers = {}
        for rp in topology:
            self.providers[rp.name] = Provider(
                id=ids[rp.name],
                uuid=rp.name,
                root_id=ids[root_of(rp.name, parents)],
                parent_id=ids[rp.parent] if rp.parent else None,
                inventories={rc: InventoryRecord(**values) for rc, values in rp.inventory.items()},
                traits=frozenset(rp.traits),
                aggregates=frozenset(rp.aggregates),
            )
        self.sharing = SharingIndex(self.providers[rp.name] for rp in topology if SHARES in rp.traits and rp.inventory)

    def search_units(self) -> list[SearchUnit]:
        trees: dict[int, list[Provider]] = {}
        for provider in self.providers.values():
            trees.setdefault(provider.root_id, []).append(provider)
        units, reached = [], []
        for root_id, members in sorted(trees.items()):
            members.sort(key=lambda provider: (provider.id != root_id, provider.id))
            touched = frozenset().union(*(provider.aggregates for provider in members)) & self.sharing.aggregates
            sharing = tuple(provider for provider in self.sharing.reaching(touched) if provider.root_id != root_id)
            units.append(SearchUnit(tuple(members), sharing))
            reached.append(touched)
        groups = dict.fromkeys(self.sharing.reaching(touched) for touched in reached if len(touched) > 1)
        return units + [SearchUnit((), group) for group in groups if group]

    def search(
        self, request: CandidateRequest, budget: SearchBudget | None = None, rejections: Rejections | None = None
    ) -> list[Body]:
        """Return the contents of all candidates within ``budget``."""
        return self.bodies(search(self.search_units(), compile_request(request), budget or SearchBudget(), rejections))

    def bodies(self, candidates: Iterable[CandidateSet]) -> list[Body]:
        """Return the contents of each candidate, with the names of its providers."""
        return [
            frozenset((self.names[provider], rc, n) for provider, rc, n in candidate.amounts)
            for candidate in candidates
        ]


def with_bits(units: Iterable[SearchUnit], compiled: CompiledRequest) -> Iterator[SearchUnit]:
    """The search units that the prefilter would yield, each with the bits of its providers."""
    for unit in units:
        if not unit.tree or compiled.root.accepts(unit.tree[0], unit.tree[0]):
            unit._bits = compiled.bits_at(unit.tree, unit.sharing)
            yield unit


def search(
    units: Iterable[SearchUnit], compiled: CompiledRequest, budget: SearchBudget, rejections: Rejections | None = None
) -> Iterator[CandidateSet]:
    """Search units that were made without the prefilter."""
    return assignments.search(with_bits(units, compiled), compiled, budget, rejections)


def with_key(unit: SearchUnit, request: CandidateRequest) -> SearchUnit:
    """The search unit with an equivalence key."""
    return SearchUnit(unit.tree, unit.sharing, equivalence_key=_key(unit, request))


def _key(unit: SearchUnit, request: CandidateRequest) -> Hashable:
    """All that assignments depend on, as described at ``SearchUnit``."""
    providers = unit.tree + unit.sharing
    roots = [unit.tree[0] for _ in unit.tree] + [None for _ in unit.sharing]
    able = [
        [part.accepts(provider, root) for provider, root in zip(providers, roots, strict=True)]
        for part in compile_request(request).requirements
    ]
    of_tree = [[provider.root_id for provider in providers].index(member.root_id) for member in providers]
    attributes = [
        (
            tuple((rc, provider.inventories[rc].headroom) for rc in request.classes if rc in provider.inventories),
            request.traits & provider.traits,
            SHARES in provider.traits,
        )
        for provider in providers
    ]
    return len(unit.tree), tuple(map(tuple, able)), tuple(of_tree), tuple(attributes)


def root_of(name: str, parents: dict[str, str | None]) -> str:
    """The root of the provider called ``name``."""
    parent = parents[name]
    return name if parent is None else root_of(parent, parents)


def request_of(query: Query) -> CandidateRequest:
    """The query as a request of the search; the uuid of ``in_tree`` is that of ``cached.records_of``."""
    return CandidateRequest(
        groups=tuple(
            RequestGroup(
                suffix=group.number,
                use_same_provider=bool(group.number),
                resources=dict(group.resources),
                required=frozenset(group.required),
                forbidden=frozenset(group.forbidden),
                member_of=tuple(frozenset(any_of) for any_of in group.member_of),
                required_any=frozenset(map(frozenset, group.any_of)),
                forbidden_aggregates=frozenset(group.not_member_of),
                in_tree=f'uuid of {group.in_tree}' if group.in_tree else None,
            )
            for group in query.groups
        ),
        group_policy=query.policy,
        limit=query.limit,
        nested_aware=query.minor >= 29,
        with_mappings=query.minor >= 34,
        root_required=frozenset(query.root_required),
        root_forbidden=frozenset(query.root_forbidden),
        same_subtree=tuple(dict.fromkeys(map(frozenset, query.same_subtree))),
    )


def _record(rng: random.Random) -> dict[str, Any]:
    """A small inventory with unusual units, sometimes full."""
    return record(
        total=rng.randint(1, 8),
        reserved=rng.choice([0, 0, 1, 2]),
        min_unit=rng.choice([1, 1, 2]),
        max_unit=rng.choice([2147483647, 1, 2, 3]),
        step_size=rng.choice([1, 1, 2]),
        allocation_ratio=rng.choice([1.0, 1.5, 0.7]),
        used=rng.choice([0, 0, 1, 2]),
    )


def _subsets(names: list[str], max_size: int = 3) -> list[set[str]]:
    return [set(members) for count in range(max_size + 1) for members in itertools.combinations(names, count)]


# Drawn as a whole, since drawing takes most of the time; simple ones come first, for shrinking.
_RNG = random.Random(1)
RECORDS = [record(total) for total in range(8, 0, -1)] * 20 + [_record(_RNG) for _ in range(200)]
SUPPLIES = [*_subsets(CLASSES), *[set(CLASSES)] * 5, *_subsets(CLASSES)[4:]]


@st.composite
def topologies(draw: st.DrawFn, max_providers: int = 7) -> list[RP]:
    """A few trees with sharing roots and sharing children."""
    topology: list[RP] = []
    sharing = draw(st.sampled_from([2, 6]))
    for number in range(draw(st.integers(1, max_providers))):
        earlier = [None, None, *(rp.name for rp in topology)]
        traits = set(draw(st.sampled_from(_subsets(TRAITS))))
        if draw(st.integers(0, 9)) < sharing:
            traits.add(SHARES)
        topology.append(
            RP(
                name=f'p{number}',
                parent=draw(st.sampled_from(earlier)),
                inventory={rc: dict(draw(st.sampled_from(RECORDS))) for rc in sorted(draw(st.sampled_from(SUPPLIES)))},
                traits=traits,
                aggregates=set(draw(st.sampled_from(_subsets(AGGREGATES, 2)[sharing > 5 :]))),
            )
        )
    return topology


@st.composite
def groups(draw: st.DrawFn, number: str, minor: int) -> Group:
    """A request group with the parameters that exist at this microversion."""
    amounts = st.sampled_from([1, 1, 1, 2, 3])
    resources = draw(st.dictionaries(st.sampled_from(CLASSES), amounts, min_size=1, max_size=2 if number else 3))
    nothing: set[str] = set()
    traits = st.one_of(st.just(nothing), st.sets(st.sampled_from([*TRAITS, SHARES]), max_size=2 - bool(number)))
    required = draw(traits) if minor >= 17 else nothing
    forbidden = draw(traits) if minor >= 22 else nothing
    values = st.lists(st.sets(st.sampled_from([*AGGREGATES, 'nowhere']), min_size=1, max_size=2), max_size=2)
    member_of = draw(st.one_of(st.just([]), values)) if minor >= 21 else []
    return Group(number, resources, required, forbidden - required, member_of if minor >= 24 else member_of[:1])


@st.composite
def queries(draw: st.DrawFn, minors: tuple[int, ...] = (29,), max_numbered: int = 3) -> Query:
    """A query that is valid at a microversion out of ``minors``."""
    minor = draw(st.sampled_from(minors))
    numbers = list('123456'[: draw(st.integers(0, max_numbered))]) if minor >= 25 else []
    unnumbered = [''] if not numbers or draw(st.booleans()) else []
    chosen = [draw(groups(number, minor)) for number in [*numbers, *unnumbered]]
    if len(numbers) > 1 and draw(st.booleans()):
        chosen[1] = replace(chosen[0], number=numbers[1])
    policy = draw(st.sampled_from(['none', 'isolate'])) if len(numbers) > 1 else None
    return Query(chosen, policy, None, minor)


@st.composite
def tight_topologies(draw: st.DrawFn) -> tuple[list[RP], Query]:
    """One tree of a few devices, and numbered groups that just fit or just do not fit."""
    totals = draw(st.lists(st.integers(6, 10), min_size=2, max_size=4))
    some_traits = st.sampled_from(_subsets(TRAITS))
    topology = [RP('root', inventory={'VCPU': record(draw(st.integers(1, 6)))})]
    for number, total in enumerate(totals):
        inventory = {'VGPU': record(total), 'VCPU': record(draw(st.integers(2, 6)))}
        topology.append(RP(f'd{number}', 'root', inventory, set(draw(some_traits))))
    chosen = []
    for number in range(1, draw(st.integers(2, len(totals) + 2)) + 1):
        resources = {'VGPU': draw(st.sampled_from([2, 3, 4, 4, 5, 5, 6]))}
        if draw(st.integers(0, 3)) == 0:
            resources['VCPU'] = draw(st.integers(1, 3))
        chosen.append(Group(str(number), resources, set(draw(some_traits)) if draw(st.booleans()) else set()))
    if draw(st.booleans()):
        chosen.append(Group('', {'VGPU': draw(st.integers(1, 5))}))
    return topology, Query(chosen, draw(st.sampled_from(['none', 'isolate'])))
