"""Bounds on hard searches, in steps and in the size of the response; other searches are not affected."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from placement import conf as placement_conf
from placement.search import budget as budgets
from placement.search.assignments import find_candidate_sets
from placement.search.budget import Limit, SearchBudget
from placement.search.search_units import Amounts, CandidateSet
from placement.search.selection import ResponseSize, select
from tests.support.search import hard
from tests.support.search.cached import prefilter_of, search, single_trees, snapshot_of
from tests.support.search.hard import Case
from tests.support.search.oracle import RP, Group, Query, record
from tests.support.search.topologies import request_of


def defaults() -> SearchBudget:
    """The limits of the default configuration."""
    return SearchBudget.for_search(placement_conf.load(config_files=[]).placement)


def find(case: Case, budget: SearchBudget, rng: random.Random | None = None) -> list[CandidateSet]:
    """The candidates, each of them a set of its own, because each tree is searched even if it is like others."""
    topology, query = case
    snapshot, request = snapshot_of(topology), request_of(query)
    return select(search(snapshot, request, budget, alike=False), snapshot, request, budget, rng)


def amounts(candidates: list[CandidateSet]) -> list[Amounts]:
    return [candidate.amounts for candidate in candidates]


def size_of(candidates: list[CandidateSet], case: Case) -> int:
    size = ResponseSize(request_of(case[1]))
    for candidate in candidates:
        size.add_candidate(candidate)
    return size.total


# Steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('holes', [1, 8, 64])
@pytest.mark.parametrize('make', [hard.pigeonhole, hard.hidden_pigeonhole])
def test_one_group_too_many_is_rejected_in_few_steps(make: Callable[[int], Case], holes: int) -> None:
    budget = defaults()
    assert find(make(holes), budget) == []
    assert budget.reached == set()
    assert budget.steps_taken < 200 * holes


@pytest.mark.parametrize('distinct', [1, 1000])
@pytest.mark.parametrize(
    ('conditions', 'of_names'),
    [({'required': {'CUSTOM_RED'}}, True), ({'member_of': [{'north'}]}, True), ({'in_tree': 'host0'}, False)],
)
def test_a_condition_takes_a_step_for_128_providers_and_one_on_names_also_for_each_set(
    conditions: dict[str, Any], of_names: bool, distinct: int
) -> None:
    """The amount is too large for every host, so the search ends after the conditions."""
    sets = [{f'CUSTOM_{number % distinct}'} for number in range(1280)]
    hosts = [RP(f'host{number}', None, {'VCPU': record(1)}, names, names) for number, names in enumerate(sets)]
    snapshot = snapshot_of(hosts, len(hosts))

    def steps(**conditions: Any) -> int:
        budget = SearchBudget()
        request = request_of(Query([Group('1', {'VCPU': 2}, **conditions)]))
        assert list(prefilter_of(snapshot, request, budget).search_units()) == []
        return budget.steps_taken

    assert steps(**conditions) - steps() == 1 + 10 + (distinct if of_names else 0)


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize(('variables', 'clauses'), [(20, 60), (20, 100), (40, 120), (40, 200)])
def test_traits_that_encode_a_formula_are_decided_within_the_bounds(variables: int, clauses: int, seed: int) -> None:
    budget = defaults()
    candidates = find(hard.satisfiability(variables, clauses, seed), budget)
    assert budget.reached == set()
    assert bool(candidates) == (clauses == 3 * variables)


def test_isolated_groups_with_few_suitable_providers_are_decided() -> None:
    budget = defaults()
    find(hard.tied(0, 30, 30, 'isolate'), budget)
    assert budget.reached == set()
    assert budget.steps_taken < 100_000


def _isolated(children: dict[str, int], groups: list[str]) -> Case:
    """Groups that require a trait each, and children of one tree by trait; no two groups may have the same child."""
    topology = [RP('root')]
    for trait, count in children.items():
        device = {'VGPU': record(4)}
        topology += [RP(f'{trait}{number}', 'root', device, {f'CUSTOM_{trait}'}) for number in range(count)]
    suffixed = [Group(str(number), {'VGPU': 1}, {f'CUSTOM_{trait}'}) for number, trait in enumerate(groups, start=1)]
    return topology, Query(suffixed, 'isolate', 1)


@pytest.mark.parametrize('minor', [29, 36])
@pytest.mark.parametrize(
    ('children', 'groups'),
    [
        ({'A': 64, 'B': 64}, ['A', 'B'] * 48),
        ({'A': 64, 'B': 64}, ['A', 'B'] * 64),
        ({f'T{number}': 5 for number in range(40)}, [f'T{number}' for number in range(40)]),
    ],
)
def test_many_isolated_groups_find_their_providers(children: dict[str, int], groups: list[str], minor: int) -> None:
    topology, query = _isolated(children, groups)
    query.minor, budget = minor, defaults()
    (candidate,) = find((topology, query), budget)
    assert len(candidate.amounts) == len(groups)
    assert budget.steps_taken < 80_000


def test_isolated_groups_for_which_most_first_choices_are_wrong_find_their_providers() -> None:
    # Each of 100 children has 3 of 12 traits, and each of 96 groups requires a trait, or two, of a child of its own.
    rng = random.Random(2)
    traits = [f'CUSTOM_T{number}' for number in range(12)]
    children = [set(rng.sample(traits, 3)) for _ in range(100)]
    topology = [RP('root'), *(RP(f'c{n}', 'root', {'VGPU': record(4)}, names) for n, names in enumerate(children))]
    groups = [
        Group(str(number), {'VGPU': 1}, set(rng.sample(sorted(names), 1 + number % 2)))
        for number, names in enumerate(rng.sample(children, 96), start=1)
    ]
    budget = defaults()
    assert len(find((topology, Query(groups, 'isolate', 1)), budget)) == 1
    assert budget.steps_taken < 80_000


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
    'hidden': hard.hidden_pigeonhole(100),
}


@pytest.mark.parametrize('name', HARD)
def test_hard_searches_keep_to_the_bounds(name: str) -> None:
    budget = SearchBudget(max_steps=300_000, max_tree_steps=20_000, max_size=1_000_000)
    candidates = find(HARD[name], budget)
    # The last piece of work may exceed the bound: a check of traits, or one step in a large tree.
    assert budget.steps_taken <= 300_000 + 20_000
    assert size_of(candidates, HARD[name]) <= 1_000_000
    assert budget.remembered_items == 0


@pytest.mark.parametrize(
    ('name', 'option', 'limit'),
    [
        ('a cloud', 'max_search_steps', Limit.REQUEST_STEPS),
        ('three classes', 'max_search_steps_per_tree', Limit.TREE_STEPS),
    ],
)
def test_a_search_that_explains_another_one_takes_a_tenth_of_its_steps(name: str, option: str, limit: Limit) -> None:
    options = placement_conf.load(config_files=[]).placement
    budget = SearchBudget.for_explanation(options)
    assert find(HARD[name], budget) == []
    assert limit in budget.reached
    assert 1 <= budget.steps_taken / (options[option] // 10) < 1.2


def test_a_tree_that_keeps_yielding_candidates_is_not_abandoned() -> None:
    budget = SearchBudget(max_tree_steps=500)
    assert len(find(hard.wide(12), budget)) == 2**12
    assert budget.reached == set()
    assert budget.steps_taken > 10 * 500


def test_at_the_bound_of_the_request_no_more_trees_are_searched() -> None:
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 20)
    prefilter = prefilter_of(snapshot_of(topology), request_of(query))
    units = single_trees(prefilter.search_units())
    assert list(find_candidate_sets(units, prefilter.compiled, SearchBudget(max_steps=10_000))) == []
    assert len(list(units)) > 10


def test_hard_trees_do_not_hide_easy_ones() -> None:
    # Ten easy trees stand between fifty hard ones, each of which could take a tenth of all steps.
    easy = range(5, 60, 6)
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 60, easy)
    query.limit = len(easy)
    budget = SearchBudget(max_steps=600_000, max_tree_steps=60_000)
    candidates = find((topology, query), budget)
    assert {candidate.search_unit.tree[0].name for candidate in candidates} == {f't{number}-root' for number in easy}
    # A response that has reached its limit is complete.
    assert budget.reached == set()


def test_a_response_that_reaches_its_limit_reports_no_bound() -> None:
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 2, easy=[1])
    for limit, reached in ((3, set()), (None, {Limit.TREE_STEPS, Limit.CANDIDATES})):
        query.limit = limit
        budget = SearchBudget(max_tree_steps=5_000, max_candidates=3)
        assert len(find((topology, query), budget)) == 3
        assert budget.reached == reached


def test_a_smaller_memory_changes_no_response(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, query = hard.clouds(lambda seed: hard.packing(seed, 4, 6), 1, easy=[0])
    query.limit = None
    responses = []
    for limit in (500_000, 20, 0):
        monkeypatch.setattr(budgets, '_MAX_REMEMBERED_ITEMS', limit)
        responses.append(amounts(find((topology, query), SearchBudget())))
    assert responses[0] == responses[1] == responses[2]
    assert len(responses[0]) == len(set(responses[0])) > 100


# The size of a response -------------------------------------------------------------------------------------------


@pytest.mark.parametrize('classes', [17, 400])
def test_wide_responses_are_bounded_by_their_size(classes: int) -> None:
    case, budget = hard.wide(classes), SearchBudget(max_size=2_000_000)
    candidates = find(case, budget)
    assert budget.reached == {Limit.ANSWER_SIZE}
    assert budget.max_size - 100 * classes <= size_of(candidates, case) <= budget.max_size
    assert len(candidates) > budget.max_size // (100 * classes)


def test_candidates_are_kept_up_to_the_bound_on_size() -> None:
    case = hard.clouds(lambda _seed: hard.wide(3), 5)
    everything = find(case, SearchBudget())
    for size in (1, 3_000, 10_000, 50_000):
        budget = SearchBudget(max_size=size)
        candidates = find(case, budget)
        assert amounts(candidates) == amounts(everything[: len(candidates)])
        # A single candidate is returned whatever its size.
        assert candidates
        assert len(candidates) == 1 or size_of(candidates, case) <= size
        assert budget.reached == (set() if len(candidates) == len(everything) else {Limit.ANSWER_SIZE})
        assert not budget.reached or size_of(everything[: len(candidates) + 1], case) > size


def test_a_bound_is_reported_unless_the_limit_is_reached_first() -> None:
    topology, query = hard.wide(10)
    query.limit = 50
    everything = find((topology, query), SearchBudget())
    for count, reached in ((49, {Limit.ANSWER_SIZE}), (50, set())):
        budget = SearchBudget(max_size=size_of(everything[:count], (topology, query)))
        assert len(find((topology, query), budget)) == count
        assert budget.reached == reached


def test_samples_are_drawn_from_all_candidates_up_to_the_size() -> None:
    topology, query = hard.clouds(lambda _seed: hard.wide(4), 40)
    everything = amounts(find((topology, query), SearchBudget()))
    query.limit = 200
    drawn = set()
    for size in (30_000, 60_000, 1_000_000):
        budget = SearchBudget(max_size=size)
        candidates = find((topology, query), budget, random.Random(4))
        assert size_of(candidates, (topology, query)) <= size
        assert len(candidates) > size // 4_000 or len(candidates) == query.limit
        assert budget.reached == ({Limit.ANSWER_SIZE} if len(candidates) < query.limit else set())
        assert len(set(amounts(candidates))) == len(candidates)
        drawn.update(amounts(candidates))
    assert drawn <= set(everything)
    # Without a sample the response is of the first five rounds; a sample draws from all sixteen.
    assert len(drawn - set(everything[: query.limit])) > 100


def test_a_share_of_a_budget_has_a_part_of_the_steps_that_are_left_and_limits_of_its_own() -> None:
    budget = SearchBudget(max_steps=100, steps_taken=40)
    with budget.share(1 / 2) as part:
        counter = budgets.StepCounter(part)
        counter.count_setup(30)
        with pytest.raises(budgets.StepLimitReached):
            counter.count_setup(1)
    assert (budget.steps_taken, budget.max_steps) == (71, 100)
    assert (part.reached, budget.reached) == ({Limit.REQUEST_STEPS}, set())
