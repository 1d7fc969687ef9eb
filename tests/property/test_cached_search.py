"""Searches of the provider cache against the brute-force oracle, over random topologies and queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from placement.cache.snapshot import Snapshot
from placement.search.prefilter import Prefilter
from tests.property.test_search_since_1_30 import cases, device_trees
from tests.support.search.cached import NAMES, find, records_of
from tests.support.search.oracle import RP, SHARES, Group, Oracle, Query, assert_candidates, record
from tests.support.search.topologies import MINORS, TRAITS, queries, request_of, thorough, topologies


@thorough(2000)
@given(topologies(), queries(MINORS), st.integers(1, 5))
def test_searches_of_the_cache_find_exactly_what_the_oracle_finds(topology: list[RP], query: Query, size: int) -> None:
    state = Snapshot.build(NAMES, records_of(topology), size)
    expected = Oracle(topology).candidates(query)
    event(f'candidates: {min(len(expected), 4)}')
    assert_candidates(find(state, query), expected)


@st.composite
def nearly_equal_trees(draw: st.DrawFn) -> tuple[list[RP], Query]:
    """Some trees, and copies of them, of which one provider differs in one detail."""
    older = st.tuples(topologies(max_providers=4), queries((24, 28, 29), max_numbered=2))
    topology, query = draw(st.one_of(older, cases(), device_trees()))
    # In other aggregates, each copy has its own sharing providers.
    aggregate = draw(st.sampled_from(['{}', '{} copied']))
    copies = [
        replace(
            rp,
            name=f'{rp.name} copied',
            parent=rp.parent and f'{rp.parent} copied',
            aggregates=set(map(aggregate.format, rp.aggregates)),
        )
        for rp in topology
    ]
    number = draw(st.integers(0, len(copies) - 1))
    rp = copies[number]
    details: list[dict[str, Any]] = [{'traits': rp.traits ^ {trait}} for trait in (*TRAITS, SHARES)]
    details += [
        {'inventory': {**rp.inventory, name: {**values, 'used': values['used'] + 1}}}
        for name, values in rp.inventory.items()
    ]
    details += [{'parent': other.name} for other in copies[:number] if rp.parent]
    copies[number] = replace(rp, **draw(st.sampled_from(details)))
    return [*topology, *copies], query


def _disk(name: str, total: int = 1, *, shares: bool = False, aggregate: str = '') -> RP:
    traits, aggregates = {SHARES} if shares else set(), {aggregate} if aggregate else set()
    return RP(name, inventory={'DISK_GB': record(total)}, traits=traits, aggregates=aggregates)


def _vcpu(name: str, aggregate: str, parent: str | None = None) -> RP:
    return RP(name, parent, {'VCPU': record(1)}, {SHARES}, {aggregate})


def _memory(name: str, aggregate: str) -> RP:
    return RP(name, inventory={'MEMORY_MB': record(1)}, aggregates={aggregate})


_RELATED = [
    *(_memory('a', 'north'), _disk('disk', shares=True, aggregate='north'), _vcpu('vcpu', 'north', 'disk')),
    *(_memory('b', 'south'), _disk('disk 2', shares=True, aggregate='south'), _vcpu('vcpu 2', 'south')),
]
_ONE_BELOW_THE_OTHER = Query(
    [Group('_A', {'DISK_GB': 1}), Group('_B', {'VCPU': 1})], 'none', None, 36, same_subtree=[{'_A', '_B'}]
)


# Pairs that hardly any random trees are. Two groups fit into the disk of one host.
@example(
    ([_disk('a', 4), _disk('b', 3)], Query([Group('1', {'DISK_GB': 2}), Group('2', {'DISK_GB': 2})], 'none', None, 29))
)
# A sharing provider gives the candidates that a host gives.
@example(
    (
        [
            _disk('host', aggregate='south'),
            _vcpu('vcpu of host', 'south'),
            _disk('disk', shares=True, aggregate='north'),
            _vcpu('vcpu', 'north'),
        ],
        Query([Group('', {'DISK_GB': 1, 'VCPU': 1})], None, None, 29),
    )
)
# The sharing providers of one host are in one tree, of which only one may be used below 1.29.
@example((_RELATED, Query([Group('', {'MEMORY_MB': 1, 'DISK_GB': 1, 'VCPU': 1})], None, None, 28)))
# They are one below the other, and so are the providers of another pair of trees.
@example((_RELATED, replace(_ONE_BELOW_THE_OTHER, groups=[Group('', {'MEMORY_MB': 1}), *_ONE_BELOW_THE_OTHER.groups])))
@example(
    (
        [
            *(RP('a'), RP('a1', 'a', {'DISK_GB': record(1)}), RP('a2', 'a1', {'VCPU': record(1)})),
            *(RP('b'), RP('b1', 'b', {'DISK_GB': record(1)}), RP('b2', 'b', {'VCPU': record(1)})),
        ],
        _ONE_BELOW_THE_OTHER,
    )
)
# The first disk suffices for one host, the second one for the other.
@example(
    (
        [
            *(_memory('a', 'north'), _memory('b', 'south')),
            *(_disk(f'disk {total}', total, shares=True, aggregate='north') for total in (5, 1)),
            *(_disk(f'disk {total} of b', total, shares=True, aggregate='south') for total in (1, 5)),
        ],
        Query([Group('', {'MEMORY_MB': 1, 'DISK_GB': 5})], None, None, 29),
    )
)
@thorough(500)
@given(nearly_equal_trees())
def test_only_trees_with_the_same_candidates_are_equivalent(case: tuple[list[RP], Query]) -> None:
    topology, query = case
    state = Snapshot.build(NAMES, records_of(topology))
    assert find(state, query) == find(state, query, alike=False)
    units = list(Prefilter(state, request_of(query)).search_units())
    event(f'equivalent: {sum(unit.count for unit in units) - len({unit.equivalence_key for unit in units})}')
