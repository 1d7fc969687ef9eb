"""Random topologies for the candidate search, and the requests of the search for the queries of the oracle."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from placement.search.request import CandidateRequest, NameSetFilter, RequestGroup
from tests.support.search.oracle import RP, SHARES, Group, Query, record

Test = TypeVar('Test', bound=Callable[..., Any])

CLASSES = ['VCPU', 'MEMORY_MB', 'DISK_GB']
TRAITS = ['HW_CPU_X86_AVX2', 'CUSTOM_RED', 'STORAGE_DISK_SSD']
AGGREGATES = ['north', 'south', 'east']


def thorough(examples: int) -> Callable[[Test], Test]:
    """Mark a test that tries ``examples`` topologies; an eighth of them unless Hypothesis' profile is thorough."""
    everything = settings.get_current_profile_name() == 'thorough'
    chosen = settings(
        max_examples=examples if everything else max(examples // 8, 10),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    return lambda test: pytest.mark.thorough(chosen(test))


def root_of(name: str, parents: dict[str, str | None]) -> str:
    """The root of the provider called ``name``."""
    parent = parents[name]
    return name if parent is None else root_of(parent, parents)


def request_of(query: Query) -> CandidateRequest:
    """The query as a request of the search, in a snapshot that ``cached`` makes."""
    return CandidateRequest(
        groups=tuple(
            RequestGroup(
                suffix=group.suffix,
                use_same_provider=bool(group.suffix),
                resources=dict(group.resources),
                traits=name_filter([*({name} for name in group.required), *group.any_of], group.forbidden),
                aggregates=name_filter(group.member_of, group.not_member_of),
                in_tree=f'uuid of {group.in_tree}' if group.in_tree else None,
            )
            for group in query.groups
        ),
        group_policy=query.policy,
        limit=query.limit,
        nested_aware=query.minor >= 29,
        with_mappings=query.minor >= 34,
        root_traits=name_filter([{name} for name in query.root_required], query.root_forbidden),
        same_subtree=tuple(dict.fromkeys(map(frozenset, query.same_subtree))),
    )


def name_filter(any_of: Iterable[Iterable[str]], forbidden: Iterable[str]) -> NameSetFilter:
    """The filter with these sets, each once."""
    return NameSetFilter(tuple(dict.fromkeys(map(frozenset, any_of))), frozenset(forbidden))


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
def topologies(draw: st.DrawFn, max_providers: int = 8) -> list[RP]:
    """A few trees, some of them deep, with providers without inventory, sharing roots and sharing children.

    Their order, from which ``records_of`` makes ids, is random: since 1.37 a parent may have the larger id.
    """
    topology: list[RP] = []
    sharing = draw(st.sampled_from([1, 2, 6]))
    for number in range(draw(st.integers(1, max_providers))):
        earlier = [rp.name for rp in topology]
        traits = set(draw(st.sampled_from(_subsets(TRAITS))))
        if draw(st.integers(0, 9)) < sharing:
            traits.add(SHARES)
        topology.append(
            RP(
                name=f'p{number}',
                # The last ones more often, so that trees become deep.
                parent=draw(st.sampled_from([None, None, *earlier, *earlier[-2:], *earlier[-1:]])),
                inventory={rc: dict(draw(st.sampled_from(RECORDS))) for rc in sorted(draw(st.sampled_from(SUPPLIES)))},
                traits=traits,
                aggregates=set(draw(st.sampled_from(_subsets(AGGREGATES, 2)[sharing > 5 :]))),
            )
        )
    return draw(st.permutations(topology))


@st.composite
def device_trees(draw: st.DrawFn) -> tuple[list[RP], Query]:
    """A tree of devices below cells, sharing devices of another tree, and groups whose subtrees just fit or do not."""
    traits = st.sets(st.sampled_from(TRAITS))
    topology = [RP('host', aggregates={'north'})]
    for name, parent in [
        ('c0', 'host'),
        ('c1', 'host'),
        *((f'd{n}', draw(st.sampled_from(['c0', 'c1']))) for n in range(5)),
    ]:
        total = draw(st.integers(0, 3))
        topology.append(RP(name, parent, {'DISK_GB': record(total)} if total else {}, draw(traits)))
    for number in range(draw(st.integers(0, 3))):
        above = f's{number - 1}' if number else None
        topology.append(RP(f's{number}', above, {'DISK_GB': record(2)}, draw(traits) | {SHARES}, {'north'}))
    suffixes = [f'_{number}' for number in range(draw(st.integers(2, 5)))]
    amounts = st.sampled_from([{}, {'DISK_GB': 1}, {'DISK_GB': 1}, {'DISK_GB': 2}])
    groups = [
        Group(suffix, dict(draw(amounts)), draw(st.one_of(st.just(set()), st.just(set()), traits)))
        for suffix in suffixes
    ]
    groups[0].resources = {'DISK_GB': 1}
    conditions = draw(st.lists(st.sets(st.sampled_from(suffixes), min_size=2), min_size=1, max_size=3))
    conditions += [{group.suffix} for group in groups if not group.resources]
    policy = draw(st.sampled_from(['none', 'isolate']))
    return topology, Query(groups, policy, None, 36, same_subtree=conditions)


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
