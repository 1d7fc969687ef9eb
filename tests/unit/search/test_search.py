"""Properties of the stages of the search beside the right answer: laziness, fairness, bounds, reasons."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from placement.search.assignments import AssignmentStream, find_assignments, round_robin
from placement.search.budget import SearchBudget
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.requirements import compile_request
from placement.search.search_units import Assignment, CandidateSet, SearchUnit
from placement.search.selection import select
from placement.search.solver.variables import Reason, Rejections
from tests.support.search.oracle import RP, record, rp
from tests.support.search.topologies import Rows, search, with_bits


def numbered(
    count: int, policy: str = 'none', rc: str = 'VGPU', amount: int = 1, **options: object
) -> CandidateRequest:
    groups = (RequestGroup(str(n), True, {rc: amount}) for n in range(1, count + 1))
    return CandidateRequest(tuple(groups), policy, **options)  # type: ignore[arg-type]


def devices(trees: int, devices_per_tree: int, units: int) -> list[RP]:
    return [
        provider
        for tree in range(trees)
        for provider in [
            rp(f'root{tree}'),
            *(rp(f'dev{tree}-{number}', f'root{tree}', VGPU=units) for number in range(devices_per_tree)),
        ]
    ]


def find(topology: list[RP], request: CandidateRequest, rejections: Rejections | None = None) -> list[CandidateSet]:
    rows = Rows(topology)
    return list(search(rows.search_units(), compile_request(request), SearchBudget(), rejections))


def first(
    limit: int, search_units: Iterable[SearchUnit], request: CandidateRequest, rejections: Rejections | None = None
) -> list[CandidateSet]:
    request, budget = replace(request, limit=limit), SearchBudget()
    return select(search(search_units, compile_request(request), budget, rejections), request, budget)


def root(candidate: CandidateSet) -> str:
    return candidate.search_unit.tree[0].uuid


def watched(search_units: Iterable[SearchUnit], seen: list[SearchUnit]) -> Iterator[SearchUnit]:
    for search_unit in search_units:
        seen.append(search_unit)
        yield search_unit


def test_a_limit_visits_no_more_anchors_than_needed() -> None:
    rows = Rows([rp(f'host{number}', VCPU=4) for number in range(100)])
    seen: list[SearchUnit] = []
    request = CandidateRequest((RequestGroup('', False, {'VCPU': 1}),))
    candidates = first(10, watched(rows.search_units(), seen), request)
    assert len(candidates) == 10
    assert len(seen) == 10


def test_every_root_gives_one_candidate_before_any_gives_a_second() -> None:
    rows = Rows([*devices(1, 20, 1), rp('host1', VGPU=1), rp('host2', VGPU=1)])
    candidates = first(3, rows.search_units(), numbered(1))
    assert {root(candidate) for candidate in candidates} == {'root0', 'host1', 'host2'}


def test_round_robin_takes_turns_and_drops_exhausted_streams() -> None:
    search_units = Rows([rp(name) for name in 'abcd']).search_units()
    streams = [
        (search_unit, stream_of(*range(1, count + 1)))
        for search_unit, count in zip(search_units, (3, 0, 1, 2), strict=True)
    ]
    order = [(root(candidate), candidate.assignment.amounts[0][2]) for candidate in round_robin(streams)]
    assert order == [('a', 1), ('c', 1), ('d', 1), ('a', 2), ('d', 2), ('a', 3)]


def test_a_search_that_has_ended_releases_its_memory_before_the_next_round() -> None:
    search_units = Rows([rp(name) for name in 'ab']).search_units()
    streams = [(search_unit, stream_of(1)) for search_unit in search_units]
    candidates = round_robin(streams)
    assert root(next(candidates)) == 'a'
    assert root(next(candidates)) == 'b'
    assert [stream.ended for _, stream in streams] == [True, False]


def test_slow_streams_come_last_in_their_round() -> None:
    search_units = Rows([rp(name) for name in 'abcde']).search_units()
    slow = stream_of(0, 1, 0, 0, 0, 2, 0)
    streams = [
        (search_units[0], slow),
        (search_units[1], stream_of(1, 2, 3)),
        (search_units[2], stream_of(0)),
        (search_units[3], slow),
    ]
    streams += [(search_units[4], stream_of(1, 0, 0, 2))]
    order = [(root(candidate), candidate.assignment.amounts[0][2]) for candidate in round_robin(streams)]
    # When the stream advances for the fourth search unit, it has also found what the first search unit needs.
    assert order[:4] == [('b', 1), ('d', 1), ('e', 1), ('a', 1)]
    assert order[4] == ('b', 2)
    assert sorted(order[5:8]) == [('a', 2), ('d', 2), ('e', 2)]
    assert order[8:] == [('b', 3)]


def stream_of(*amounts: int) -> AssignmentStream:
    """Return a stream of these amounts, in which a 0 is a time slice that finds nothing."""
    return AssignmentStream(
        Assignment(((0, 'VCPU', amount),), sharing_only=False) if amount else None for amount in amounts
    )


def test_interchangeable_groups_give_each_combination_once() -> None:
    assert len(find(devices(1, 8, 1), numbered(6, 'isolate'))) == 28
    assert len(find(devices(1, 8, 1), numbered(6))) == 28
    assert len(find(devices(1, 3, 2), numbered(3))) == 7


@pytest.mark.parametrize('policy', ['none', 'isolate'])
def test_a_symmetric_tree_takes_few_rejections(policy: str) -> None:
    rows = Rows(devices(2, 16, 8))
    rejections: Rejections = Counter()
    candidates = first(1000, rows.search_units(), numbered(8, policy), rejections)
    assert len({candidate.amounts for candidate in candidates}) == len(candidates) == 1000
    assert {root(candidate) for candidate in candidates} == {'root0', 'root1'}
    assert sum(rejections.values()) < 10_000


def test_different_groups_with_the_same_providers_take_few_rejections() -> None:
    # Each group requires a trait of its own, which all devices but one have: ten different sets of options.
    traits = [f'CUSTOM_{number}' for number in range(10)]
    topology = [rp('root'), *(rp(f'd{i}', 'root', traits=set(traits) - {traits[i]}, VGPU=1) for i in range(10))]
    groups = tuple(RequestGroup(str(n + 1), True, {'VGPU': 1}, frozenset({traits[n]})) for n in range(10))
    rejections: Rejections = Counter()
    bodies = find(topology, CandidateRequest(groups, 'isolate'), rejections)
    assert len(bodies) == 1
    assert sum(rejections.values()) < 50_000


@pytest.mark.parametrize('count', [17, 250])
@pytest.mark.parametrize('policy', ['none', 'isolate'])
def test_more_groups_than_fit_are_rejected_at_once(policy: str, count: int) -> None:
    rejections: Rejections = Counter()
    assert find(devices(1, 16, 1), numbered(count, policy), rejections) == []
    assert rejections == {Reason.TOO_LITTLE_CAPACITY: 1}


def unequal(amounts: Iterable[int], policy: str = 'none', rc: str = 'VGPU') -> CandidateRequest:
    groups = (RequestGroup(str(n), True, {rc: amount}) for n, amount in enumerate(amounts, start=1))
    return CandidateRequest(tuple(groups), policy)


@pytest.mark.parametrize(('first', 'fit'), [(81, 1), (54, 2), (33, 4)])
@pytest.mark.parametrize('devices_per_tree', [2, 9, 64])
def test_more_large_groups_than_fit_are_rejected_at_once(devices_per_tree: int, first: int, fit: int) -> None:
    # A device of 160 has room for one group of 81 to 160, for two of 54 to 80, and so on.
    amounts = [first + number % (160 // fit - first) for number in range(devices_per_tree * fit + 1)]
    rejections: Rejections = Counter()
    assert find(devices(1, devices_per_tree, 160), unequal(sorted(amounts)), rejections) == []
    assert rejections.keys() <= {Reason.TOO_FEW_WITH_CAPACITY, Reason.TOO_LITTLE_CAPACITY}
    assert sum(rejections.values()) == 1
    rows = Rows(devices(1, devices_per_tree, 160))
    assert next(search(rows.search_units(), compile_request(unequal(amounts[1:])), SearchBudget()))


def test_large_groups_with_few_suitable_providers_are_rejected_at_once() -> None:
    # Twelve devices, four of them fast; five groups that require a fast one and more than half of it, and other groups.
    topology = [rp('root'), *(rp(f'd{n}', 'root', traits=['CUSTOM_FAST'] * (n < 4), VGPU=100) for n in range(12))]
    fast = [RequestGroup(f'{n}', True, {'VGPU': 50 + n}, frozenset({'CUSTOM_FAST'})) for n in range(1, 6)]
    slow = [RequestGroup(f'{n}', True, {'VGPU': 50 + n}) for n in range(6, 12)]
    rejections: Rejections = Counter()
    assert find(topology, CandidateRequest((*fast, *slow), 'none'), rejections) == []
    assert rejections == {Reason.TOO_FEW_WITH_CAPACITY: 1}
    rows = Rows(topology)
    assert next(
        search(rows.search_units(), compile_request(CandidateRequest((*fast[1:], *slow), 'none')), SearchBudget())
    )


def test_more_isolated_groups_than_providers_are_rejected_at_once() -> None:
    rejections: Rejections = Counter()
    assert find(devices(1, 16, 8), numbered(17, 'isolate'), rejections) == []
    assert rejections == {Reason.TOO_FEW_PROVIDERS: 1}


def test_traits_that_no_combination_has_are_rejected_at_once() -> None:
    classes = [f'CUSTOM_{number}' for number in range(10)]
    traits = [f'CUSTOM_TRAIT_{number}' for number in range(11)]
    topology = [rp('root')]
    for number in range(22):
        inventory = dict.fromkeys(classes, record(4))
        topology.append(RP(f'cell{number}', 'root', inventory, {traits[number % 11]}, set()))
    group = RequestGroup('', False, dict.fromkeys(classes, 1), required=frozenset(traits))
    rejections: Rejections = Counter()
    assert not find(topology, CandidateRequest((group,)), rejections)
    assert rejections == {Reason.COLLECTIVE_TRAITS: 22}
    fewer = RequestGroup('', False, dict.fromkeys(classes, 1), required=frozenset(traits[1:]))
    rows = Rows(topology)
    assert next(search(rows.search_units(), compile_request(CandidateRequest((fewer,))), SearchBudget()))


def test_overlapping_traits_that_no_combination_has_are_rejected_at_once() -> None:
    topology = [rp('root')]
    for number, (first, second) in enumerate(itertools.permutations('ABCD', 2)):
        if 'A' in (first, second):
            topology.append(rp(f'cell{number}', 'root', traits=(first, second), VCPU=4, MEMORY_MB=4))
    group = RequestGroup('', False, {'VCPU': 1, 'MEMORY_MB': 1}, required=frozenset('ABCD'))
    assert not find(topology, CandidateRequest((group,)))
    group = RequestGroup('', False, {'VCPU': 1, 'MEMORY_MB': 1}, required=frozenset('BCA'))
    assert len(find(topology, CandidateRequest((group,)))) == 8


def test_number_of_groups_is_not_bounded_by_recursion() -> None:
    [candidate] = find([rp('host', VGPU=3000)], numbered(3000))
    assert candidate.amounts == ((1, 'VGPU', 3000),)


def test_a_sharing_provider_alone_is_one_assignment_for_all_hosts() -> None:
    hosts = [rp(f'host{number}', aggregates='pool', VCPU=8) for number in range(50)]
    rows = Rows([rp('nfs', aggregates='pool', shares=True, DISK_GB=100), *hosts])
    compiled = compile_request(CandidateRequest((RequestGroup('', False, {'DISK_GB': 10}),)))
    assignments = [
        list(find_assignments(unit, compiled, SearchBudget())) for unit in with_bits(rows.search_units(), compiled)
    ]
    assert sum(map(len, assignments)) == 1


def test_plain_and_numbered_group_of_one_class_repeat_no_candidate() -> None:
    groups = (RequestGroup('', False, {'VGPU': 1}), RequestGroup('1', True, {'VGPU': 1}, frozenset({'CUSTOM_A'})))
    topology = [rp('root'), *(rp(f'd{number}', 'root', traits=['CUSTOM_A'], VGPU=1) for number in range(3))]
    bodies = [candidate.amounts for candidate in find(topology, CandidateRequest(groups))]
    assert len(bodies) == len(set(bodies)) == 3


def test_equal_amounts_with_different_isolated_providers_are_different_candidates() -> None:
    topology = [
        rp('root'),
        rp('p1', 'root', traits=['CUSTOM_A'], VGPU=1),
        rp('p2', 'root', traits=['CUSTOM_A', 'CUSTOM_B'], VGPU=2),
        rp('p3', 'root', traits=['CUSTOM_B', 'CUSTOM_X'], VGPU=1),
        rp('p4', 'root', traits=['CUSTOM_B', 'CUSTOM_X'], VGPU=1),
    ]
    resources = {'VGPU': 1}
    groups = (
        RequestGroup('', False, resources, forbidden=frozenset({'CUSTOM_X'})),
        RequestGroup('1', True, resources, frozenset({'CUSTOM_A'})),
        RequestGroup('2', True, resources, frozenset({'CUSTOM_B'})),
    )
    bodies = [candidate.amounts for candidate in find(topology, CandidateRequest(groups, 'isolate'))]
    # p1 once and p2 twice, where only the unnumbered group may share p2 with a numbered one.
    assert ((2, 'VGPU', 1), (3, 'VGPU', 2)) in bodies
    assert len(bodies) == len(set(bodies)) == 5


def test_isolated_groups_that_must_move_to_other_providers() -> None:
    topology = [
        rp('root'),
        rp('p1', 'root', traits=['CUSTOM_A', 'CUSTOM_C'], VGPU=1),
        rp('p2', 'root', traits=['CUSTOM_B', 'CUSTOM_C'], VGPU=1),
        rp('p3', 'root', traits=['CUSTOM_A', 'CUSTOM_B'], VGPU=1),
    ]
    groups = tuple(RequestGroup(n, True, {'VGPU': 1}, frozenset({f'CUSTOM_{n}'})) for n in 'ABC')
    [candidate] = find(topology, CandidateRequest(groups, 'isolate'))
    assert candidate.amounts == ((2, 'VGPU', 1), (3, 'VGPU', 1), (4, 'VGPU', 1))


def test_unnumbered_group_with_traits_is_not_interchangeable_with_a_numbered_one() -> None:
    topology = [rp('root'), rp('p1', 'root', VGPU=1), rp('p2', 'root', traits=['CUSTOM_A'], VGPU=1)]
    groups = (
        RequestGroup('', False, {'VGPU': 1}, frozenset({'CUSTOM_A'})),
        RequestGroup('1', True, {'VGPU': 1}),
    )
    [candidate] = find(topology, CandidateRequest(groups))
    assert candidate.amounts == ((2, 'VGPU', 1), (3, 'VGPU', 1))


def test_equal_amounts_with_different_traits_are_different_candidates() -> None:
    topology = [
        rp('root'),
        rp('p1', 'root', VGPU=1),
        rp('p2', 'root', traits=['CUSTOM_A'], VGPU=1),
        rp('d1', 'root', DISK_GB=1),
        rp('d2', 'root', DISK_GB=1),
        rp('d3', 'root', traits=['CUSTOM_A'], DISK_GB=1),
    ]
    groups = (
        RequestGroup('', False, {'VGPU': 1, 'DISK_GB': 1}, frozenset({'CUSTOM_A'})),
        RequestGroup('1', True, {'VGPU': 1}),
    )
    bodies = [candidate.amounts for candidate in find(topology, CandidateRequest(groups))]
    # With d1 and d2 the unnumbered group must be the one on p2, the second of the two ways to use both.
    assert sorted(bodies) == [((2, 'VGPU', 1), (3, 'VGPU', 1), (disk, 'DISK_GB', 1)) for disk in (4, 5, 6)]


def test_no_more_candidates_are_pulled_than_a_small_multiple_of_the_limit() -> None:
    rows = Rows(devices(2, 16, 8))
    compiled = compile_request(numbered(8))
    pulled = 0

    def counted(stream: Iterator[Assignment | None]) -> Iterator[Assignment | None]:
        nonlocal pulled
        for assignment in stream:
            pulled += assignment is not None
            yield assignment

    streams = [
        (search_unit, AssignmentStream(counted(find_assignments(search_unit, compiled, SearchBudget()))))
        for search_unit in with_bits(rows.search_units(), compiled)
    ]
    assert len(list(itertools.islice(round_robin(streams), 1000))) == 1000
    assert pulled <= 1002


def hosts(count: int) -> tuple[list[CandidateSet], CandidateRequest]:
    """Candidates on ``count`` hosts, and the request for them."""
    request = CandidateRequest((RequestGroup('', False, {'VCPU': 1}),))
    return find([rp(f'host{number}', VCPU=4) for number in range(count)], request), request


def test_sample_is_uniform_and_shuffled() -> None:
    rng = random.Random(0)
    ten, request = hosts(10)
    three = replace(request, limit=3)
    drawn = Counter(root(candidate) for _ in range(3000) for candidate in select(iter(ten), three, SearchBudget(), rng))
    # 900 of each are expected; six standard deviations are about 150.
    assert len(drawn) == 10
    assert all(750 < count < 1050 for count in drawn.values())
    orders = {
        tuple(root(candidate) for candidate in select(iter(ten[:5]), request, SearchBudget(), rng)) for _ in range(200)
    }
    assert len(orders) > 80


def test_the_first_candidates_of_a_stream_can_be_taken() -> None:
    rows = Rows(devices(1, 16, 8))
    candidates = search(rows.search_units(), compile_request(numbered(8, 'isolate')), SearchBudget())
    assert len(list(itertools.islice(candidates, 5))) == 5
