"""Bounds on hard searches, in steps and in the size of the answer; other searches are not affected."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from placement import conf as placement_conf
from placement.search import budget as budgets
from placement.search.assignments import with_streams
from placement.search.budget import Limit, SearchBudget
from placement.search.request import CandidateRequest
from placement.search.requirements import compile_request
from placement.search.search_units import CandidateSet, SearchUnit
from placement.search.selection import ResponseSize, select
from tests.support.search import hard
from tests.support.search.hard import Case
from tests.support.search.oracle import RP, SHARES, Group, Oracle, Query, record
from tests.support.search.topologies import Rows, request_of, search, with_bits, with_key


def defaults() -> SearchBudget:
    """The limits of the default configuration."""
    return SearchBudget.for_search(placement_conf.load(environ={}, config_files=[]).placement)


def find(case: Case, budget: SearchBudget) -> list[CandidateSet]:
    topology, query = case
    request = request_of(query)
    return select(search(Rows(topology).search_units(), compile_request(request), budget), request, budget)


@pytest.mark.parametrize('holes', [1, 8, 13, 64])
@pytest.mark.parametrize('make', [hard.pigeonhole, hard.hidden_pigeonhole])
def test_one_group_too_many_is_rejected_in_few_steps(make: Callable[[int], Case], holes: int) -> None:
    budget = defaults()
    assert find(make(holes), budget) == []
    assert budget.reached == set()
    assert budget.steps_taken < 200 * holes


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize(('variables', 'clauses'), [(20, 60), (20, 100), (40, 120), (40, 200)])
def test_traits_that_encode_a_formula_are_decided_within_the_bounds(variables: int, clauses: int, seed: int) -> None:
    budget = defaults()
    candidates = find(hard.satisfiability(variables, clauses, seed), budget)
    assert budget.reached == set()
    assert bool(candidates) == (clauses == 3 * variables)


@pytest.mark.parametrize('clauses', [20, 38, 60])
@pytest.mark.parametrize('seed', range(4))
def test_formulas_are_decided_like_the_oracle(clauses: int, seed: int) -> None:
    topology, query = hard.satisfiability(9, clauses, seed)
    query.limit = None
    assert set(Rows(topology).search(request_of(query))) == Oracle(topology).candidates(query)


@pytest.mark.parametrize('seed', range(5))
def test_isolated_groups_with_few_suitable_providers_are_decided(seed: int) -> None:
    budget = defaults()
    find(hard.tied(seed, 30, 30, 'isolate'), budget)
    assert budget.reached == set()
    assert budget.steps_taken < 100_000


HARD: dict[str, Case] = {
    'a large formula': hard.satisfiability(100, 420, 1),
    'a larger formula': hard.satisfiability(250, 1060, 2),
    'three classes': hard.packing(0, classes=3),
    'many bins': hard.packing(1, 60, 180, 2),
    'many groups': hard.packing(5, 100, 256),
    'traits': hard.tied(4, 30, 40),
    'isolated': hard.tied(1, 120, 120, 'isolate'),
    'pools': hard.shared(3, 40, 70),
    'wide': hard.wide(40, 5),
    'wider': hard.wide(1000, 2),
    'a cloud': hard.clouds(lambda seed: hard.packing(seed, classes=3), 40),
}


@pytest.mark.parametrize('name', HARD)
def test_hard_searches_keep_to_the_bound_on_steps(name: str) -> None:
    budget = SearchBudget(max_steps=300_000, max_tree_steps=20_000)
    find(HARD[name], budget)
    # The last piece of work may exceed the bound: a check of traits, or one step in a large tree.
    assert budget.steps_taken <= 300_000 + 20_000
    assert budget.remembered_items == 0


@pytest.mark.parametrize('seed', range(15))
def test_random_hard_searches_keep_to_the_bounds(seed: int) -> None:
    case = hard.random_case(seed)
    budget = SearchBudget(max_steps=200_000, max_tree_steps=20_000, max_size=5_000)
    candidates = find(case, budget)
    assert budget.steps_taken <= 200_000 + 20_000
    assert size_of(candidates, request_of(case[1])) <= 5_000
    assert budget.remembered_items == 0


@pytest.mark.parametrize(
    ('name', 'option', 'limit'),
    [
        ('a cloud', 'max_search_steps', Limit.REQUEST_STEPS),
        ('three classes', 'max_search_steps_per_tree', Limit.TREE_STEPS),
    ],
)
def test_a_search_that_explains_another_one_takes_a_tenth_of_its_steps(name: str, option: str, limit: Limit) -> None:
    options = placement_conf.load(environ={}, config_files=[]).placement
    budget = SearchBudget.for_explanation(options)
    assert find(HARD[name], budget) == []
    assert limit in budget.reached
    assert 1 <= budget.steps_taken / (options[option] // 10) < 1.2


def test_a_tree_without_candidates_is_abandoned_at_its_bound() -> None:
    budget = SearchBudget(max_tree_steps=5_000)
    assert find(hard.packing(0, classes=3), budget) == []
    assert budget.reached == {Limit.TREE_STEPS}
    assert budget.steps_taken < 10_000


def test_a_tree_that_keeps_yielding_candidates_is_not_abandoned() -> None:
    topology, query = hard.wide(12)
    budget = SearchBudget(max_tree_steps=500)
    assert len(find((topology, query), budget)) == 2**12
    assert budget.reached == set()
    assert budget.steps_taken > 10 * 500


def test_at_the_bound_of_the_request_the_candidates_found_so_far_are_returned() -> None:
    everything = find(hard.wide(10), SearchBudget())
    budget = SearchBudget(max_steps=5_000)
    candidates = find(hard.wide(10), budget)
    assert budget.reached == {Limit.REQUEST_STEPS}
    assert 0 < len(candidates) < len(everything)
    assert [candidate.amounts for candidate in candidates] == [
        candidate.amounts for candidate in everything[: len(candidates)]
    ]


def test_at_the_bound_of_the_request_no_more_trees_are_searched() -> None:
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 20)
    pulled = 0

    def watched() -> Iterator[SearchUnit]:
        nonlocal pulled
        for search_unit in Rows(topology).search_units():
            pulled += 1
            yield search_unit

    assert list(search(watched(), compile_request(request_of(query)), SearchBudget(max_steps=10_000))) == []
    assert pulled < 10


def test_a_stream_holds_two_assignments_at_a_time() -> None:
    compiled = compile_request(request_of(hard.wide(8)[1]))
    [search_unit] = with_bits(Rows(hard.wide(8)[0]).search_units(), compiled)
    [(_, stream)] = with_streams([search_unit], compiled, SearchBudget())
    for index in range(2**8):
        assert stream.find(index)
        assert len(stream.assignments) <= 2
    assert not stream.find(2**8)
    assert stream.ended


def test_hard_trees_do_not_hide_easy_ones() -> None:
    # Ten easy trees stand between fifty hard ones, each of which could take a tenth of all steps.
    easy = range(5, 60, 6)
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 60, easy)
    query.limit = len(easy)
    budget = SearchBudget(max_steps=600_000, max_tree_steps=60_000)
    candidates = find((topology, query), budget)
    assert {candidate.search_unit.tree[0].uuid for candidate in candidates} == {f't{number}-root' for number in easy}
    # An answer that has reached its limit is complete.
    assert budget.reached == set()


def test_an_answer_that_reaches_its_limit_reports_no_bound() -> None:
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 2, easy=[1])
    for limit, reached in ((3, set()), (None, {Limit.TREE_STEPS, Limit.CANDIDATES})):
        query.limit = limit
        budget = SearchBudget(max_tree_steps=5_000, max_candidates=3)
        assert len(find((topology, query), budget)) == 3
        assert budget.reached == reached


def test_repeated_searches_end_at_the_same_step() -> None:
    case = hard.clouds(lambda seed: hard.tied(seed, 12, 14), 30, [3, 20])
    case[1].limit = 50
    bounds = SearchBudget(max_steps=100_000, max_tree_steps=2_000)
    first, second = replace(bounds, reached=set()), replace(bounds, reached=set())
    assert [candidate.amounts for candidate in find(case, first)] == [
        candidate.amounts for candidate in find(case, second)
    ]
    assert first == second


def test_trees_of_one_shape_cost_the_steps_of_one() -> None:
    steps_taken = []
    for trees in (1, 30):
        topology, query = hard.clouds(lambda _seed: hard.packing(1), trees)
        request, budget = replace(request_of(query), limit=trees), SearchBudget()
        search_units = [with_key(unit, request) for unit in Rows(topology).search_units()]
        assert len(select(search(search_units, compile_request(request), budget), request, budget)) == trees
        steps_taken.append(budget.steps_taken)
    # After each candidate its stream is asked for the next one, for one turn.
    assert steps_taken[1] < 2 * steps_taken[0] + 5_000


def test_a_smaller_memory_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, query = hard.clouds(lambda seed: hard.packing(seed, 4, 6), 1, easy=[0])
    query.limit = None
    bodies = []
    for limit in (500_000, 20, 0):
        monkeypatch.setattr(budgets, '_MAX_REMEMBERED_ITEMS', limit)
        bodies.append([candidate.amounts for candidate in find((topology, query), SearchBudget())])
    assert bodies[0] == bodies[1] == bodies[2]
    assert len(bodies[0]) == len(set(bodies[0])) > 100


# The size of an answer ---------------------------------------------------------------------------------------


def size_of(candidates: list[CandidateSet], request: CandidateRequest) -> int:
    size = ResponseSize(request)
    for candidate in candidates:
        size.add_candidate(candidate)
    return size.total


@pytest.mark.parametrize('classes', [17, 40, 400])
def test_wide_answers_are_bounded_by_their_size(classes: int) -> None:
    case, budget = hard.wide(classes), defaults()
    candidates = find(case, budget)
    assert budget.reached == {Limit.RESPONSE_SIZE}
    assert budget.max_size - classes <= size_of(candidates, request_of(case[1])) <= budget.max_size
    assert len(candidates) == (budget.max_size - 2 * classes - 1) // classes


@pytest.mark.parametrize('trees', [1, 5, 200])
@pytest.mark.parametrize('minor', [28, 29])
def test_candidates_are_kept_up_to_the_bound_on_size(trees: int, minor: int) -> None:
    topology, query = hard.clouds(lambda _seed: hard.wide(3), trees)
    query.minor = minor
    if minor == 28:
        # Below 1.29 one provider has to serve all three classes.
        topology = [replace(provider, inventory={f'CUSTOM_C{n}': record(5) for n in range(3)}) for provider in topology]
    everything = find((topology, query), SearchBudget())
    request = request_of(query)
    for size in (1, 30, 500, 4000):
        budget = SearchBudget(max_size=size)
        candidates = find((topology, query), budget)
        assert [candidate.amounts for candidate in candidates] == [
            candidate.amounts for candidate in everything[: len(candidates)]
        ]
        # A single candidate is returned whatever its size.
        assert len(candidates) == 1 or 0 < size_of(candidates, request) <= size
        assert budget.reached == (set() if len(candidates) == len(everything) else {Limit.RESPONSE_SIZE})
        if budget.reached:
            assert size_of(everything[: len(candidates) + 1], request) > size


@pytest.mark.parametrize('minor', [28, 29])
@pytest.mark.parametrize('shared', [1, 2])
def test_sharing_providers_count_for_the_size(minor: int, shared: int) -> None:
    """Each host uses sharing providers of its own, which makes the largest answer for a number of candidates."""
    hosts, topology = 20, []
    classes = [f'CUSTOM_C{number}' for number in range(shared)]
    for host in (f'host{number}' for number in range(hosts)):
        topology.append(RP(host, None, {'VCPU': record(8)}, aggregates={host}))
        topology += [RP(f'{name} of {host}', None, {name: record(8)}, {SHARES}, {host}) for name in classes]
    query = Query([Group('', {'VCPU': 1, **dict.fromkeys(classes, 1)})], minor=minor)
    size_of_candidate = 2 * (1 + shared)
    for size, fits in (
        (size_of_candidate * hosts, hosts),
        (size_of_candidate * hosts - 1, hosts - 1),
        (size_of_candidate * 10, 10),
    ):
        budget = SearchBudget(max_size=size)
        candidates = find((topology, query), budget)
        assert len(candidates) == fits
        assert size_of(candidates, request_of(query)) == size_of_candidate * fits
        assert budget.reached == (set() if fits == hosts else {Limit.RESPONSE_SIZE})


def test_a_bound_is_reported_unless_the_limit_is_reached_first() -> None:
    topology, query = hard.wide(10)
    query.limit = 50
    budget = SearchBudget(max_size=10 * 49 + 21)
    assert len(find((topology, query), budget)) == 49
    assert budget.reached == {Limit.RESPONSE_SIZE}
    budget = SearchBudget(max_size=10 * 50 + 21)
    assert len(find((topology, query), budget)) == 50
    assert budget.reached == set()


def test_samples_are_drawn_from_all_candidates_up_to_the_size() -> None:
    topology, query = hard.clouds(lambda _seed: hard.wide(4), 40)
    query.limit = 200
    request, rng = request_of(query), random.Random(4)
    everything = {candidate.amounts for candidate in find((topology, replace(query, limit=None)), SearchBudget())}
    drawn = set()
    for size in (300, 900, 10_000):
        budget = SearchBudget(max_size=size)
        candidates = select(
            search(Rows(topology).search_units(), compile_request(request), budget), request, budget, rng
        )
        bodies = {candidate.amounts for candidate in candidates}
        assert len(bodies) == len(candidates) <= query.limit
        assert bodies <= everything
        assert size_of(candidates, request) <= size
        assert len(candidates) > size // 14 or len(candidates) == query.limit
        assert budget.reached == ({Limit.RESPONSE_SIZE} if len(candidates) < query.limit else set())
        drawn |= bodies
    # Without a sample the answer is of the first five rounds; a sample draws from all sixteen.
    assert len(drawn - {candidate.amounts for candidate in find((topology, query), SearchBudget())}) > 100
