"""Failover capacity: does the load of each host fit on the others, and how many may fail together?"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from oslo_utils import timeutils

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.providers import Provider
from placement.db.api import Database
from placement.ops.planning import bounds, drain, loads
from placement.ops.planning.drain import Verdict
from placement.ops.planning.eligibility import Eligibility
from placement.ops.planning.hosts import Hosts, read_state
from placement.ops.planning.loads import Loads, PlanOptions, amounts_of
from placement.ops.planning.nested import TreeSolver
from placement.ops.planning.packing import Fit, Packing, rank

#: Maximum number of hosts for which all policies are tried.
_MAX_THOROUGH = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FailedHost:
    """A host whose load does not fit on the others."""

    host: Provider
    verdict: Verdict
    #: How many consumers it has, how many of them were left, and what these have.
    consumers: int
    left_count: int
    left_resources: Mapping[str, int]


@dataclass(frozen=True)
class FailureReport:
    """The answer. Any ``guaranteed_together`` may fail together, and ``at_most_together + 1`` certain hosts may not."""

    #: When the state was read.
    read_at: dt.datetime
    #: How many hosts were checked, because they have a load, and how many consumers they have.
    hosts: int
    consumers: int
    #: The number of simultaneous failures that is known to be survivable.
    tolerated_failures: int
    #: None if a consumer has allocations of several providers of a tree: no bound is known for these.
    guaranteed_together: int | None
    at_most_together: int
    #: The hosts that do not fit, those that leave most consumers first.
    not_evacuable: int
    not_evacuable_hosts: Sequence[FailedHost]
    #: As in ``Loads``.
    allocations_without_inventory: int
    usage_mismatches: int


def check_failures(
    db: Database,
    options: PlanOptions,
    aggregate: str | None = None,
    progress: Callable[[list[int]], Iterable[int]] = iter,
) -> FailureReport:
    """Check each host with a load alone, and bound the number of hosts that may fail together.

    :param aggregate: the uuid of an aggregate, whose hosts are checked; None for all hosts.
    :param progress: yields the trees that are checked.
    :raises BadQuery: no host is in ``aggregate``.
    """
    read_at = timeutils.utcnow(with_timezone=True)
    with db.reader() as tx:
        hosts = read_state(tx)
        trees = None if aggregate is None else hosts.find_trees((), aggregate)
        hosts, grouped = loads.read_loads(tx, hosts, trees, options)
    eligibility = Eligibility(hosts, grouped.shapes)
    guaranteed = guaranteed_failures(eligibility, grouped)
    demand = Counter(grouped.shape.tolist())
    impossible, at_most = _bound(hosts, grouped, bounds.necessary_conditions(eligibility, demand))
    failed: list[FailedHost] = []
    if not guaranteed:
        solver = TreeSolver(hosts, options.isolate)
        failed += _failed_hosts(eligibility, grouped, solver, impossible, progress(sorted(grouped.counts)))
        failed.sort(key=lambda host: (-host.left_count, host.host.uuid))
    checked = len(grouped.counts)
    return FailureReport(
        read_at=read_at,
        hosts=checked,
        consumers=len(grouped.tree),
        tolerated_failures=0 if failed else min(max(guaranteed or 0, 1), checked),
        guaranteed_together=guaranteed,
        at_most_together=0 if any(host.verdict is Verdict.CANNOT for host in failed) else at_most,
        not_evacuable=len(failed),
        not_evacuable_hosts=failed,
        allocations_without_inventory=grouped.without_inventory,
        usage_mismatches=grouped.mismatches,
    )


def _failed_hosts(
    eligibility: Eligibility, grouped: Loads, solver: TreeSolver, impossible: Flags, trees: Iterable[int]
) -> Iterator[FailedHost]:
    """Yield the trees whose load does not fit on the others, by best fit or, for the first ones, by any policy.

    :param impossible: for which trees that is proved.
    """
    hosts = eligibility.hosts
    amounts = amounts_of([shape.roles for shape in grouped.shapes], len(hosts.classes))
    sizes = (amounts @ hosts.weights).tolist()
    ranks = [rank(shape, size) for shape, size in zip(grouped.shapes, sizes, strict=True)]
    packing = Packing(eligibility, solver, Fit.BEST)
    thorough = 0
    for tree in trees:
        counts = dict(sorted(grouped.counts[tree], key=lambda item: ranks[item[0]]))
        packed = packing.fail(tree, counts.items())
        verdict = Verdict.CANNOT if impossible[tree] else Verdict.NOT_FOUND if packed.remaining else Verdict.FITS
        if verdict is Verdict.NOT_FOUND and thorough < _MAX_THOROUGH:
            thorough += 1
            verdict, best, _ = drain.solve(Eligibility(hosts, grouped.shapes, [tree]), counts, solver)
            packed = min(packed, best, key=lambda attempt: attempt.remaining.total())
        if verdict is not Verdict.FITS:
            sums = np.array(list(packed.remaining.values())) @ amounts[list(packed.remaining)]
            yield FailedHost(
                hosts.trees[tree][0],
                verdict,
                consumers=sum(counts.values()),
                left_count=packed.remaining.total(),
                left_resources=hosts.resources(enumerate(sums.tolist())),
            )


# Bounds ----------------------------------------------------------------------------------------------------------


def _needed(hosts: Hosts, grouped: Loads, of_shape: Floats) -> Floats:
    """Return what the load of each tree needs, if one consumer of each shape needs ``of_shape``."""
    tree, shape, count = grouped.pairs
    return np.bincount(tree, weights=of_shape[shape] * count, minlength=len(hosts.trees)).astype(np.float64)


def _by_tree(hosts: Hosts, rows: Integers, supply: NDArray[Any]) -> Floats:
    return np.bincount(hosts.tree_of[rows], weights=supply, minlength=len(hosts.trees)).astype(np.float64)


def _bound(hosts: Hosts, grouped: Loads, conditions: Iterable[bounds.Bound]) -> tuple[Flags, int]:
    """Return the trees whose load cannot be placed on the others, and how many hosts may fail together at most.

    For each bound, the worst hosts are those that need and supply most together: if the ``k`` worst violate it, these
    cannot fail together.
    """
    impossible = np.zeros(len(hosts.trees), np.bool_)
    at_most = len(grouped.counts)
    for bound in conditions:
        needed = _needed(hosts, grouped, bound.needs)
        lost = needed + _by_tree(hosts, bound.rows, bound.supply)
        total = float(bound.supply.sum())
        impossible |= (lost > total) & (needed > 0)
        # An empty host that fails costs its supply, but only hosts with a load count as failures here.
        worst = np.sort(lost[needed > 0])[::-1]
        violated = np.flatnonzero(np.cumsum(worst) > total)
        at_most = min(at_most, int(violated[0])) if len(violated) else at_most
    return impossible, at_most


def guaranteed_failures(eligibility: Eligibility, grouped: Loads) -> int | None:
    """Return a number of hosts any of which may fail together; None if there is no bound for the shapes.

    Any order that uses every row before it gives up fails only if on each surviving row, for some class, less is left
    than the largest amount. Then at least ``absorbed`` was placed there. So if all that failed is less than the sum of
    ``absorbed`` over the survivors, nothing is left. The worst hosts are those with the largest sum of load and
    ``absorbed``.
    """
    if any(len(shape.roles) > 1 or shape.elsewhere for shape in grouped.shapes):
        return None
    hosts = eligibility.hosts
    guaranteed = len(grouped.counts)
    amounts = amounts_of([shape.roles for shape in grouped.shapes], len(hosts.classes))
    groups = bounds.group_roles(eligibility, range(len(grouped.shapes)))
    for group in groups:
        rows = np.flatnonzero(group.rows)
        largest = amounts[[number for number, _ in group.members]].max(axis=0)
        used = np.flatnonzero(largest)
        free = np.maximum(hosts.free[rows][:, used], 0)
        # Any weights make a valid bound of the sum over classes.
        weights = 1.0 / np.maximum(free.sum(axis=0), 1)
        absorbed = (np.maximum(free - largest[used] + 1, 0) * weights).min(axis=1)
        # The shapes that may be placed on these rows.
        rivals = np.zeros(len(grouped.shapes), np.bool_)
        for other in groups:
            if (other.rows & group.rows).any():
                rivals[[number for number, _ in other.members]] = True
        lost = _needed(hosts, grouped, rivals * (amounts[:, used] @ weights)) + _by_tree(hosts, rows, absorbed)
        # Only trees with a load fail.
        worst = np.sort(lost[sorted(grouped.counts)])[::-1]
        guaranteed = min(guaranteed, int((np.cumsum(worst) <= absorbed.sum() * (1 - 1e-9)).sum()))
    return guaranteed
