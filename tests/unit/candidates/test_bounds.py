"""Bounds on hard searches, in steps and in the size of the answer; other searches are not affected."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from placement import conf as placement_conf
from placement.candidates import limits as budgets
from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.request import CandidateRequest
from placement.candidates.requirements import compile_request
from placement.candidates.search import AssignmentFinder, search
from placement.candidates.search_units import Family, SearchUnit
from placement.candidates.selection import AnswerSize, select
from placement.objects import search_limits
from tests.support.candidates import hard
from tests.support.candidates.hard import Case
from tests.support.candidates.oracle import RP, SHARES, Group, Oracle, Query, record
from tests.support.candidates.topologies import Rows, request_of, with_key


def defaults() -> SearchLimits:
    """The limits of the default configuration."""
    return search_limits.for_search(placement_conf.load(environ={}, config_files=[]).placement)


def answered(case: Case, limits: SearchLimits) -> list[Family]:
    topology, query = case
    request = request_of(query)
    return select(search(Rows(topology).search_units(), compile_request(request), limits), request, limits)


@pytest.mark.parametrize('holes', [1, 8, 13, 64])
@pytest.mark.parametrize('make', [hard.pigeonhole, hard.hidden_pigeonhole])
def test_one_group_too_many_is_rejected_in_few_steps(make: Callable[[int], Case], holes: int) -> None:
    limits = defaults()
    assert answered(make(holes), limits) == []
    assert limits.reached == set()
    assert limits.steps_taken < 200 * holes


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize(('variables', 'clauses'), [(20, 60), (20, 100), (40, 120), (40, 200)])
def test_traits_that_encode_a_formula_are_decided_within_the_bounds(variables: int, clauses: int, seed: int) -> None:
    limits = defaults()
    found = answered(hard.satisfiability(variables, clauses, seed), limits)
    assert limits.reached == set()
    assert bool(found) == (clauses == 3 * variables)


@pytest.mark.parametrize('clauses', [20, 38, 60])
@pytest.mark.parametrize('seed', range(10))
def test_formulas_are_decided_like_the_oracle(clauses: int, seed: int) -> None:
    topology, query = hard.satisfiability(9, clauses, seed)
    query.limit = None
    rows = Rows(topology)
    bodies = {rows.body(one) for one in search(rows.search_units(), compile_request(request_of(query)), SearchLimits())}
    assert bodies == Oracle(topology).candidates(query)


@pytest.mark.parametrize('seed', range(5))
def test_isolated_groups_with_few_suitable_providers_are_decided(seed: int) -> None:
    limits = defaults()
    answered(hard.tied(seed, 30, 30, 'isolate'), limits)
    assert limits.reached == set()
    assert limits.steps_taken < 100_000


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
    limits = SearchLimits(max_steps=300_000, max_tree_steps=20_000)
    answered(HARD[name], limits)
    # The last piece of work may exceed the bound: a check of traits, or one step in a large tree.
    assert limits.steps_taken <= 300_000 + 20_000
    assert limits.remembered_items == 0


@pytest.mark.parametrize('seed', range(40))
def test_random_hard_searches_keep_to_the_bounds(seed: int) -> None:
    case = hard.some(seed)
    limits = SearchLimits(max_steps=200_000, max_tree_steps=20_000, max_size=5_000)
    found = answered(case, limits)
    assert limits.steps_taken <= 200_000 + 20_000
    assert size_of(found, request_of(case[1])) <= 5_000
    assert limits.remembered_items == 0


def test_a_tree_without_candidates_is_abandoned_at_its_bound() -> None:
    limits = SearchLimits(max_tree_steps=5_000)
    assert answered(hard.packing(0, classes=3), limits) == []
    assert limits.reached == {Limit.TREE_STEPS}
    assert limits.steps_taken < 10_000


def test_a_tree_that_keeps_yielding_candidates_is_not_abandoned() -> None:
    topology, query = hard.wide(12)
    limits = SearchLimits(max_tree_steps=500)
    assert len(answered((topology, query), limits)) == 2**12
    assert limits.reached == set()
    assert limits.steps_taken > 10 * 500


def test_at_the_bound_of_the_request_the_answer_is_what_was_found() -> None:
    everything = answered(hard.wide(10), SearchLimits())
    limits = SearchLimits(max_steps=5_000)
    some = answered(hard.wide(10), limits)
    assert limits.reached == {Limit.REQUEST_STEPS}
    assert 0 < len(some) < len(everything)
    assert [one.amounts for one in some] == [one.amounts for one in everything[: len(some)]]


def test_at_the_bound_of_the_request_no_more_trees_are_searched() -> None:
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 20)
    pulled = 0

    def watched() -> Iterator[SearchUnit]:
        nonlocal pulled
        for search_unit in Rows(topology).search_units():
            pulled += 1
            yield search_unit

    assert list(search(watched(), compile_request(request_of(query)), SearchLimits(max_steps=10_000))) == []
    assert pulled < 10


def test_a_walk_holds_two_placements_at_a_time() -> None:
    finder = AssignmentFinder(compile_request(request_of(hard.wide(8)[1])), SearchLimits())
    [search_unit] = Rows(hard.wide(8)[0]).search_units()
    [(_, stream)] = finder.streams([search_unit])
    for index in range(2**8):
        assert stream.get_within(index, 1)[0] is not None
        assert sum(one is not None for one in stream.found) <= 2
    assert stream.get_within(2**8, 1)[0] is None
    assert stream.ended


def test_hard_trees_do_not_hide_easy_ones() -> None:
    # Ten easy trees stand between fifty hard ones, each of which could take a tenth of all steps.
    easy = range(5, 60, 6)
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 60, easy)
    query.limit = len(easy)
    limits = SearchLimits(max_steps=600_000, max_tree_steps=60_000)
    found = answered((topology, query), limits)
    assert {one.search_unit.tree[0].uuid for one in found} == {f't{number}-root' for number in easy}
    # An answer that has reached its limit is complete.
    assert limits.reached == set()


def test_an_answer_that_reaches_its_limit_reports_no_bound() -> None:
    topology, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 2, easy=[1])
    for limit, reached in ((3, set()), (None, {Limit.TREE_STEPS, Limit.CANDIDATES})):
        query.limit = limit
        limits = SearchLimits(max_tree_steps=5_000, max_candidates=3)
        assert len(answered((topology, query), limits)) == 3
        assert limits.reached == reached


def test_repeated_searches_end_at_the_same_step() -> None:
    case = hard.clouds(lambda seed: hard.tied(seed, 12, 14), 30, [3, 20])
    case[1].limit = 50
    bounds = SearchLimits(max_steps=100_000, max_tree_steps=2_000)
    one, two = replace(bounds, reached=set()), replace(bounds, reached=set())
    assert [found.amounts for found in answered(case, one)] == [found.amounts for found in answered(case, two)]
    assert one == two


def test_trees_of_one_shape_cost_the_steps_of_one() -> None:
    steps_taken = []
    for trees in (1, 30):
        topology, query = hard.clouds(lambda _seed: hard.packing(1), trees)
        request, limits = replace(request_of(query), limit=trees), SearchLimits()
        search_units = [with_key(unit, request) for unit in Rows(topology).search_units()]
        assert len(select(search(search_units, compile_request(request), limits), request, limits)) == trees
        steps_taken.append(limits.steps_taken)
    # After each candidate its walk is asked for the next one, for one turn.
    assert steps_taken[1] < 2 * steps_taken[0] + 5_000


def test_a_smaller_memory_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, query = hard.clouds(lambda seed: hard.packing(seed, 4, 6), 1, easy=[0])
    query.limit = None
    bodies = []
    for limit in (500_000, 20, 0):
        monkeypatch.setattr(budgets, '_MAX_REMEMBERED_ITEMS', limit)
        bodies.append([one.amounts for one in answered((topology, query), SearchLimits())])
    assert bodies[0] == bodies[1] == bodies[2]
    assert len(bodies[0]) == len(set(bodies[0])) > 100


# The size of an answer ---------------------------------------------------------------------------------------


def size_of(candidates: list[Family], request: CandidateRequest) -> int:
    size = AnswerSize(request)
    for candidate in candidates:
        size.add(candidate)
    return size.total


@pytest.mark.parametrize('classes', [17, 40, 400])
def test_wide_answers_are_bounded_by_their_size(classes: int) -> None:
    case, limits = hard.wide(classes), defaults()
    found = answered(case, limits)
    assert limits.reached == {Limit.ANSWER_SIZE}
    assert limits.max_size - classes <= size_of(found, request_of(case[1])) <= limits.max_size
    assert len(found) == (limits.max_size - 2 * classes - 1) // classes


@pytest.mark.parametrize('trees', [1, 5, 200])
@pytest.mark.parametrize('minor', [28, 29])
def test_candidates_are_kept_up_to_the_bound_on_size(trees: int, minor: int) -> None:
    topology, query = hard.clouds(lambda _seed: hard.wide(3), trees)
    query.minor = minor
    if minor == 28:
        # Below 1.29 one provider has to serve all three classes.
        topology = [replace(one, inventory={f'CUSTOM_C{n}': record(5) for n in range(3)}) for one in topology]
    everything = answered((topology, query), SearchLimits())
    request = request_of(query)
    for size in (1, 30, 500, 4000):
        limits = SearchLimits(max_size=size)
        some = answered((topology, query), limits)
        assert [one.amounts for one in some] == [one.amounts for one in everything[: len(some)]]
        # A single candidate is returned whatever its size.
        assert len(some) == 1 or 0 < size_of(some, request) <= size
        assert limits.reached == (set() if len(some) == len(everything) else {Limit.ANSWER_SIZE})
        if limits.reached:
            assert size_of(everything[: len(some) + 1], request) > size


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
    each = 2 * (1 + shared)
    for size, fits in ((each * hosts, hosts), (each * hosts - 1, hosts - 1), (each * 10, 10)):
        limits = SearchLimits(max_size=size)
        some = answered((topology, query), limits)
        assert len(some) == fits
        assert size_of(some, request_of(query)) == each * fits
        assert limits.reached == (set() if fits == hosts else {Limit.ANSWER_SIZE})


def test_a_bound_is_reported_unless_the_limit_is_reached_first() -> None:
    topology, query = hard.wide(10)
    query.limit = 50
    limits = SearchLimits(max_size=10 * 49 + 21)
    assert len(answered((topology, query), limits)) == 49
    assert limits.reached == {Limit.ANSWER_SIZE}
    limits = SearchLimits(max_size=10 * 50 + 21)
    assert len(answered((topology, query), limits)) == 50
    assert limits.reached == set()


def test_a_candidate_that_is_too_large_does_not_stay_in_a_sample() -> None:
    small, large = hard.wide(1, 30), hard.wide(1, 60)
    request = replace(request_of(small[1]), limit=1)
    first, *others = answered(small, SearchLimits())
    big = answered(large, SearchLimits())[0]
    kept = set()
    for seed in range(20):
        limits = SearchLimits(max_size=40)
        [one] = select(iter([first, *[big] * 10, *others]), request, limits, random.Random(seed))
        assert one is not big
        kept.add(one.amounts)
    # A candidate that is too large is drawn nearly every time, and then another one instead.
    assert len(kept) > 8


def test_samples_are_drawn_from_all_candidates_up_to_the_size() -> None:
    topology, query = hard.clouds(lambda _seed: hard.wide(4), 40)
    query.limit = 200
    request, rng = request_of(query), random.Random(4)
    everything = {one.amounts for one in answered((topology, replace(query, limit=None)), SearchLimits())}
    drawn = set()
    for size in (300, 900, 10_000):
        limits = SearchLimits(max_size=size)
        found = select(search(Rows(topology).search_units(), compile_request(request), limits), request, limits, rng)
        bodies = {one.amounts for one in found}
        assert len(bodies) == len(found) <= query.limit
        assert bodies <= everything
        assert size_of(found, request) <= size
        assert len(found) > size // 14 or len(found) == query.limit
        assert limits.reached == ({Limit.ANSWER_SIZE} if len(found) < query.limit else set())
        drawn |= bodies
    # Without a sample the answer is of the first five rounds; a sample draws from all sixteen.
    assert len(drawn - {one.amounts for one in answered((topology, query), SearchLimits())}) > 100
