"""The search and the whole application against the brute-force oracle, over random topologies and queries."""

from __future__ import annotations

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement.cache.snapshot import Snapshot
from placement.handlers import allocation_candidate as handler
from placement.schemas.allocation_candidate import PARAMETERS
from placement.search import find_candidates
from placement.search.budget import Limit, SearchBudget
from placement.search.conditions import ProviderCondition, Requirement
from placement.search.request import CandidateRequest, RequestGroup, compile_request
from placement.search.search_units import CandidateSet
from placement.search.selection import AllocationCandidates, ResponseSize, max_candidate_size, select
from placement.search.solver import backtracking
from placement.search.solver.matching import Isolation
from placement.search.solver.variables import Variable
from tests.support import applications
from tests.support.search.cached import entries, find, prefilter_of, search, snapshot_of
from tests.support.search.oracle import RP, SHARES, Entry, Oracle, Query, assert_candidates, record
from tests.support.search.query_strings import PARAMETER_NAMES, RejectedError
from tests.support.search.random_queries import MINORS, QueryString, parse, queries, query_strings
from tests.support.search.store import Stored
from tests.support.search.topologies import (
    TRAITS,
    device_trees,
    request_of,
    root_of,
    thorough,
    tight_topologies,
    topologies,
)

# More than ten thousand queries in the thorough profile.
pytestmark = pytest.mark.timeout(1200)

CASES = st.tuples(topologies(), queries())


def test_each_parameter_has_a_model() -> None:
    assert {parameter.name for parameter in PARAMETERS} == PARAMETER_NAMES, 'a parameter has no model'


@pytest.mark.parametrize('alike', [True, False])
@thorough(2400)
@given(st.one_of(*[CASES] * 5, device_trees()), st.sampled_from([1, 3, 100]))
def test_the_search_finds_what_the_oracle_finds(alike: bool, case: tuple[list[RP], Query], size: int) -> None:
    topology, query = case
    snapshot, oracle = snapshot_of(topology, size), Oracle(topology)
    candidate_sets = list(search(snapshot, request_of(query), SearchBudget(), alike))
    expected = oracle.entries(query)
    event(f'candidates: {min(len(expected), 4)}')
    assert_candidates(entries(snapshot, query, candidate_sets), expected)
    shown = AllocationCandidates(snapshot, request_of(query), candidate_sets).providers()
    summaries = oracle.summaries(query, {entry.body for entry in expected})
    assert {block.providers[row].name for block, rows in shown.items() for row in rows} == set(summaries)


@pytest.mark.parametrize('steps', [500, 0])
@thorough(300)
@given(case=tight_topologies())
def test_requests_that_just_fit_are_not_rejected(
    monkeypatch: pytest.MonkeyPatch, steps: int, case: tuple[list[RP], Query]
) -> None:
    # With 0 dead ends are remembered from the start.
    monkeypatch.setattr(backtracking, '_STEPS_BEFORE_DEAD_ENDS', steps)
    topology, query = case
    bodies = find(snapshot_of(topology), query)
    assert_candidates(bodies, Oracle(topology).candidates(query))
    event('possible' if bodies else 'impossible')


@thorough(200)
@given(CASES, st.integers(1, 5), st.one_of(st.none(), st.integers()))
def test_a_limited_response_is_a_subset_of_the_right_size(
    case: tuple[list[RP], Query], limit: int, seed: int | None
) -> None:
    topology, query = case
    snapshot, request = snapshot_of(topology), replace(request_of(query), limit=limit)
    rng = None if seed is None else random.Random(seed)
    selected = entries(snapshot, query, list(find_candidates(snapshot, request, SearchBudget(), rng).candidate_sets))
    expected = Oracle(topology).entries(query)
    assert set(selected) <= expected
    assert len(selected) == len(set(selected)) == min(limit, len(expected))


@thorough(300)
@given(st.one_of(CASES, tight_topologies()), st.integers(0, 100), st.integers(1, 40))
def test_a_bound_that_is_not_reached_changes_nothing(
    case: tuple[list[RP], Query], percent: int, tree_steps: int
) -> None:
    snapshot, query = snapshot_of(case[0]), case[1]

    def candidates(budget: SearchBudget) -> list[Entry]:
        return entries(snapshot, query, list(search(snapshot, request_of(query), budget)))

    unbounded = SearchBudget()
    everything = candidates(unbounded)
    enough = SearchBudget(max_steps=unbounded.steps_taken)
    assert candidates(enough) == everything
    assert enough.reached == unbounded.reached == set()
    steps = unbounded.steps_taken * percent // 100
    for budget, limit in (
        (SearchBudget(max_steps=steps), Limit.REQUEST_STEPS),
        (SearchBudget(max_tree_steps=tree_steps), Limit.TREE_STEPS),
    ):
        some_candidates = candidates(budget)
        assert len(some_candidates) == len(set(some_candidates))
        assert set(some_candidates) <= set(everything)
        assert budget.reached <= {limit}
        assert budget.reached or len(some_candidates) == len(everything)
        event(f'{limit.name}: {bool(budget.reached)}')
        assert limit is Limit.TREE_STEPS or bool(budget.reached) == (steps < unbounded.steps_taken)


@thorough(200)
@given(CASES)
def test_the_size_of_a_response_is_about_that_of_its_body(case: tuple[list[RP], Query]) -> None:
    topology, query = case
    snapshot, request = snapshot_of(topology), request_of(query)
    candidates = list(itertools.chain.from_iterable(search(snapshot, request, SearchBudget())))
    size = ResponseSize(request)
    for candidate in candidates:
        size.add_candidate(candidate)
    answered = AllocationCandidates(snapshot, request, candidates)
    summaries = handler._summaries(answered, (1, query.minor))
    body = b','.join([*handler._allocation_requests(answered, as_list=False), *summaries]).decode()
    for provider in snapshot.providers():
        body = body.replace(f'"{provider.uuid}"', f'"{uuid.uuid4()}"')
    whole_trees = query.minor >= 29
    sharing = sum(SHARES in rp.traits for rp in topology)
    # Of the trees of sharing providers only these are counted.
    assert len(body) <= size.total or (sharing and whole_trees)
    if whole_trees and not sharing:
        # The numbers of an inventory here are shorter than its share of the size, and the root has no parent.
        inventories = sum(len(rp.inventory) for rp in topology)
        assert size.total <= len(body) + 14 * inventories + 34 * len(summaries) + 20 * len(candidates)
    bound = len(candidates) * max_candidate_size(request)
    summaries_bound = sum(candidate.search_unit.tree_size for candidate in candidates) + len(topology)
    assert size.total <= bound + summaries_bound * snapshot.max_summary_size


@thorough(500)
@given(st.lists(st.frozensets(st.integers(0, 5), min_size=1), min_size=1, max_size=6), st.data())
def test_isolated_variables_are_assigned_exactly_if_all_can_get_different_providers(
    domains: list[frozenset[int]], data: st.DataObject
) -> None:
    """At each choice the matching allows what brute force can complete, also after choices were taken back."""
    requirement = RequestGroup('1', True, {'VCPU': 1})
    [compiled] = compile_request(CandidateRequest((requirement,)), snapshot_of([])).requirements
    variables = [
        Variable(compiled, tuple(sorted(domain)), index, True, False, (), ()) for index, domain in enumerate(domains)
    ]
    isolation = Isolation(variables, lambda _positions: None)
    assignments = [list(chosen) for chosen in itertools.product(*domains) if len(set(chosen)) == len(chosen)]
    chosen: list[int] = []
    for _ in range(12):
        depth = len(chosen)
        if depth == len(domains) or (chosen and data.draw(st.integers(0, 3)) == 0):
            chosen.pop()
            continue
        free = sorted(domains[depth] - set(chosen))
        allowed = [position for position in free if isolation.reserve(variables[depth], position, chosen)]
        completed = [assignment[: depth + 1] for assignment in assignments]
        assert allowed == [position for position in free if [*chosen, position] in completed]
        if not allowed:
            break
        position = data.draw(st.sampled_from(allowed))
        assert isolation.reserve(variables[depth], position, chosen)
        chosen.append(position)
    event(f'possible: {bool(assignments)}')


@thorough(2000)
@given(topologies())
def test_snapshots_have_the_parents_and_the_ancestors_of_providers(topology: list[RP]) -> None:
    oracle, snapshot = Oracle(topology), snapshot_of(topology)
    for partition in snapshot.partitions:
        for provider, parent, first in zip(
            partition.providers,
            partition.parents.tolist(),
            partition.starts[partition.tree_numbers].tolist(),
            strict=True,
        ):
            above = None if parent < 0 else partition.providers[first + parent].name
            assert above == oracle.rps[provider.name or ''].parent
    ids = {provider.name: provider.id for provider in snapshot.providers()}
    for provider in snapshot.sharing:
        assert provider.ancestors == {ids[name] for name in oracle.line(provider.name or '')[1:]}


@thorough(300)
@given(CASES)
def test_requirements_accept_the_providers_that_they_match(case: tuple[list[RP], Query]) -> None:
    """Both evaluations of a requirement, and of the single conditions in it, agree on each provider in its own tree."""
    snapshot, request = snapshot_of(case[0]), request_of(case[1])
    requirements = compile_request(request, snapshot).requirements
    for partition in snapshot.partitions:
        roots = map(partition.providers.__getitem__, partition.starts[partition.tree_numbers].tolist())
        trees = list(zip(partition.providers, roots, strict=True))
        for requirement in requirements:
            rules: list[Requirement | ProviderCondition] = [requirement]
            rules += [single for condition in requirement.conditions for single in condition.split()]
            for rule in rules:
                assert [rule.accepts(provider, root) for provider, root in trees] == rule.matches(partition).tolist()


@st.composite
def tight_pairs(draw: st.DrawFn) -> tuple[list[RP], Query]:
    """Two groups that each device of a tree just can serve together."""
    topology, query = draw(tight_topologies())
    groups = [replace(group, required=set()) for group in query.groups[:2]]
    total = sum(group.resources['VGPU'] for group in groups)
    devices = [replace(rp, inventory={'VGPU': record(total)}) for rp in topology[1:]]
    return [topology[0], *devices], replace(query, groups=groups, policy='none')


@st.composite
def nearly_equal_trees(draw: st.DrawFn) -> tuple[list[RP], Query]:
    """Some trees, and copies of them, of which one provider differs in one detail."""
    small_cases = st.tuples(topologies(max_providers=4), queries())
    # Of a tight pair, a detail of usage changes only the sum that fits.
    topology, query = draw(st.one_of(small_cases, CASES, device_trees(), tight_pairs()))
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
    rp, line = copies[number], Oracle(copies).line
    details: list[list[dict[str, Any]]] = [
        [{'traits': rp.traits ^ {trait}} for trait in (*TRAITS, SHARES)],
        [
            {'inventory': {**rp.inventory, name: {**values, 'used': values['used'] + 1}}}
            for name, values in rp.inventory.items()
        ],
        [{'parent': other.name} for other in copies if rp.parent and rp.name not in line(other.name)],
    ]
    kind = draw(st.sampled_from([kind for kind in details if kind]))
    copies[number] = replace(rp, **draw(st.sampled_from(kind)))
    return [*topology, *copies], query


@thorough(500)
@given(nearly_equal_trees())
def test_only_trees_with_the_same_candidates_are_equivalent(case: tuple[list[RP], Query]) -> None:
    topology, query = case
    state = snapshot_of(topology)
    assert find(state, query) == find(state, query, alike=False)
    units = list(prefilter_of(state, request_of(query)).search_units())
    event(f'equivalent: {sum(unit.count for unit in units) - len({unit.equivalence_key for unit in units})}')


# GET /allocation_candidates of the whole application: random query strings with all parameters --------------------


@pytest.fixture(scope='module')
def newest_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application that serves the newest microversion there is; each topology replaces all providers."""
    path = tmp_path_factory.mktemp('candidates') / 'placement.sqlite'
    with applications.application(path, placement=applications.EVERY_MICROVERSION) as app:
        yield app


def check(stored: Stored, oracle: Oracle, query_string: QueryString) -> None:
    """The application answers a query string as the oracle does: the candidates and summaries, or with an error."""
    response = stored.request(f'/allocation_candidates?{query_string.text}', query_string.minor)
    try:
        query = parse(query_string)
    except RejectedError:
        event('rejected')
        assert response.status_code == 400, response.text
    else:
        assert response.status_code == 200, response.text
        shown = stored.entries(response.json)
        expected = oracle.entries(query)
        event(f'candidates: {min(len(expected), 4)}')
        if query.limit is None:
            assert_candidates(shown, expected)
        else:
            assert set(shown) <= expected
            assert len(shown) == len(set(shown)) == min(query.limit, len(expected))
        assert stored.summaries(response.json) == oracle.summaries(query, {entry.body for entry in shown})


@thorough(1200)
@given(topologies(), st.lists(st.sampled_from(MINORS).flatmap(query_strings), min_size=20, max_size=20))
def test_every_microversion_is_answered_like_the_oracle(
    newest_app: Any, topology: list[RP], query_strings: list[QueryString]
) -> None:
    stored, oracle = Stored(newest_app, topology), Oracle(topology)
    for query_string in query_strings:
        check(stored, oracle, query_string)


@thorough(60)
@given(topologies(5), st.sampled_from((12, 28, 29, 34, 36)).flatmap(query_strings))
def test_every_candidate_can_be_claimed(newest_app: Any, topology: list[RP], query: QueryString) -> None:
    stored = Stored(newest_app, topology)
    response = stored.request(f'/allocation_candidates?{query.text}', query.minor)
    for candidate in response.json.get('allocation_requests', [])[:20]:
        path = f'/allocations/{uuid.uuid4()}'
        body = {**candidate, 'project_id': 'project', 'user_id': 'user'}
        if query.minor >= 28:
            body['consumer_generation'] = None
        assert stored.request(path, query.minor, 'PUT', body).status_code == 204
        assert stored.request(path, query.minor, 'DELETE').status_code == 204


# Clouds with many equal hosts: sets of candidates against single trees and the oracle, in order -------------------


@st.composite
def clouds(draw: st.DrawFn) -> list[RP]:
    """Hosts in a random order: many copies of a few trees, in some copies with full providers."""
    trees: dict[str, list[RP]] = {}
    kinds = draw(topologies(max_providers=4))
    parents = {rp.name: rp.parent for rp in kinds}
    for rp in kinds:
        trees.setdefault(root_of(rp.name, parents), []).append(rp)
    cloud = []
    order = draw(st.lists(st.tuples(st.sampled_from(sorted(trees)), st.integers(1, 4)), min_size=1, max_size=5))
    for number, kind in enumerate(itertools.chain.from_iterable([kind] * times for kind, times in order)):
        for rp in trees[kind]:
            full = draw(st.integers(0, 5)) == 0
            inventory = {
                name: inventory | {'used': inventory['total']} if full else dict(inventory)
                for name, inventory in rp.inventory.items()
            }
            parent = rp.parent and f'{rp.parent} {number}'
            cloud.append(replace(rp, name=f'{rp.name} {number}', parent=parent, inventory=inventory))
    return cloud


def answer(state: Snapshot, request: CandidateRequest, budget: SearchBudget, alike: bool = True) -> list[CandidateSet]:
    return select(search(state, request, budget, alike), state, request, budget)


def model(request: CandidateRequest, candidates: Sequence[CandidateSet]) -> list[Any]:
    """The members of the answer, one candidate after the other."""
    written = []
    for candidate in itertools.chain.from_iterable(candidates):
        provider = candidate.search_unit.provider
        allocations: dict[str, Any] = {}
        for position, name, amount in candidate.assignment.amounts:
            allocations.setdefault(provider(position).uuid, {'resources': {}})['resources'][name] = amount
        written.append({'allocations': allocations})
        if request.with_mappings:
            mapped = zip(request.groups, candidate.assignment.mappings, strict=True)
            written[-1]['mappings'] = {
                group.suffix: [provider(position).uuid for position in positions] for group, positions in mapped
            }
    return written


@thorough(1500)
@given(clouds(), queries(), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 40)), st.data())
def test_candidate_sets_are_answered_like_single_trees(
    topology: list[RP], query: Query, size: int, limit: int | None, data: st.DataObject
) -> None:
    state, request = snapshot_of(topology, size * 3), replace(request_of(query), limit=limit)
    budget = data.draw(st.sampled_from([SearchBudget(), SearchBudget(max_candidates=5), SearchBudget(max_size=3_000)]))
    budget, of_single = replace(budget, reached=set()), replace(budget, reached=set())
    candidate_sets, single = answer(state, request, budget), answer(state, request, of_single, alike=False)
    assert all(len(candidate_set) == 1 for candidate_set in single)
    candidates = AllocationCandidates(state, request, candidate_sets)
    written = orjson.loads(b'[%b]' % b','.join(handler._allocation_requests(candidates, as_list=False)))
    expected = model(request, single)
    assert written == expected
    assert [list(candidate['allocations']) for candidate in written] == [
        list(candidate['allocations']) for candidate in expected
    ]
    assert budget.reached == of_single.reached
    assert candidates.providers() == AllocationCandidates(state, request, single).providers()
    event(f'candidates: {min(len(expected), 9)}, largest set: {min(max(map(len, candidate_sets), default=0), 5)}')


@thorough(800)
@given(clouds(), queries((10, 24, 28, 29, 32)), st.one_of(st.none(), st.integers(1, 30)))
def test_trees_take_turns_in_the_order_of_their_ids(topology: list[RP], query: Query, limit: int | None) -> None:
    """Without sharing providers the order of the trees follows from the number of candidates of each."""
    topology = [replace(rp, traits=rp.traits - {SHARES}) for rp in topology]
    expected = Oracle(topology).candidates(query)
    parents = {rp.name: rp.parent for rp in topology}
    counts = Counter(root_of(next(iter(body))[0], parents) for body in expected)
    roots = [rp.name for rp in topology if rp.parent is None]
    turns = [root for turn in range(max(counts.values(), default=0)) for root in roots if counts[root] > turn]
    state, request = snapshot_of(topology), replace(request_of(query), limit=limit)
    bodies = [entry.body for entry in entries(state, query, answer(state, request, SearchBudget()))]
    assert [root_of(next(iter(body))[0], parents) for body in bodies] == turns[:limit]
    if limit is None:
        assert_candidates(bodies, expected)
    assert len(set(bodies)) == len(bodies)
    assert set(bodies) <= expected
