"""The search of the cache with all that 1.31 to 1.39 add, beside the oracle: candidates, mappings and summaries."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cache.snapshot import Snapshot
from placement.search.assignments import search
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.selection import AllocationCandidates
from tests.support.search.cached import NAMES, records_of, single_trees
from tests.support.search.oracle import RP, SHARES, Entry, Group, Oracle, Query, assert_candidates, record
from tests.support.search.topologies import AGGREGATES, TRAITS, groups, request_of, thorough, topologies

MINORS = (31, 32, 33, 34, 35, 36, 36, 36, 39, 39, 39)

_TRAITS = st.sets(st.sampled_from([*TRAITS, SHARES]), max_size=2)


def _maybe(values: st.SearchStrategy[set[str]]) -> st.SearchStrategy[set[str]]:
    return st.one_of(st.just(set()), st.just(set()), values)


@st.composite
def _group(draw: st.DrawFn, number: str, minor: int, names: list[str]) -> Group:
    group = draw(groups(number, 29))
    if minor >= 36 and number and draw(st.integers(0, 2)) == 0:
        group = replace(group, resources={})
    group.in_tree = draw(st.sampled_from([None, None, None, *names, 'nobody']))
    if minor >= 32:
        group.not_member_of = draw(_maybe(st.sets(st.sampled_from(AGGREGATES), max_size=2)))
    if minor >= 39:
        traits = st.sets(st.sampled_from([*TRAITS, SHARES]), min_size=2, max_size=2)
        group.any_of = [
            alternatives for alternatives in draw(st.lists(traits, max_size=2)) if not alternatives <= group.forbidden
        ]
    return group


@st.composite
def _queries(draw: st.DrawFn, topology: list[RP]) -> Query:
    minor = draw(st.sampled_from(MINORS))
    suffixes = (['_A', '_B', '1', 'c'] if minor >= 33 else ['1', '2', '3', '4'])[: draw(st.integers(0, 4))]
    groups = [draw(_group(suffix, minor, [rp.name for rp in topology])) for suffix in suffixes]
    if not any(group.resources for group in groups) or draw(st.booleans()):
        groups.append(draw(_group('', minor, [rp.name for rp in topology])))
    query = Query(groups, draw(st.sampled_from(['none', 'isolate'])) if len(suffixes) > 1 else None, None, minor)
    if minor >= 35:
        query.root_required = draw(_maybe(_TRAITS))
        query.root_forbidden = draw(_maybe(_TRAITS)) - query.root_required
    if minor >= 36 and suffixes:
        query.same_subtree = draw(st.lists(st.sets(st.sampled_from(suffixes), min_size=1), max_size=2))
        # A group without resources has to be in one.
        query.same_subtree += [{group.number} for group in groups if not group.resources]
    return query


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[RP], Query]:
    topology = draw(topologies())
    return topology, draw(_queries(topology))


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
    groups = [Group(suffix, dict(draw(amounts)), draw(_maybe(traits))) for suffix in suffixes]
    groups[0].resources = {'DISK_GB': 1}
    conditions = draw(st.lists(st.sets(st.sampled_from(suffixes), min_size=2), min_size=1, max_size=3))
    conditions += [{group.number} for group in groups if not group.resources]
    policy = draw(st.sampled_from(['none', 'isolate']))
    return topology, Query(groups, policy, None, 36, same_subtree=conditions)


def check(topology: list[RP], query: Query, size: int, alike: bool) -> None:
    state = Snapshot.build(NAMES, records_of(topology), size)
    request = request_of(query)
    names = {provider.id: provider.name or '' for provider in state.providers()}
    prefilter = Prefilter(state, request)
    units = prefilter.search_units() if alike else single_trees(prefilter.search_units())
    candidate_sets = list(search(units, prefilter.compiled, SearchBudget()))
    entries = []
    for candidate in itertools.chain.from_iterable(candidate_sets):
        mapped = zip(request.groups, candidate.mappings, strict=True) if request.with_mappings else ()
        mappings = frozenset((group.suffix, frozenset(map(names.__getitem__, ids))) for group, ids in mapped)
        body = frozenset((names[id_], name, amount) for id_, name, amount in candidate.amounts)
        entries.append(Entry(body, mappings if request.with_mappings else None))
    expected = Oracle(topology).entries(query)
    assert_candidates(entries, expected)
    shown = AllocationCandidates(state, request, candidate_sets).providers()
    summaries = Oracle(topology).summaries(query, {entry.body for entry in expected})
    assert {block.providers[row].name for block, rows in shown.items() for row in rows} == set(summaries)


@pytest.mark.parametrize(('size', 'alike'), [(1, True), (100, True), (100, False)])
@thorough(2000)
@given(cases())
def test_the_search_finds_what_the_oracle_finds(size: int, alike: bool, case: tuple[list[RP], Query]) -> None:
    check(*case, size, alike)


@thorough(600)
@given(device_trees())
def test_subtrees_that_hardly_fit(case: tuple[list[RP], Query]) -> None:
    check(*case, 100, True)
