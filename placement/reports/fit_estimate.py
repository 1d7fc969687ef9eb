"""Counts how many more consumers of one size fit, by placing them on a copy of the inventories, with an upper bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.prefilter import Prefilter, TreeSearchUnit
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import SearchLimits
from placement.candidates.providers import InventoryRecord, Provider
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.candidates.requirements import CompiledRequest, TraitCondition
from placement.candidates.search import search
from placement.candidates.search_units import Family, SearchUnit

#: Maximum number of consumers that are counted for one provider, so that sums fit 64 bits.
_MAX_CONSUMERS = 2**40
#: Maximum number of steps of the search for one candidate in one tree.
_MAX_STEPS = 20_000


@dataclass(frozen=True)
class Size:
    """The size of one consumer: amounts by class, and the traits that its providers together must have.

    ``aggregate`` is the uuid of one that each of its providers, or the root of the provider's tree, must be in.
    ``root_required`` and ``root_forbidden`` are traits of that root, as in ``CandidateRequest``.
    """

    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    aggregate: str | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()

    def request(self) -> CandidateRequest:
        """Return the request for candidates of one consumer, without mappings."""
        member_of = () if self.aggregate is None else (frozenset({self.aggregate}),)
        return CandidateRequest(
            (RequestGroup('', False, self.resources, self.required, member_of=member_of),),
            root_required=self.root_required,
            root_forbidden=self.root_forbidden,
        )


@dataclass(frozen=True)
class FitEstimate:
    """``fit`` consumers were placed on a copy; ``upper_bound`` is an upper bound for any order of placing them.

    ``complete`` is False when the limit of searches ended the count before the cloud was full.
    """

    fit: int
    upper_bound: int
    complete: bool


def estimate_fit(state: Snapshot, size: Size, max_searches: int) -> FitEstimate:
    """Count how many more consumers of ``size`` fit.

    For a tree without sharing providers, in which the required traits rule out no placement, the count is a division.
    Other trees are filled with one placement after the other.

    :param max_searches: maximum number of searches for a placement; then the count ends.
    :raises ResourceClassNotFound: a class of ``size`` does not exist.
    :raises TraitNotFound: a trait of ``size`` does not exist.
    """
    request = size.request()
    state.names.check(size.resources, request.traits)
    prefilter = Prefilter(state, request, with_keys=False)
    counts = {id(partition): _Counts(prefilter, partition, size.required) for partition in state.partitions}
    exact = sum(one.exact for one in counts.values())
    upper_bound = sum(one.without_sharing for one in counts.values())
    with_sharing = np.sum([one.with_sharing for one in counts.values()], axis=0) if counts else np.zeros(1)
    upper_bound += int(with_sharing.min())
    if upper_bound == exact:
        return FitEstimate(exact, upper_bound, complete=True)
    copy = _Copy(prefilter.compiled, max_searches)
    fit = exact
    for search_unit in prefilter.search_units():
        if not (
            isinstance(search_unit, TreeSearchUnit)
            and counts[id(search_unit.partition)].is_exact[search_unit.numbers[0]]
        ):
            fit += copy.fill(search_unit)
        if copy.searches == 0:
            return FitEstimate(fit, upper_bound, complete=fit == upper_bound)
    return FitEstimate(fit, upper_bound, complete=True)


class _Counts:
    """Counts by division how many consumers the trees of one partition could serve.

    ``is_exact`` says for which trees that is exact, and ``exact`` is the sum over these. ``without_sharing`` is an
    upper bound for all trees without sharing providers, the exact ones included. ``with_sharing`` has for each class
    of the request an upper bound for all other trees together.
    """

    def __init__(self, prefilter: Prefilter, partition: Partition, required: frozenset[str]) -> None:
        eligible = [one.matches(partition) for one in prefilter.requirements]
        pairs = zip(prefilter.requirements, eligible, strict=True)
        counts = np.stack([_times(partition, *one.resources[0], flags) for one, flags in pairs], axis=1)
        sharing = _uses_sharing(prefilter, partition)
        possible = (
            partition.has_root
            & prefilter.accepted_roots(partition)
            & _has_traits(partition, np.logical_or.reduce(eligible), required)
        )
        self.is_exact = ~sharing & _always_has_traits(partition, eligible, required)
        each = np.where(possible & ~sharing, counts.min(axis=1), 0)
        self.exact = int(each[self.is_exact].sum())
        self.without_sharing = int(each.sum())
        self.with_sharing: Integers = counts[sharing].sum(axis=0)


def _times(partition: Partition, name: str, amount: int, eligible: Flags) -> Integers:
    """Return for each tree how many times its ``eligible`` providers can allocate an amount of a class."""
    columns = partition.inventory_columns.get(name)
    times = np.zeros(len(partition.providers), np.int64)
    if columns is not None:
        times[columns.positions] = np.clip((columns.capacity_limit - columns.used) // amount, 0, _MAX_CONSUMERS)
    times[~eligible] = 0
    summed: Integers = np.add.reduceat(times, partition.starts[:-1])
    return summed


def _uses_sharing(prefilter: Prefilter, partition: Partition) -> Flags:
    """Return which trees have, or can use, a sharing provider that could serve a part of the request."""
    aggregates = prefilter.sharing.aggregates
    ids = {one.root_id for one in prefilter.sharing.providers}
    has_sharing: Flags = np.isin(partition.roots, list(ids))
    return has_sharing | partition.tree_aggregates.where(lambda names: not aggregates.isdisjoint(names))


def _has_traits(partition: Partition, any_eligible: Flags, required: frozenset[str]) -> Flags:
    """Return which trees have each required trait on a provider that could serve a part of the request."""
    has = np.ones(len(partition.roots), np.bool_)
    for name in required:
        has &= combine_by_tree(partition, any_eligible & TraitCondition(frozenset({name})).matches(partition))
    return has


def _always_has_traits(partition: Partition, eligible: Sequence[Flags], required: frozenset[str]) -> Flags:
    """Return which trees satisfy the required traits with any assignment: all providers of some part have them all."""
    if not required:
        return np.ones(len(partition.roots), np.bool_)
    lacking = ~partition.traits.where(lambda names: required <= names)
    return np.logical_or.reduce([~combine_by_tree(partition, flags & lacking) for flags in eligible])


class _Copy:
    """A copy of inventories on which consumers are placed. ``searches`` is how many more searches may be made."""

    def __init__(self, compiled: CompiledRequest, searches: int) -> None:
        self._compiled = compiled
        self.searches = searches
        self._inventories: dict[int, dict[str, InventoryRecord]] = {}

    def fill(self, search_unit: SearchUnit) -> int:
        """Place consumers at ``search_unit`` until no more fit, and return how many were placed."""
        own = SearchUnit(
            tuple(map(self._changeable, search_unit.tree)), tuple(map(self._changeable, search_unit.sharing))
        )
        placed = 0
        while self.searches:
            self.searches -= 1
            limits = SearchLimits(max_candidates=1, max_steps=_MAX_STEPS)
            found = next(search([own], self._compiled, limits), None)
            if found is None:
                break
            placed += self._take(found)
        return placed

    def _changeable(self, provider: Provider) -> Provider:
        own = self._inventories.setdefault(provider.id, dict(provider.inventories))
        return replace(provider, inventories=own)

    def _take(self, candidate: Family) -> int:
        """Place as many consumers like ``candidate`` as fit: the search would return it first as long as it fits."""
        inventories = [self._inventories[id_][name] for id_, name, _ in candidate.amounts]
        pairs = zip(inventories, candidate.amounts, strict=True)
        times = min((one.capacity - one.used) // amount for one, (_, _, amount) in pairs)
        for inventory, (id_, name, amount) in zip(inventories, candidate.amounts, strict=True):
            self._inventories[id_][name] = inventory._replace(used=inventory.used + times * amount)
        return times
