"""Places the slots of one anchor: a depth-first search that checks each choice against all choices before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

from placement.candidates import infeasibility
from placement.candidates.limits import StepCounter
from placement.candidates.providers import Anchor
from placement.candidates.reasons import Reason, Rejections
from placement.candidates.request import SHARING_TRAIT
from placement.candidates.requirements import CompiledRequest
from placement.candidates.search_units import Amounts, Assignment, Mappings
from placement.candidates.variables import Variable

_Key = TypeVar('_Key')

#: After so many steps without a placement, a walk pauses and lets those of other shapes go on.
TIME_SLICE = 1000

#: After so many steps without a placement, it checks at each choice whether the isolated slots can still be placed.
_PATIENCE = 500


class PartialAssignment:
    """The slots that are placed so far at one anchor, and the sums that follow from them."""

    def __init__(self, compiled: CompiledRequest, anchor: Anchor, meter: StepCounter) -> None:
        self._meter = meter
        self._providers = anchor.tree + anchor.sharing
        self._shared_from = len(anchor.tree)
        self._tree_required = bool(anchor.tree)
        self._nested_aware = compiled.nested_aware
        self._from_tree = 0
        self._held: dict[tuple[int, str], int] = {}
        #: The positions of isolated slots.
        self.isolated: set[int] = set()
        self._by_tree: defaultdict[int, list[int]] = defaultdict(list)
        self._missing = [compiled.traits.all]
        self.with_mappings = compiled.with_mappings
        #: The positions of the slots of each group, by suffix.
        self._by_group: dict[str, list[int]] = {suffix: [] for suffix in compiled.groups}

    def rejection(self, slot: Variable, position: int) -> Reason | None:
        """Return the rule that ``slot`` would break at ``position``, given what is placed so far; None if it fits."""
        if slot.isolated and position in self.isolated:
            return Reason.ISOLATED
        provider = self._providers[position]
        for name, amount in slot.part.resources:
            held = self._held.get((position, name))
            if held is not None and held + amount > provider.inventories[name].headroom:
                return Reason.MERGED
        if not self._nested_aware and self._is_second_of_tree(position):
            return Reason.SAME_TREE
        if slot.collective and not slot.later.can_bring(self._missing[-1] & ~slot.brings[position], self._meter):
            return Reason.COLLECTIVE_TRAITS
        if self._tree_required and not self._from_tree and not slot.tree_later and position >= self._shared_from:
            return Reason.OTHER_TREE
        for subtree, later in slot.subtrees:
            if not subtree.allows(position, later):
                return Reason.SUBTREE
        return None

    def _is_second_of_tree(self, position: int) -> bool:
        others = self._by_tree[self._providers[position].root_id]
        return bool(others) and others[-1] != position

    def assign(self, slot: Variable, position: int) -> None:
        """Place ``slot`` on the provider at ``position``."""
        for name, amount in slot.part.resources:
            key = (position, name)
            self._held[key] = self._held.get(key, 0) + amount
        self._from_tree += position < self._shared_from
        self._by_group[slot.part.group].append(position)
        for subtree, _ in slot.subtrees:
            subtree.put(position)
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].append(position)
        if slot.isolated:
            self.isolated.add(position)
        if slot.collective:
            self._missing.append(self._missing[-1] & ~slot.brings[position])

    def unassign(self, slot: Variable, position: int) -> None:
        """Undo the last ``put``, which had these arguments."""
        for name, amount in slot.part.resources:
            key = (position, name)
            self._held[key] -= amount
            if not self._held[key]:
                del self._held[key]
        self._from_tree -= position < self._shared_from
        self._by_group[slot.part.group].pop()
        for subtree, _ in slot.subtrees:
            subtree.take_back()
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].pop()
        if slot.isolated:
            self.isolated.discard(position)
        if slot.collective:
            self._missing.pop()

    def amounts(self) -> Amounts:
        """Return the sums as (position, class name, amount), sorted."""
        return tuple(sorted([(position, name, amount) for (position, name), amount in self._held.items()]))

    def __len__(self) -> int:
        return len(self._held)

    def placement(self) -> Assignment:
        """Return what is placed as a complete placement."""
        mappings: Mappings = ()
        if self.with_mappings:
            # A suffixed group has one provider; that of the unsuffixed group may serve several of its classes.
            mappings = tuple([tuple(one) if len(one) == 1 else tuple(set(one)) for one in self._by_group.values()])
        amounts = self.amounts()
        first, providers = self._shared_from, self._providers
        for some in self._by_group.values():
            for position in some:
                if position < first and SHARING_TRAIT not in providers[position].traits:
                    return Assignment(amounts, False, mappings)
        return Assignment(amounts, True, mappings)

    def state(self) -> tuple[object, ...]:
        """Return all that the rest of a walk depends on: from equal states it finds the same placements."""
        return frozenset(self._held.items()), frozenset(self.isolated), self._missing[-1], self._from_tree > 0


def walk(
    slots: Sequence[Variable], board: PartialAssignment, meter: StepCounter, rejections: Rejections | None = None
) -> Iterator[Assignment | None]:
    """Yield every complete placement of ``slots``, those that give equal candidates once, and None after each turn.

    Not recursive, so that the number of groups is not limited by the interpreter's stack. Without mappings the slots of
    one run get providers in ascending order of position, so that exchanged ones are not found again. If different runs
    name the same class, different choices can lead to the same amounts; then a state that was reached before is not
    continued. With mappings all choices differ; then a state that was reached before is not continued if it led to
    nothing.

    :param rejections: counts what is rejected and why, if given.
    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    visited = VisitedStates(meter) if not board.with_mappings and _runs_overlap(slots) else None
    dead_ends = _DeadEnds(slots, board, meter)
    chosen = [0] * len(slots)
    last = len(slots) - 1
    depth = index = 0
    turn = meter.fruitless + TIME_SLICE
    while depth >= 0:
        found = _next_fitting(slots[depth], index, board, meter, rejections)
        if found is None:
            dead_ends.leave(depth)
            depth -= 1
        else:
            slot = slots[depth]
            board.assign(slot, slot.options[found])
            chosen[depth] = found
            start = found if depth < last and slots[depth + 1].run == slot.run else 0
            if visited is None or visited.is_new(board, depth, start, depth == last):
                if depth == last:
                    meter.spend(len(board))
                    meter.fruitless, turn = 0, TIME_SLICE
                    dead_ends.found += 1
                    yield board.placement()
                elif _may_succeed(slots, depth + 1, board, meter) and not dead_ends.enter(depth + 1):
                    depth, index = depth + 1, start
                    continue
        if meter.fruitless > turn:
            turn += TIME_SLICE
            yield None
        if depth >= 0:
            index = chosen[depth]
            board.unassign(slots[depth], slots[depth].options[index])
            index += 1


def _may_succeed(slots: Sequence[Variable], depth: int, board: PartialAssignment, meter: StepCounter) -> bool:
    """Return whether the isolated slots from ``depth`` on can perhaps be placed. True in a walk that has just begun."""
    if meter.fruitless < _PATIENCE or not board.isolated:
        return True
    return not infeasibility.isolation_fails(slots[depth:], board.isolated, meter)


def _next_fitting(
    slot: Variable, index: int, board: PartialAssignment, meter: StepCounter, rejections: Rejections | None
) -> int | None:
    """Return the index of the first option from ``index`` on that fits; None if none does."""
    options = slot.options
    cost = max(len(slot.part.resources) + len(slot.subtrees), 1)
    while index < len(options):
        meter.spend(cost)
        reason = board.rejection(slot, options[index])
        if reason is None:
            return index
        if rejections is not None:
            rejections[slot.part.group, reason] += 1
        index += 1
    return None


def _runs_overlap(slots: Sequence[Variable]) -> bool:
    run_of: dict[str, int] = {}
    for slot in slots:
        for name, _ in slot.part.resources:
            if run_of.setdefault(name, slot.run) != slot.run:
                return True
    return False


class VisitedStates:
    """The placements that were reached: complete ones and, as many as may be remembered, partial ones."""

    def __init__(self, meter: StepCounter) -> None:
        self._meter = meter
        self._complete: set[Amounts] = set()
        self._partial: set[tuple[object, ...]] = set()

    def is_new(self, board: PartialAssignment, depth: int, start: int, complete: bool) -> bool:
        self._meter.spend(2 * len(board))
        if complete:
            return self._add(self._complete, board.amounts())
        key = (depth, start, board.state())
        if key in self._partial:
            return False
        if self._meter.remember(len(board)):
            self._partial.add(key)
        return True

    @staticmethod
    def _add(known: set[_Key], key: _Key) -> bool:
        before = len(known)
        known.add(key)
        return len(known) > before


class _DeadEnds:
    """The states of a walk with mappings from which no placement was found, as many as may be remembered.

    They are used only while the walk finds nothing: with mappings the same amounts are placed in many ways, and if they
    cannot be completed in one way, they cannot in any.
    """

    def __init__(self, slots: Sequence[Variable], board: PartialAssignment, meter: StepCounter) -> None:
        self._board = board
        self._meter = meter
        self._subtrees = tuple(dict.fromkeys(one for slot in slots for one, _ in slot.subtrees))
        self._known: set[tuple[object, ...]] = set()
        #: How many placements were found so far.
        self.found = 0
        self._found_before = [0] * len(slots)

    def enter(self, depth: int) -> bool:
        """Return whether the slots from ``depth`` on cannot be placed, as far as is known."""
        self._found_before[depth] = self.found
        return self._useful and self._key(depth) in self._known

    def leave(self, depth: int) -> None:
        """Remember that all options of the slot at ``depth`` were tried."""
        if self._useful and self._found_before[depth] == self.found and self._meter.remember(len(self._board)):
            self._known.add(self._key(depth))

    @property
    def _useful(self) -> bool:
        return self._board.with_mappings and self._meter.fruitless >= _PATIENCE

    def _key(self, depth: int) -> tuple[object, ...]:
        self._meter.spend(2 * len(self._board) + len(self._subtrees) + 1)
        return (depth, *self._board.state(), *[one.state() for one in self._subtrees])
