"""How many more consumers of one size the cloud can take: placed one by one on a copy, and at most."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement.candidates.budget import Budget
from placement.candidates.providers import Anchor, InventoryRecord, Provider
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.candidates.search import search
from placement.candidates.sites import AnchorSite, Candidate
from placement.mirror.block import Block, any_of_tree
from placement.mirror.matching import Matching, MirrorSite, TreeSite, holds
from placement.mirror.state import State
from placement.mirror.stock import Flags, Integers

#: No count of one provider goes beyond this, so that sums of them fit a column.
_PLENTY = 2**40
#: Steps of the search for one placement in one tree.
_STEPS = 20_000


@dataclass(frozen=True)
class Size:
    """What each consumer takes: amounts by class, and the traits that its providers must have together.

    ``aggregate`` is one that every provider it takes from must be in, or the root of its tree.
    """

    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    aggregate: str | None = None

    def request(self) -> CandidateRequest:
        """The request that a scheduler would make for one of this size, at 1.29."""
        member_of = () if self.aggregate is None else (frozenset({self.aggregate}),)
        return CandidateRequest((RequestGroup('', False, self.resources, self.required, member_of=member_of),))


@dataclass(frozen=True)
class HowMany:
    """``fit`` were placed, one by one, on a copy; ``at_most`` fit in whatever order they come.

    ``complete`` is False when the count ended before the cloud was full.
    """

    fit: int
    at_most: int
    complete: bool


def how_many(state: State, size: Size, most_searches: int) -> HowMany:
    """Count how many consumers of ``size`` fit beside those that are there.

    Where the parts of a consumer cannot stand in each other's way, the count of a tree is a division. Other trees, and
    those that share providers, are filled one placement after the other.

    :param most_searches: how many searches for a placement to make; then the count ends.
    :raises ResourceClassNotFound, TraitNotFound: ``size`` names what does not exist.
    """
    state.names.check(size.resources, size.required)
    request = size.request()
    matching = Matching(state, request, alike=False)
    counts = {id(block): _Counts(state, matching, block, size.required) for block in state.blocks}
    plain = sum(one.plain for one in counts.values())
    at_most = sum(one.apart for one in counts.values())
    connected = np.sum([one.connected for one in counts.values()], axis=0) if counts else np.zeros(1)
    at_most += int(connected.min())
    if at_most == plain:
        return HowMany(plain, at_most, complete=True)
    copy = _Copy(request, most_searches)
    fit = plain
    for site in matching.sites():
        if not (isinstance(site, TreeSite) and counts[id(site.block)].is_plain[site.number]):
            fit += copy.fill(site)
        if copy.searches == 0:
            return HowMany(fit, at_most, complete=fit == at_most)
    return HowMany(fit, at_most, complete=True)


class _Counts:
    """How many times the trees of one block could take each class of the request.

    ``is_plain`` says which trees have an exact count: ``plain`` is the sum of those. ``apart`` bounds the sum of all
    trees without sharing providers, the plain ones included; ``connected`` has for each class how often all others
    together could take it.
    """

    def __init__(self, state: State, matching: Matching, block: Block, required: frozenset[str]) -> None:
        takers = [matching.takers(block, part) for part in matching.parts]
        counts = np.stack(
            [
                _times(block, state.names.class_ids[part.resources[0][0]], part.resources[0][1], takes)
                for part, takes in zip(matching.parts, takers, strict=True)
            ],
            axis=1,
        )
        sharing = _touched_by_sharing(matching, block)
        possible = block.whole & _has_traits(block, np.logical_or.reduce(takers), required)
        self.is_plain = ~sharing & _cannot_lack(block, takers, required)
        each = np.where(possible & ~sharing, counts.min(axis=1), 0)
        self.plain = int(each[self.is_plain].sum())
        self.apart = int(each.sum())
        self.connected: Integers = counts[sharing].sum(axis=0)


def _times(block: Block, class_id: int, amount: int, takes: Flags) -> Integers:
    """How many times the providers of each tree that ``takes`` names can take an amount of a class, together."""
    stock = block.stocks.get(class_id)
    times = np.zeros(len(block.records), np.int64)
    if stock is not None:
        times[stock.rows] = np.clip((stock.ceiling - stock.used) // amount, 0, _PLENTY)
    times[~takes] = 0
    summed: Integers = np.add.reduceat(times, block.starts[:-1])
    return summed


def _touched_by_sharing(matching: Matching, block: Block) -> Flags:
    """Which trees have, or are reached by, a sharing provider that could take a part of the request."""
    carrying = matching.sharing.aggregates
    ids = {one.root_id for one in matching.sharing.providers}
    touched: Flags = np.isin(block.roots, list(ids))
    return touched | block.tree_aggregates.where(lambda names: not carrying.isdisjoint(names))


def _has_traits(block: Block, takes_any: Flags, required: frozenset[str]) -> Flags:
    """Which trees have each required trait on a provider that could take a part of the request."""
    has = np.ones(len(block.roots), np.bool_)
    for name in required:
        has &= any_of_tree(block, takes_any & block.traits.where(functools.partial(holds, name)))
    return has


def _cannot_lack(block: Block, takers: Sequence[Flags], required: frozenset[str]) -> Flags:
    """Which trees have, for some part of the request, the required traits wherever that part may go."""
    if not required:
        return np.ones(len(block.roots), np.bool_)
    lacking = ~block.traits.where(lambda names: required <= names)
    return np.logical_or.reduce([~any_of_tree(block, takes & lacking) for takes in takers])


class _Copy:
    """Providers as they become while consumers are placed on them. ``searches`` is how many may still be made."""

    def __init__(self, request: CandidateRequest, searches: int) -> None:
        self._request = request
        self.searches = searches
        self._inventories: dict[int, dict[str, InventoryRecord]] = {}

    def fill(self, site: MirrorSite) -> int:
        """Place consumers at ``site`` until it takes no more, and return how many."""
        tree, sharing = site.anchor()
        anchor = Anchor(tuple(map(self._changeable, tree)), tuple(map(self._changeable, sharing)))
        placed = 0
        while self.searches:
            self.searches -= 1
            budget = Budget(candidates=1, steps=_STEPS)
            found = next(search([AnchorSite(anchor)], self._request, budget), None)
            if found is None:
                break
            placed += self._take(found)
        return placed

    def _changeable(self, provider: Provider) -> Provider:
        own = self._inventories.setdefault(provider.id, dict(provider.inventories))
        return Provider(
            provider.id, provider.uuid, provider.root_id, provider.parent_id, own, provider.traits, provider.aggregates
        )

    def _take(self, candidate: Candidate) -> int:
        """Place consumers like ``candidate`` as often as that goes: what came first stays first while it fits."""
        times = min(self._room(id_, name) // amount for id_, name, amount in candidate.amounts)
        for id_, name, amount in candidate.amounts:
            inventory = self._inventories[id_][name]
            self._inventories[id_][name] = inventory._replace(used=inventory.used + times * amount)
        return times

    def _room(self, id_: int, name: str) -> int:
        inventory = self._inventories[id_][name]
        return inventory.capacity - inventory.used
