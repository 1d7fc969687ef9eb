"""Shows in few steps that not all slots can be placed, where a walk would try every combination to find out.

Each test is a necessary condition: slots that fail one cannot be placed; slots that pass all may still be impossible.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placement.candidates import subtree
from placement.candidates.limits import StepCounter
from placement.candidates.reasons import Reason
from placement.candidates.subtree import Subtree
from placement.candidates.variables import Options, Providers, Variable

#: How many options the tests of one anchor may look at. Then they are ended without a result.
_MOST = 50000


class _TooLong(Exception):
    """The tests have looked at ``_MOST`` options."""


class _Effort:
    """Counts the options that were looked at."""

    def __init__(self, meter: StepCounter) -> None:
        self._left = _MOST
        self._meter = meter

    def spend(self, options: int) -> None:
        self._left -= options
        if self._left < 0:
            raise _TooLong
        self._meter.spend(options)


@dataclass(frozen=True)
class _Demand:
    """What a slot asks for of one class, and the positions of the providers that could take the slot."""

    amount: int
    options: Options
    isolated: bool


def refute(slots: Sequence[Variable], providers: Providers, meter: StepCounter) -> Reason | None:
    """Return why ``slots`` cannot all be placed on ``providers``; None if they perhaps can.

    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    try:
        return _refute(slots, providers, _Effort(meter))
    except _TooLong:
        return None


def refute_subtrees(slots: Sequence[Variable], providers: Providers, meter: StepCounter) -> Reason | None:
    """Remove tops below which the slots of a ``same_subtree`` cannot be placed; return a reason if none is left.

    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    members: defaultdict[Subtree, list[Variable]] = defaultdict(list)
    for slot in slots:
        for condition, _ in slot.subtrees:
            members[condition].append(slot)
    effort = _Effort(meter)
    try:
        for condition, some in members.items():
            if not _compete(some):
                continue
            below = {slot.options: _by_top(slot.options, condition, effort) for slot in some}
            tops = [top for top in _positions(condition.tops) if _fit_below(top, below, some, providers, effort)]
            condition.restrict(subtree.bits(tops))
            if not tops:
                return Reason.SUBTREE
    except _TooLong:
        return None
    return None


def _by_top(options: Options, condition: Subtree, effort: _Effort) -> Mapping[int, Options]:
    """Return for each top of a condition which of ``options`` are at it or below it."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for position in options:
        tops = condition.above[position] & condition.tops
        effort.spend(1 + tops.bit_count())
        for top in _positions(tops):
            found[top].append(position)
    return {top: tuple(positions) for top, positions in found.items()}


def _fit_below(
    top: int,
    below: Mapping[Options, Mapping[int, Options]],
    slots: Sequence[Variable],
    providers: Providers,
    effort: _Effort,
) -> bool:
    """Return whether the slots of a condition can perhaps be placed at ``top`` and below it."""
    effort.spend(len(slots))
    within = [replace(slot, options=below[slot.options].get(top, ())) for slot in slots]
    return all(slot.options for slot in within) and _refute(within, providers, effort) is None


def _compete(slots: Sequence[Variable]) -> bool:
    """Return whether slots may be in the way of one another: they name the same class, or are isolated."""
    names = [name for slot in slots for name, _ in slot.part.resources]
    return len(set(names)) < len(names) or sum(slot.isolated for slot in slots) > 1


def _positions(bits: int) -> Iterator[int]:
    """Yield the positions of a set (``candidates.subtree``)."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _refute(slots: Sequence[Variable], providers: Providers, effort: _Effort) -> Reason | None:
    if not _compete(slots):
        return None
    isolated = [slot.options for slot in slots if slot.isolated]
    contested = list(_contested(slots))
    rooms = [_rooms(name, demands, providers, effort) for name, demands in contested]
    for (_, demands), room in zip(contested, rooms, strict=True):
        if sum(one.amount for one in demands) > sum(room.values()):
            return Reason.TOO_LITTLE_IN_ALL
    if len(isolated) > 1 and not _all_served(isolated, dict.fromkeys(itertools.chain(*isolated), 1), effort):
        return Reason.TOO_FEW_PROVIDERS
    for (_, demands), room in zip(contested, rooms, strict=True):
        if not _large_ones_fit(demands, room, effort):
            return Reason.TOO_FEW_WITH_ROOM
    return None


def isolation_fails(slots: Sequence[Variable], taken: Collection[int], meter: StepCounter) -> bool:
    """Return whether there are too few providers for the isolated ones of ``slots`` to have one each.

    :param taken: the positions of providers that are not free any more.
    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    effort = _Effort(meter)
    try:
        free = {id(slot.options): tuple([one for one in slot.options if one not in taken]) for slot in slots}
        isolated = [free[id(slot.options)] for slot in slots if slot.isolated]
        effort.spend(sum(map(len, free.values())))
        return not _all_served(isolated, dict.fromkeys(itertools.chain(*isolated), 1), effort)
    except _TooLong:
        return False


def _contested(slots: Sequence[Variable]) -> Iterator[tuple[str, list[_Demand]]]:
    """Yield each class that several slots name, with what these ask for, the smallest amount first."""
    naming: defaultdict[str, list[_Demand]] = defaultdict(list)
    for slot in slots:
        for name, amount in slot.part.resources:
            naming[name].append(_Demand(amount, slot.options, slot.isolated))
    for name, demands in naming.items():
        if len(demands) > 1:
            demands.sort(key=lambda one: one.amount)
            yield name, demands


def _rooms(name: str, demands: Sequence[_Demand], providers: Providers, effort: _Effort) -> dict[int, int]:
    """Return the headroom of a class, by position, on each provider that could take any of the slots."""
    different = {id(one.options): one.options for one in demands}.values()
    effort.spend(sum(map(len, different)))
    positions = set().union(*different)
    return {position: providers[position].inventories[name].headroom for position in positions}


def _large_ones_fit(demands: Sequence[_Demand], room: Mapping[int, int], effort: _Effort) -> bool:
    """Return whether, for each amount, the slots with at least that amount can be distributed over the providers.

    A provider gets at most as many of them as fit when the smallest are taken first.
    """
    amounts = [one.amount for one in demands]
    sums = list(itertools.accumulate(amounts, initial=0))
    for first, amount in enumerate(amounts):
        if first and amount == amounts[first - 1]:
            continue
        large = demands[first:]
        together = sum(not one.isolated for one in large) + any(one.isolated for one in large)
        effort.spend(len(room))
        # By position, how many of the large ones fit at most.
        most = {
            position: min(bisect_right(sums, sums[first] + left) - 1 - first, together)
            for position, left in room.items()
        }
        if not _all_served([one.options for one in large], most, effort):
            return False
    return True


def _all_served(wanted: Sequence[Options], most: Mapping[int, int], effort: _Effort) -> bool:
    """Return whether each slot can get one of its options, so that no position has more than ``most`` slots.

    A bipartite matching, made with augmenting paths.

    :param wanted: the options of each slot.
    :param most: the number of slots that a position can have.
    """
    different = {id(options): options for options in wanted}.values()
    effort.spend(sum(map(len, different)))
    if all(sum(most[position] for position in options) >= len(wanted) for options in different):
        return True
    if sum(most[position] for position in set().union(*different)) < len(wanted):
        return False
    matching = _Matching(wanted, most, effort)
    return all(matching.serve(index) for index in range(len(wanted)))


class _Matching:
    """Which slot has which position so far; slots are known by their index."""

    def __init__(self, wanted: Sequence[Options], most: Mapping[int, int], effort: _Effort) -> None:
        self._wanted = wanted
        self._most = most
        self._effort = effort
        self._place: dict[int, int] = {}
        self._holders: defaultdict[int, list[int]] = defaultdict(list)

    def serve(self, start: int) -> bool:
        """Give slot ``start`` a position, moving earlier slots along a shortest path. False if that is impossible."""
        came_from: dict[int, int] = {}
        queue = [start]
        for index in queue:
            self._effort.spend(len(self._wanted[index]))
            for position in self._wanted[index]:
                if position in came_from:
                    continue
                came_from[position] = index
                holders = self._holders[position]
                if len(holders) < self._most[position]:
                    self._move(came_from, position)
                    return True
                queue.extend(holders)
        return False

    def _move(self, came_from: Mapping[int, int], free: int) -> None:
        while True:
            index = came_from[free]
            self._holders[free].append(index)
            before = self._place.get(index)
            self._place[index] = free
            if before is None:
                return
            self._holders[before].remove(index)
            free = before
