"""The number of further servers of a size that fit, against the oracle placing consumers one by one."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import event, given
from hypothesis import strategies as st

from placement.cache.snapshot import Snapshot
from placement.reports.fit_estimate import Size, estimate_fit
from tests.support.candidates.cached import NAMES, records_of
from tests.support.candidates.oracle import RP, SHARES, Body, Group, Oracle, Query, record
from tests.support.candidates.topologies import CLASSES, TRAITS, thorough, topologies

#: The largest number of consumers to place.
_MOST = 30

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
def test_no_placement_exceeds_the_bound_and_the_count_can_be_placed(topology: list[RP], size: Size, seed: int) -> None:
    estimate = estimate_fit(Snapshot.of(NAMES, records_of(topology)), size, 10_000)
    placed = _placed(topology, size, random.Random(seed))
    event(f'placed: {min(placed, 4)}, exact: {estimate.fit == estimate.upper_bound}')
    assert estimate.complete
    assert estimate.fit <= estimate.upper_bound
    assert placed <= estimate.upper_bound
    assert (placed == 0) == (estimate.fit == 0)
    if not size.required and not any(SHARES in rp.traits for rp in topology) and placed < _MOST:
        # No placement affects another one, so every order gives the same number.
        assert estimate.fit == placed


def _placed(topology: list[RP], size: Size, rng: random.Random) -> int:
    """Place one consumer after the other, each on a candidate chosen at random."""
    member_of = [{size.aggregate}] if size.aggregate else []
    query = Query([Group('', dict(size.resources), set(size.required), set(), member_of)], None, None, 29)
    query.root_required, query.root_forbidden = set(size.root_required), set(size.root_forbidden)
    for count in range(_MOST):
        candidates = sorted(Oracle(topology).candidates(query), key=sorted)
        if not candidates:
            return count
        topology = _taken(topology, rng.choice(candidates))
    return _MOST


def _taken(topology: list[RP], body: Body) -> list[RP]:
    taken = {(name, resource_class): amount for name, resource_class, amount in body}
    return [
        dataclasses.replace(
            rp,
            inventory={
                name: {**values, 'used': values['used'] + taken.get((rp.name, name), 0)}
                for name, values in rp.inventory.items()
            },
        )
        for rp in topology
    ]


def test_a_count_that_stops_early_is_incomplete() -> None:
    topology = [RP('disk', inventory={'DISK_GB': record(100)}, traits={SHARES}, aggregates={'a'})]
    topology += [RP(f'host{n}', inventory={'VCPU': record(2)}, aggregates={'a'}) for n in range(5)]
    state = Snapshot.of(NAMES, records_of(topology))
    size = Size({'VCPU': 1, 'DISK_GB': 1})
    assert dataclasses.astuple(estimate_fit(state, size, 100)) == (10, 10, True)
    early = estimate_fit(state, size, 3)
    assert (early.fit, early.upper_bound, early.complete) == (4, 10, False)


def test_required_traits_restrict_the_providers_that_are_counted() -> None:
    topology = [
        RP('root'),
        RP('with', 'root', {'VCPU': record(2)}, {'CUSTOM_RED'}),
        RP('without', 'root', {'VCPU': record(2)}),
    ]
    estimate = estimate_fit(Snapshot.of(NAMES, records_of(topology)), Size({'VCPU': 1}, frozenset({'CUSTOM_RED'})), 100)
    assert dataclasses.astuple(estimate) == (2, 4, True)
