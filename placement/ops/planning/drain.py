"""Could everything that is allocated on some hosts be placed on the others?"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from oslo_utils import timeutils

from placement.cache.providers import Provider
from placement.db.api import Database
from placement.ops.planning import bounds, loads, packing
from placement.ops.planning.bounds import Shortage
from placement.ops.planning.eligibility import Eligibility
from placement.ops.planning.hosts import Hosts, Matrix, read_state
from placement.ops.planning.loads import Loads, PlanOptions, Shape, amounts_of
from placement.ops.planning.nested import TreeSolver
from placement.ops.planning.packing import POLICIES, Fit, Packed

#: How many orders and policies to try after the first; fewer if it is impossible to place everything.
_MORE_ATTEMPTS, _MORE_IF_IMPOSSIBLE = 11, 2


class Verdict(enum.Enum):
    """Everything is placed; that is impossible; or no attempt placed everything, and nothing proves it impossible."""

    FITS = 'fits'
    CANNOT = 'cannot'
    NOT_FOUND = 'no placement found'


@dataclass(frozen=True)
class Unplaced:
    """Consumers of one shape that the best attempt left."""

    #: What each of them has, by provider.
    resources: Sequence[Mapping[str, int]]
    consumers: int
    #: How many trees may take the shape by units, traits, aggregates and status, whatever is free.
    eligible_hosts: int
    #: The host that lacks least after the moves, and what it lacks; None if they have resources of several providers.
    closest_host: Provider | None
    closest_lacks: Mapping[str, int]
    #: The sharing providers that a destination must be in reach of.
    sharing_providers: Sequence[Provider]


@dataclass(frozen=True)
class Allocation:
    """What a consumer gets from a provider."""

    resource_provider: Provider
    resources: Mapping[str, int]


@dataclass(frozen=True)
class Move:
    """One consumer, from a host to another one, with all allocations that change."""

    consumer: str
    from_: Provider
    to: Provider
    allocations: Sequence[Allocation]


@dataclass(frozen=True)
class DrainPlan:
    """The answer. ``proof`` proves ``CANNOT``."""

    verdict: Verdict
    #: When the state was read.
    read_at: dt.datetime
    options: PlanOptions
    #: The hosts to drain, and how many consumers they have.
    hosts: Sequence[Provider]
    consumers: int
    #: How many of the loads have no place.
    left_count: int
    proof: Shortage | None
    not_placed: Sequence[Unplaced]
    moves: Sequence[Move]
    #: As in ``Loads``.
    allocations_without_inventory: int
    usage_mismatches: int


def plan_drain(db: Database, identifiers: Sequence[str], aggregate: str | None, options: PlanOptions) -> DrainPlan:
    """Plan moves of all consumers of some hosts to the others.

    :param identifiers: names or uuids of providers; their trees are drained.
    :param aggregate: the uuid of an aggregate whose hosts are drained, too.
    :raises UnknownProvider: there is no such provider.
    :raises BadQuery: no host is selected.
    """
    read_at = timeutils.utcnow(with_timezone=True)
    with db.reader() as tx:
        hosts = read_state(tx)
        trees = hosts.find_trees(identifiers, aggregate, options.move_shared)
        hosts, grouped = loads.read_loads(tx, hosts, trees, options)
        uuids = loads.read_uuids(tx, set(grouped.consumer.tolist()))
    demand = Counter(grouped.shape.tolist())
    eligibility = Eligibility(hosts, grouped.shapes, trees)
    policies = (Fit.WORST if options.spread else Fit.FEWEST, *POLICIES)
    solver = TreeSolver(hosts, options.isolate)
    verdict, packed, shortage = solve(eligibility, demand, solver, policies)
    moves = list(_moves(hosts, grouped, packed, uuids))
    if verdict is Verdict.FITS and len(moves) < demand.total():
        verdict = Verdict.NOT_FOUND
    return DrainPlan(
        verdict=verdict,
        read_at=read_at,
        options=options,
        hosts=[hosts.trees[tree][0] for tree in trees],
        consumers=len(uuids),
        left_count=len(grouped.tree) - len(moves),
        proof=shortage,
        not_placed=[
            _unplaced(eligibility, grouped.shapes[number], count, packed.free)
            for number, count in sorted(packed.remaining.items(), key=lambda item: (-item[1], item[0]))
        ],
        moves=moves,
        allocations_without_inventory=grouped.without_inventory,
        usage_mismatches=grouped.mismatches,
    )


def solve(
    eligibility: Eligibility, demand: Mapping[int, int], solver: TreeSolver, policies: Sequence[Fit] = POLICIES
) -> tuple[Verdict, Packed, Shortage | None]:
    """Try policies and orders until all is placed; fewer of them where that is proved impossible."""
    attempts = packing.attempts(eligibility, demand, solver, policies)
    best, shortage = next(attempts), None
    if best.remaining:
        shortage = bounds.find_shortage(eligibility, demand)
        for packed in itertools.islice(attempts, _MORE_ATTEMPTS if shortage is None else _MORE_IF_IMPOSSIBLE):
            best = min(best, packed, key=lambda attempt: attempt.remaining.total())
            if not best.remaining:
                break
    if shortage is not None:
        return Verdict.CANNOT, best, shortage
    return Verdict.NOT_FOUND if best.remaining else Verdict.FITS, best, None


def _moves(hosts: Hosts, grouped: Loads, packed: Packed, uuids: Mapping[int, str]) -> Iterator[Move]:
    """Give the places of each shape to its consumers in order of the trees.

    A consumer with loads on several drained trees gets a place only where it has none yet: allocations that come
    together might exceed ``max_unit``.
    """
    places: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    for placement in packed.placements:
        places[placement.shape] += [placement.rows] * placement.number
    taken: defaultdict[int, set[int]] = defaultdict(set)
    columns = (grouped.tree.tolist(), grouped.shape.tolist(), grouped.consumer.tolist())
    for tree, number, consumer in zip(*columns, strict=True):
        free = places[number]
        index = next((i for i, rows in enumerate(free) if taken[consumer].isdisjoint(rows)), None)
        if index is not None:
            rows = free.pop(index)
            taken[consumer].update(rows)
            shape = grouped.shapes[number]
            allocations = [
                Allocation(hosts.provider(row), hosts.resources(role))
                for row, role in zip(rows, shape.roles + shape.shared, strict=False)
            ]
            yield Move(uuids[consumer], hosts.trees[tree][0], hosts.root(rows[0]), allocations)


def _unplaced(eligibility: Eligibility, shape: Shape, count: int, free: Matrix) -> Unplaced:
    """Find the host that lacks the smallest share of a mean provider; the first uuid decides between equals."""
    hosts = eligibility.hosts
    closest, lacks = None, {}
    rows = np.flatnonzero(eligibility.rows(shape, shape.roles[0]))
    if len(shape.roles) == 1 and len(rows):
        needed = amounts_of([shape.roles], len(hosts.classes))
        lacking = np.maximum(needed - np.maximum(free[rows], 0), 0)
        best = int(np.argmin(lacking @ hosts.weights))
        closest = hosts.root(rows[best])
        lacks = hosts.resources(enumerate(lacking[best].tolist()))
    return Unplaced(
        [hosts.resources(role) for role in (*shape.roles, *shape.shared)],
        count,
        eligibility.count(shape),
        closest,
        lacks,
        [hosts.provider(row) for row in sorted(shape.stays)],
    )
