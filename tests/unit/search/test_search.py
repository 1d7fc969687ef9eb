"""The stages of the search beside the right answer: laziness, fairness, how soon a search is given up, samples."""

from __future__ import annotations

import itertools
import random
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from placement.search import find_candidates
from placement.search.assignments import AssignmentStream, find_assignments, round_robin
from placement.search.budget import Reason, Rejections, SearchBudget
from placement.search.search_units import Assignment, CandidateSet, SearchUnit
from placement.search.selection import select
from tests.support.search.cached import find, prefilter_of, records_of, snapshot_of
from tests.support.search.oracle import RP, Group, Oracle, Query, assert_candidates, record, rp
from tests.support.search.topologies import request_of

# The order of candidates ------------------------------------------------------------------------------------------


def units(names: str) -> list[SearchUnit]:
    """Search units of one provider each."""
    return [SearchUnit((provider,), ()) for provider in records_of([RP(name) for name in names])]


def stream_of(*amounts: int) -> AssignmentStream:
    """Return a stream of these amounts, in which a 0 is a time slice that finds nothing."""
    return AssignmentStream(
        Assignment(((0, 'VCPU', amount),), sharing_only=False) if amount else None for amount in amounts
    )


def in_order(candidates: Iterator[CandidateSet]) -> list[tuple[str | None, int]]:
    """The root and the amount of each candidate."""
    return [(candidate.search_unit.tree[0].name, candidate.assignment.amounts[0][2]) for candidate in candidates]


def test_round_robin_takes_turns_and_drops_exhausted_streams() -> None:
    streams = zip(units('abcd'), [stream_of(1, 2, 3), stream_of(), stream_of(1), stream_of(1, 2)], strict=True)
    assert in_order(round_robin(streams)) == [('a', 1), ('c', 1), ('d', 1), ('a', 2), ('d', 2), ('a', 3)]


def test_a_search_that_has_ended_releases_its_memory_before_the_next_round() -> None:
    streams = [stream_of(1), stream_of(1)]
    candidates = round_robin(zip(units('ab'), streams, strict=True))
    assert in_order(itertools.islice(candidates, 2)) == [('a', 1), ('b', 1)]
    assert [stream.ended for stream in streams] == [True, False]


def test_a_stream_holds_two_assignments_at_a_time() -> None:
    stream = stream_of(*range(1, 9))
    for index in range(8):
        assert stream.find(index)
        assert len(stream.assignments) <= 2


# Symmetry and dead ends -------------------------------------------------------------------------------------------


def devices(count: int, units: int) -> list[RP]:
    return [rp('root'), *(rp(f'dev{number}', 'root', VGPU=units) for number in range(count))]


def groups(amounts: list[int], policy: str = 'none') -> Query:
    """A suffixed group for each of ``amounts``."""
    return Query([Group(str(n), {'VGPU': amount}) for n, amount in enumerate(amounts, start=1)], policy)


@pytest.mark.parametrize('minor', [29, 34])
@pytest.mark.parametrize('policy', ['none', 'isolate'])
def test_as_many_assignments_are_tried_as_the_limit_takes(policy: str, minor: int) -> None:
    """From 1.34 on, exchanged groups are different candidates; before, each combination is tried once."""
    request = replace(request_of(replace(groups([1] * 8, policy), minor=minor)), limit=1000)
    budget = SearchBudget()
    candidates = find_candidates(snapshot_of(devices(16, 8)), request, budget).candidate_sets
    assert len({(candidate.amounts, candidate.mappings) for candidate in candidates}) == len(candidates) == 1000
    assert budget.steps_taken < 25_000


def rejections(topology: list[RP], query: Query) -> Rejections:
    """Why a query finds nothing."""
    prefilter, counts = prefilter_of(snapshot_of(topology), request_of(query)), Rejections()
    for unit in prefilter.search_units():
        assert list(find_assignments(unit, prefilter.compiled, SearchBudget(), counts)) == []
    return counts


@pytest.mark.parametrize(
    ('query', 'reason'),
    [
        (groups([1] * 129), Reason.TOO_LITTLE_CAPACITY),
        (groups([1] * 250, 'isolate'), Reason.TOO_LITTLE_CAPACITY),
        (groups([1] * 17, 'isolate'), Reason.TOO_FEW_PROVIDERS),
        # A device of 8 has room for one group of 5 to 8, and for two of 3 or 4.
        (groups([5] * 17), Reason.TOO_FEW_WITH_CAPACITY),
        (groups([3] * 16 + [4] * 17), Reason.TOO_FEW_WITH_CAPACITY),
    ],
)
def test_groups_that_do_not_fit_are_rejected_at_once(query: Query, reason: Reason) -> None:
    assert rejections(devices(16, 8), query) == {reason: 1}
    query.groups = query.groups[1 if len(query.groups) < 100 else len(query.groups) - 16 :]
    query.limit = 1
    assert find_candidates(snapshot_of(devices(16, 8)), request_of(query), SearchBudget()).candidate_sets


def test_large_groups_with_few_suitable_providers_are_rejected_at_once() -> None:
    # Twelve devices, four of them fast; five groups that require a fast one and more than half of it, and other groups.
    topology = [rp('root'), *(rp(f'd{n}', 'root', traits=['CUSTOM_FAST'] * (n < 4), VGPU=100) for n in range(12))]
    fast = [Group(f'{n}', {'VGPU': 50 + n}, {'CUSTOM_FAST'}) for n in range(1, 6)]
    slow = [Group(f'{n}', {'VGPU': 50 + n}) for n in range(6, 12)]
    assert rejections(topology, Query([*fast, *slow], 'none')) == {Reason.TOO_FEW_WITH_CAPACITY: 1}
    request = request_of(Query([*fast[1:], *slow], 'none', limit=1))
    assert find_candidates(snapshot_of(topology), request, SearchBudget()).candidate_sets


def test_traits_that_no_combination_has_are_rejected_at_once() -> None:
    classes = [f'CUSTOM_{number}' for number in range(10)]
    traits = [f'CUSTOM_TRAIT_{number}' for number in range(11)]
    topology = [rp('root')]
    topology += [RP(f'd{n}', 'root', dict.fromkeys(classes, record(4)), {traits[n % 11]}) for n in range(22)]
    resources = dict.fromkeys(classes, 1)
    assert rejections(topology, Query([Group('', resources, set(traits))])) == {Reason.COLLECTIVE_TRAITS: 22}
    request = request_of(Query([Group('', resources, set(traits[1:]))], limit=1))
    assert find_candidates(snapshot_of(topology), request, SearchBudget()).candidate_sets


def test_different_groups_with_the_same_providers_take_few_steps() -> None:
    # Each group requires a trait of its own, which all devices but one have: ten different sets of options.
    traits = [f'CUSTOM_{number}' for number in range(10)]
    topology = [rp('root'), *(rp(f'd{n}', 'root', traits=set(traits) - {traits[n]}, VGPU=1) for n in range(10))]
    query = Query([Group(str(n), {'VGPU': 1}, {trait}) for n, trait in enumerate(traits, start=1)], 'isolate')
    budget = SearchBudget()
    assert len(find_candidates(snapshot_of(topology), request_of(query), budget).candidate_sets) == 1
    assert budget.steps_taken < 200_000


def test_number_of_groups_is_not_bounded_by_recursion() -> None:
    assert find(snapshot_of([rp('host', VGPU=3000)]), groups([1] * 3000)) == [frozenset({('host', 'VGPU', 3000)})]


ONE = {'VGPU': 1}


@pytest.mark.parametrize(
    ('topology', 'query'),
    [
        (
            # Only the unnumbered group may share p2 with a numbered one.
            [
                rp('p1', 'root', traits=['CUSTOM_A'], VGPU=1),
                rp('p2', 'root', traits=['CUSTOM_A', 'CUSTOM_B'], VGPU=2),
                *(rp(name, 'root', traits=['CUSTOM_B', 'CUSTOM_X'], VGPU=1) for name in ('p3', 'p4')),
            ],
            Query([Group('', ONE, forbidden={'CUSTOM_X'}), *(Group(n, ONE, {f'CUSTOM_{n}'}) for n in 'AB')], 'isolate'),
        ),
        (
            # Each group must leave the first provider that suits it.
            [rp(f'p {a}{b}', 'root', traits=(f'CUSTOM_{a}', f'CUSTOM_{b}'), VGPU=1) for a, b in ('AC', 'BC', 'AB')],
            Query([Group(n, ONE, {f'CUSTOM_{n}'}) for n in 'ABC'], 'isolate'),
        ),
        (
            # The unnumbered group cannot be exchanged with the numbered one.
            [rp('p1', 'root', VGPU=1), rp('p2', 'root', traits=['CUSTOM_A'], VGPU=1)],
            Query([Group('', ONE, {'CUSTOM_A'}), Group('1', ONE)]),
        ),
        (
            # With d1 the unnumbered group must be the one on p2, the second of the two ways to use both.
            [
                *(rp('p1', 'root', VGPU=1), rp('p2', 'root', traits=['CUSTOM_A'], VGPU=1)),
                *(rp('d1', 'root', DISK_GB=1), rp('d2', 'root', traits=['CUSTOM_A'], DISK_GB=1)),
            ],
            Query([Group('', {'VGPU': 1, 'DISK_GB': 1}, {'CUSTOM_A'}), Group('1', ONE)]),
        ),
    ],
)
def test_equal_amounts_are_one_candidate_however_they_are_assigned(topology: list[RP], query: Query) -> None:
    topology = [rp('root'), *topology]
    assert_candidates(find(snapshot_of(topology), query), Oracle(topology).candidates(query))


def test_summaries_of_sharing_providers_are_in_the_same_order_in_each_process() -> None:
    pools = [rp(f'pool{number}', aggregates='all', shares=True, DISK_GB=1) for number in range(30)]
    topology = [rp('host', aggregates='all', VCPU=1), *pools]
    request = request_of(Query([Group('', {'VCPU': 1, 'DISK_GB': 1})]))
    candidates = find_candidates(snapshot_of(topology, size=1), request, SearchBudget())
    shown = [partition.providers[0].name for partition in candidates.providers()]
    assert shown == [provider.name for provider in topology]


# Samples ----------------------------------------------------------------------------------------------------------


ONE_VCPU = request_of(Query([Group('', {'VCPU': 1})]))


HOSTS = snapshot_of([rp(f'host{number}', VCPU=4) for number in range(10)])


def hosts(count: int) -> list[CandidateSet]:
    """A candidate on each of ``count`` hosts."""
    request = replace(ONE_VCPU, limit=count)
    return list(itertools.chain(*find_candidates(HOSTS, request, SearchBudget()).candidate_sets))


def test_sample_is_uniform_and_shuffled() -> None:
    rng, ten = random.Random(0), hosts(10)

    def sample(candidates: list[CandidateSet], limit: int | None) -> tuple[str | None, ...]:
        selected = select(iter(candidates), HOSTS, replace(ONE_VCPU, limit=limit), SearchBudget(), rng)
        return tuple(candidate.search_unit.tree[0].name for candidate in selected)

    drawn = Counter(itertools.chain(*(sample(ten, 3) for _ in range(3000))))
    # 900 of each are expected; six standard deviations are about 150.
    assert len(drawn) == 10
    assert all(750 < count < 1050 for count in drawn.values())
    assert len({sample(ten[:5], 5) for _ in range(200)}) > 80
    # Neither the request nor the size limits this sample.
    assert len(set(sample(ten, None))) == 10


def test_memory_for_a_sample_is_bounded_by_the_limit() -> None:
    class Tracked(CandidateSet):
        """A candidate set without slots, so that there can be weak references to it."""

    host = hosts(1)[0]
    alive: weakref.WeakSet[CandidateSet] = weakref.WeakSet()
    counts = []

    def candidates() -> Iterator[CandidateSet]:
        for _ in range(100):
            candidate = Tracked(host.search_unit, host.assignment)
            alive.add(candidate)
            counts.append(len(alive))
            yield candidate

    assert len(select(candidates(), HOSTS, replace(ONE_VCPU, limit=5), SearchBudget(), random.Random(0))) == 5
    assert max(counts) < 10
