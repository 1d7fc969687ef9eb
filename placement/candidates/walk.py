"""Placing the slots of one anchor: depth first, with running amounts, abandoning a bad choice as it is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

from placement.candidates.reasons import Reason, Rejections
from placement.candidates.request import SHARING_TRAIT
from placement.candidates.rows import Anchor
from placement.candidates.sites import Amounts, Placement
from placement.candidates.slots import Slot
from placement.candidates.steps import Plan

_Key = TypeVar('_Key')

#: How many partial placements one walk remembers, to not finish the same one twice. Beyond it the walk is slower, not
#: wrong.
REMEMBERED = 50000


class Board:
    """What is placed so far at one anchor."""

    def __init__(self, plan: Plan, anchor: Anchor) -> None:
        self._providers = anchor.tree + anchor.sharing
        self._shared_from = len(anchor.tree)
        self._tree_required = bool(anchor.tree)
        self._nested_aware = plan.nested_aware
        self._from_tree = 0
        self._held: dict[tuple[int, str], int] = {}
        self._isolated: set[int] = set()
        self._by_tree: defaultdict[int, list[int]] = defaultdict(list)
        self._missing = [plan.collective]

    def refusal(self, slot: Slot, position: int) -> Reason | None:
        """Return the rule that a provider would break in ``slot`` next to what is placed, None when it fits."""
        if slot.isolated and position in self._isolated:
            return Reason.ISOLATED
        provider = self._providers[position]
        for name, amount in slot.step.resources:
            held = self._held.get((position, name))
            if held is not None and held + amount > provider.inventories[name].headroom:
                return Reason.MERGED
        if not self._nested_aware and self._is_second_of_tree(position):
            return Reason.SAME_TREE
        if slot.collective and not slot.later.can_bring(self._missing[-1] - provider.traits):
            return Reason.COLLECTIVE_TRAITS
        if self._tree_required and not self._from_tree and not slot.tree_later and position >= self._shared_from:
            return Reason.OTHER_TREE
        return None

    def _is_second_of_tree(self, position: int) -> bool:
        others = self._by_tree[self._providers[position].root_id]
        return bool(others) and others[-1] != position

    def put(self, slot: Slot, position: int) -> None:
        """Place ``slot`` on the provider at ``position``."""
        for name, amount in slot.step.resources:
            key = (position, name)
            self._held[key] = self._held.get(key, 0) + amount
        self._from_tree += position < self._shared_from
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].append(position)
        if slot.isolated:
            self._isolated.add(position)
        if slot.collective:
            self._missing.append(self._missing[-1] - self._providers[position].traits)

    def take_back(self, slot: Slot, position: int) -> None:
        """Undo the latest ``put``, which was this one."""
        for name, amount in slot.step.resources:
            key = (position, name)
            self._held[key] -= amount
            if not self._held[key]:
                del self._held[key]
        self._from_tree -= position < self._shared_from
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].pop()
        if slot.isolated:
            self._isolated.discard(position)
        if slot.collective:
            self._missing.pop()

    def amounts(self) -> Amounts:
        """Return the merged amounts: (position, class name, amount), sorted."""
        return tuple(sorted([(position, name, amount) for (position, name), amount in self._held.items()]))

    def placement(self) -> Placement:
        """Return what is placed, as an outcome."""
        amounts = self.amounts()
        for position, _, _ in amounts:
            if position < self._shared_from and SHARING_TRAIT not in self._providers[position].traits:
                return Placement(amounts, sharing_only=False)
        return Placement(amounts, sharing_only=True)

    def state(self) -> tuple[object, ...]:
        """Return all that the rest of a walk depends on; equal states continue equally."""
        return frozenset(self._held.items()), frozenset(self._isolated), self._missing[-1]


def walk(slots: Sequence[Slot], board: Board, rejections: Rejections | None = None) -> Iterator[Placement]:
    """Yield every complete placement of ``slots``, those with the same amounts once.

    A loop with its own stack, so that the number of groups is not bounded by the interpreter's. Slots of one run take
    providers in non-decreasing order. Runs that overlap in a class can reach the same amounts on different ways;
    then states already seen are not continued.
    """
    visited = _Visited() if _runs_overlap(slots) else None
    chosen = [0] * len(slots)
    last = len(slots) - 1
    depth = index = 0
    while depth >= 0:
        found = _next_fitting(slots[depth], index, board, rejections)
        if found is None:
            depth -= 1
        else:
            slot = slots[depth]
            board.put(slot, slot.options[found])
            chosen[depth] = found
            start = found if depth < last and slots[depth + 1].run == slot.run else 0
            if visited is None or visited.is_new(board, depth, start, depth == last):
                if depth < last:
                    depth, index = depth + 1, start
                    continue
                yield board.placement()
        if depth >= 0:
            index = chosen[depth]
            board.take_back(slots[depth], slots[depth].options[index])
            index += 1


def _next_fitting(slot: Slot, index: int, board: Board, rejections: Rejections | None) -> int | None:
    """Return the index of the first option from ``index`` on that fits, None when there is no more."""
    options = slot.options
    while index < len(options):
        reason = board.refusal(slot, options[index])
        if reason is None:
            return index
        if rejections is not None:
            rejections[slot.step.group, reason] += 1
        index += 1
    return None


def _runs_overlap(slots: Sequence[Slot]) -> bool:
    run_of: dict[str, int] = {}
    for slot in slots:
        for name, _ in slot.step.resources:
            if run_of.setdefault(name, slot.run) != slot.run:
                return True
    return False


class _Visited:
    """The placements already reached, whole ones and (up to a bound) partial ones."""

    def __init__(self) -> None:
        self._complete: set[Amounts] = set()
        self._partial: set[tuple[object, ...]] = set()

    def is_new(self, board: Board, depth: int, start: int, complete: bool) -> bool:
        if complete:
            return self._add(self._complete, board.amounts())
        key = (depth, start, board.state())
        if len(self._partial) >= REMEMBERED:
            return key not in self._partial
        return self._add(self._partial, key)

    @staticmethod
    def _add(known: set[_Key], key: _Key) -> bool:
        before = len(known)
        known.add(key)
        return len(known) > before
