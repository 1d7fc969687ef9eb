"""Shows cheaply that slots cannot all be placed, where a walk would try every combination first.

Each test is a condition that every complete placement meets, so what is refuted is impossible. What is not refuted may
be impossible all the same.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement.candidates.budget import Meter
from placement.candidates.reasons import Reason
from placement.candidates.slots import Options, Providers, Slot

#: How many options all tests of one anchor may look at. Beyond it they find nothing more.
_MOST = 50000


class _TooLong(Exception):
    """It would take too long to tell."""


class _Effort:
    def __init__(self, meter: Meter) -> None:
        self._left = _MOST
        self._meter = meter

    def spend(self, options: int) -> None:
        self._left -= options
        if self._left < 0:
            raise _TooLong
        self._meter.spend(options)


@dataclass(frozen=True)
class _Asking:
    """A slot that asks for ``amount`` of the class in question."""

    amount: int
    options: Options
    isolated: bool


def refute(slots: Sequence[Slot], providers: Providers, meter: Meter) -> Reason | None:
    """Return why ``slots`` cannot all be placed on ``providers``, None when there is no telling.

    :raises OutOfSteps: ``meter`` says that it takes too long.
    """
    names = [name for slot in slots for name, _ in slot.part.resources]
    if len(set(names)) == len(names) and sum(slot.isolated for slot in slots) < 2:
        return None
    try:
        return _refute(slots, providers, _Effort(meter))
    except _TooLong:
        return None


def _refute(slots: Sequence[Slot], providers: Providers, effort: _Effort) -> Reason | None:
    isolated = [slot.options for slot in slots if slot.isolated]
    contested = list(_contested(slots))
    rooms = [_rooms(name, asking, providers, effort) for name, asking in contested]
    for (_, asking), room in zip(contested, rooms, strict=True):
        if sum(one.amount for one in asking) > sum(room.values()):
            return Reason.TOO_LITTLE_IN_ALL
    if len(isolated) > 1 and not _all_served(isolated, dict.fromkeys(itertools.chain(*isolated), 1), effort):
        return Reason.TOO_FEW_PROVIDERS
    for (_, asking), room in zip(contested, rooms, strict=True):
        if not _large_ones_fit(asking, room, effort):
            return Reason.TOO_FEW_WITH_ROOM
    return None


def isolation_fails(slots: Sequence[Slot], taken: Collection[int], meter: Meter) -> bool:
    """Say whether the isolated ones of ``slots`` cannot each have a provider of its own besides those ``taken``.

    :raises OutOfSteps: ``meter`` says that it takes too long.
    """
    effort = _Effort(meter)
    try:
        free = {id(slot.options): tuple([one for one in slot.options if one not in taken]) for slot in slots}
        isolated = [free[id(slot.options)] for slot in slots if slot.isolated]
        effort.spend(sum(map(len, free.values())))
        return not _all_served(isolated, dict.fromkeys(itertools.chain(*isolated), 1), effort)
    except _TooLong:
        return False


def _contested(slots: Sequence[Slot]) -> Iterator[tuple[str, list[_Asking]]]:
    """Yield the classes that several slots name, with these slots, the smallest amount first."""
    naming: defaultdict[str, list[_Asking]] = defaultdict(list)
    for slot in slots:
        for name, amount in slot.part.resources:
            naming[name].append(_Asking(amount, slot.options, slot.isolated))
    for name, asking in naming.items():
        if len(asking) > 1:
            asking.sort(key=lambda one: one.amount)
            yield name, asking


def _rooms(name: str, asking: Sequence[_Asking], providers: Providers, effort: _Effort) -> dict[int, int]:
    """Return what is left of a class on each provider that could serve any of the slots."""
    different = {id(one.options): one.options for one in asking}.values()
    effort.spend(sum(map(len, different)))
    positions = set().union(*different)
    return {position: providers[position].inventories[name].headroom for position in positions}


def _large_ones_fit(asking: Sequence[_Asking], room: Mapping[int, int], effort: _Effort) -> bool:
    """Say whether the slots from some amount upwards can be spread so that no provider gets more of them than it could.

    That is the pigeonhole principle when no two of them fit together on any provider.
    """
    amounts = [one.amount for one in asking]
    sums = list(itertools.accumulate(amounts, initial=0))
    for first, amount in enumerate(amounts):
        if first and amount == amounts[first - 1]:
            continue
        large = asking[first:]
        together = sum(not one.isolated for one in large) + any(one.isolated for one in large)
        effort.spend(len(room))
        # A provider takes at most as many as it could of the smallest ones.
        most = {
            position: min(bisect_right(sums, sums[first] + left) - 1 - first, together)
            for position, left in room.items()
        }
        if not _all_served([one.options for one in large], most, effort):
            return False
    return True


def _all_served(wanted: Sequence[Options], most: Mapping[int, int], effort: _Effort) -> bool:
    """Say whether each slot can get one of the positions that it wants, none being given to more than ``most`` slots.

    A bipartite matching, grown one augmenting path at a time.
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
    """Which slot gets which position, so far."""

    def __init__(self, wanted: Sequence[Options], most: Mapping[int, int], effort: _Effort) -> None:
        self._wanted = wanted
        self._most = most
        self._effort = effort
        self._place: dict[int, int] = {}
        self._holders: defaultdict[int, list[int]] = defaultdict(list)

    def serve(self, start: int) -> bool:
        """Give slot ``start`` a position, moving earlier holders along a shortest path. False when there is none."""
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
