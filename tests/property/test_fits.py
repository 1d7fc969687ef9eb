"""The number of further servers of a size that fit, against the oracle placing consumers one by one."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement import exception
from placement.ops.planning.fits import count_fits, count_size, one_consumer
from placement.ops.reports.tree_filter import TreeFilter
from placement.search.request import CandidateRequest, RequestGroup
from tests.support.search.cached import snapshot_of
from tests.support.search.oracle import RP, SHARES, Group, Oracle, Query, record
from tests.support.search.topologies import CLASSES, TRAITS, thorough, topologies

#: The largest number of consumers to place.
_MOST = 30


@dataclasses.dataclass(frozen=True)
class Size:
    """What one consumer needs, and where."""

    resources: dict[str, int]
    required: frozenset[str] = frozenset()
    aggregate: str | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()

    def request(self) -> CandidateRequest:
        aggregates = frozenset(filter(None, [self.aggregate]))
        scope = TreeFilter(aggregates, self.required, self.root_required, self.root_forbidden)
        return one_consumer(self.resources, scope)


sizes = st.builds(
    Size,
    st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 4), min_size=1),
    st.frozensets(st.sampled_from(TRAITS), max_size=1),
    st.sampled_from([None, None, 'a', 'b']),
    st.frozensets(st.sampled_from(TRAITS[:1]), max_size=1),
    st.frozensets(st.sampled_from(TRAITS[1:]), max_size=1),
)


@thorough(500)
@given(topologies(), sizes, st.integers(0, 100))
def test_as_many_fit_as_can_be_placed(topology: list[RP], size: Size, seed: int) -> None:
    count = count_fits(snapshot_of(topology), size.request(), 10_000)
    placed = _placed(topology, size, random.Random(seed))
    event(f'placed: {min(placed, 4)}, more fit: {count.fit > placed}, exact: {count.exact}')
    assert count.complete
    assert count.fit <= min(_times(topology, name, amount) for name, amount in size.resources.items())
    assert (placed == 0) == (count.fit == 0)
    if count.exact:
        assert placed <= count.fit
    if not size.required and not any(SHARES in rp.traits for rp in topology) and placed < _MOST:
        # No placement affects another one, so every order gives the same number.
        assert count.fit == placed


@thorough(1500)
@given(st.integers(0, 2**32))
def test_pools_are_shared_out_in_the_best_way(seed: int) -> None:
    """Some orders of claims fill pools that only other hosts can reach; the count is that of the best order."""
    rng = random.Random(seed)
    racks = ['north', 'south', 'east']
    topology = [
        RP(f'pool{number}', inventory={'DISK_GB': record(rng.randint(1, 5))}, traits={SHARES}, aggregates=set(reach))
        for number, reach in enumerate(rng.sample([racks[:1], racks[1:2], racks[:2], racks[1:]], rng.randint(1, 3)))
    ]
    for number in range(rng.randint(1, 4)):
        disk = {'DISK_GB': record(rng.randint(1, 2))} if rng.random() < 0.3 else {}
        reach = set(rng.sample(racks, rng.randint(1, 2)))
        topology.append(RP(f'host{number}', inventory={'VCPU': record(rng.randint(1, 3)), **disk}, aggregates=reach))
    size = Size({'VCPU': 1, 'DISK_GB': rng.choice([1, 1, 2])})
    count = count_fits(snapshot_of(topology), size.request(), 0)
    assert (count.exact, count.complete) == (True, True)
    assert count.fit == _most(topology, size)
    for rp in topology:
        if SHARES in rp.traits:
            rp.inventory['DISK_GB']['total'] = 100
    unlimited = count_fits(snapshot_of(topology), size.request(), 0)
    event(f'prevented by pools: {count.prevented_by_pools}')
    assert unlimited.fit <= count.fit + count.prevented_by_pools


def _most(topology: list[RP], size: Size) -> int:
    """The largest number of consumers that any order of claims places."""
    inventories = {rp.name: rp.inventory for rp in topology}
    best_of_state: dict[object, int] = {}

    def most() -> int:
        key = tuple(record['used'] for inventory in inventories.values() for record in inventory.values())
        if key not in best_of_state:
            best = 0
            for candidate in _candidates(topology, size):
                for name, resource_class, amount in candidate:
                    inventories[name][resource_class]['used'] += amount
                best = max(best, 1 + most())
                for name, resource_class, amount in candidate:
                    inventories[name][resource_class]['used'] -= amount
            best_of_state[key] = best
        return best_of_state[key]

    return most()


def _times(topology: list[RP], resource_class: str, amount: int) -> int:
    """How many times all inventories of a class together can allocate an amount."""
    oracle = Oracle(topology)
    return sum(
        max(int(oracle.capacity(rp.name, resource_class)) - rp.inventory[resource_class]['used'], 0) // amount
        for rp in topology
        if resource_class in rp.inventory
    )


def _placed(topology: list[RP], size: Size, rng: random.Random) -> int:
    """Place one consumer after the other, each on a candidate chosen at random."""
    topology = copy.deepcopy(topology)
    inventories = {rp.name: rp.inventory for rp in topology}
    for count in range(_MOST):
        candidates = _candidates(topology, size)
        if not candidates:
            return count
        for name, resource_class, amount in rng.choice(candidates):
            inventories[name][resource_class]['used'] += amount
    return _MOST


def _candidates(topology: list[RP], size: Size) -> list[frozenset[tuple[str, str, int]]]:
    member_of = [{size.aggregate}] if size.aggregate else []
    query = Query([Group('', dict(size.resources), set(size.required), set(), member_of)], None, None, 29)
    query.root_required, query.root_forbidden = set(size.root_required), set(size.root_forbidden)
    return sorted(Oracle(topology).candidates(query), key=sorted)


def test_a_count_that_stops_early_is_incomplete() -> None:
    topology = [RP('disk', inventory={'DISK_GB': record(100)}, traits={SHARES}, aggregates={'a'})]
    topology += [RP(f'host{n}', inventory={'VCPU': record(2)}, aggregates={'a'}) for n in range(5)]
    state = snapshot_of(topology)
    size = Size({'VCPU': 1, 'DISK_GB': 1})
    assert count_fits(state, size.request(), 0).fit == 10
    # Groups with suffixes are placed one by one.
    groups = (RequestGroup('1', True, {'VCPU': 1}), RequestGroup('2', True, {'DISK_GB': 1}))
    request = CandidateRequest(groups, 'none')
    assert dataclasses.astuple(count_fits(state, request, 100))[:3] == (10, True, 0)
    # Each host takes two searches: one for its two consumers, and one that finds it full.
    assert dataclasses.astuple(count_fits(state, request, 10))[:3] == (10, True, 0)
    assert dataclasses.astuple(count_fits(state, request, 9))[:3] == (10, False, 0)
    assert dataclasses.astuple(count_fits(state, request, 3))[:3] == (4, False, 0)


@pytest.mark.parametrize('names', list(itertools.permutations(['CUSTOM_A', 'CUSTOM_B', 'CUSTOM_C'])))
def test_the_first_unknown_class_is_reported(names: tuple[str, ...]) -> None:
    """A set would have another order in each process."""
    request = CandidateRequest((RequestGroup('', False, dict.fromkeys(names, 1)),))
    with pytest.raises(exception.ResourceClassNotFound, match=names[0]):
        count_fits(snapshot_of([]), request, 1)


def test_required_traits_restrict_the_providers_that_are_counted() -> None:
    topology = [
        RP('root'),
        RP('with', 'root', {'VCPU': record(2)}, {'CUSTOM_RED'}),
        RP('without', 'root', {'VCPU': record(2)}),
    ]
    estimate = count_fits(snapshot_of(topology), Size({'VCPU': 1}, frozenset({'CUSTOM_RED'})).request(), 100)
    assert dataclasses.astuple(estimate)[:3] == (2, True, 0)


def test_those_on_disabled_hosts_are_counted_by_division_and_by_search() -> None:
    disabled = {'COMPUTE_STATUS_DISABLED'}
    flat = [
        RP('enabled', inventory={'VCPU': record(4)}, aggregates={'b'}),
        RP('disabled', inventory={'VCPU': record(2)}, traits=disabled, aggregates={'b'}),
        # The trait of a child says nothing about the host.
        RP('root'),
        RP('child', 'root', {'VCPU': record(1)}, traits=disabled),
    ]
    disk = RP('disk', inventory={'DISK_GB': record(100)}, traits={SHARES}, aggregates={'b'})
    state = snapshot_of([*flat, disk])
    for size, expected in (
        (Size({'VCPU': 1}), (7, True, 2)),
        (Size({'VCPU': 1, 'DISK_GB': 1}), (6, True, 2)),
    ):
        assert dataclasses.astuple(count_size(state, size.request(), 100))[:3] == expected


def test_a_consumer_that_went_to_another_pool_frees_its_room_only_once() -> None:
    pools = [
        RP(f'pool{n}', inventory={'DISK_GB': record(1)}, traits={SHARES}, aggregates={'abc'[n], 'all'})
        for n in range(3)
    ]
    hosts = [
        RP('everywhere', inventory={'VCPU': record(1)}, aggregates={'all'}),
        RP('one', inventory={'VCPU': record(2)}, traits={'COMPUTE_STATUS_DISABLED'}, aggregates={'a'}),
    ]
    count = count_size(snapshot_of([*pools, *hosts]), Size({'VCPU': 1, 'DISK_GB': 1}).request(), 0)
    assert (count.fit, count.on_disabled_hosts, count.prevented_by_pools) == (2, 1, 1)
