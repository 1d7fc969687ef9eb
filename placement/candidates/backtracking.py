"""Places the variables of one anchor: a depth-first search that checks each choice against all choices before it."""

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

#: After so many steps without a assignment, a walk pauses and lets those of other shapes go on.
TIME_SLICE = 1000

#: After so many steps without a assignment, it checks at each choice whether the isolated variables can still be
#: placed.
_PATIENCE = 500


class PartialAssignment:
    """The variables that are placed so far at one anchor, and the sums that follow from them."""

    def __init__(self, compiled: CompiledRequest, anchor: Anchor, counter: StepCounter) -> None:
        self._counter = counter
        self._providers = anchor.tree + anchor.sharing
        self._shared_from = len(anchor.tree)
        self._tree_required = bool(anchor.tree)
        self._nested_aware = compiled.nested_aware
        self._from_tree = 0
        self._held: dict[tuple[int, str], int] = {}
        #: The positions of isolated variables.
        self.isolated: set[int] = set()
        self._by_tree: defaultdict[int, list[int]] = defaultdict(list)
        self._missing = [compiled.traits.all]
        self.with_mappings = compiled.with_mappings
        #: The positions of the variables of each group, by suffix.
        self._by_group: dict[str, list[int]] = {suffix: [] for suffix in compiled.groups}

    def rejection(self, variable: Variable, position: int) -> Reason | None:
        """Return the rule that assigning ``variable`` to ``position`` would break; None if there is none."""
        if variable.isolated and position in self.isolated:
            return Reason.ISOLATED
        provider = self._providers[position]
        for name, amount in variable.requirement.resources:
            held = self._held.get((position, name))
            if held is not None and held + amount > provider.inventories[name].headroom:
                return Reason.MERGED
        if not self._nested_aware and self._is_second_of_tree(position):
            return Reason.SAME_TREE
        if variable.collective and not variable.lookahead.can_provide(
            self._missing[-1] & ~variable.provided_traits[position], self._counter
        ):
            return Reason.COLLECTIVE_TRAITS
        if (
            self._tree_required
            and not self._from_tree
            and not variable.tree_in_lookahead
            and position >= self._shared_from
        ):
            return Reason.OTHER_TREE
        for subtree, later_domain in variable.subtrees:
            if not subtree.allows(position, later_domain):
                return Reason.SUBTREE
        return None

    def _is_second_of_tree(self, position: int) -> bool:
        others = self._by_tree[self._providers[position].root_id]
        return bool(others) and others[-1] != position

    def assign(self, variable: Variable, position: int) -> None:
        """Place ``variable`` on the provider at ``position``."""
        for name, amount in variable.requirement.resources:
            key = (position, name)
            self._held[key] = self._held.get(key, 0) + amount
        self._from_tree += position < self._shared_from
        self._by_group[variable.requirement.group].append(position)
        for subtree, _ in variable.subtrees:
            subtree.assign(position)
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].append(position)
        if variable.isolated:
            self.isolated.add(position)
        if variable.collective:
            self._missing.append(self._missing[-1] & ~variable.provided_traits[position])

    def unassign(self, variable: Variable, position: int) -> None:
        """Undo the last ``put``, which had these arguments."""
        for name, amount in variable.requirement.resources:
            key = (position, name)
            self._held[key] -= amount
            if not self._held[key]:
                del self._held[key]
        self._from_tree -= position < self._shared_from
        self._by_group[variable.requirement.group].pop()
        for subtree, _ in variable.subtrees:
            subtree.unassign()
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].pop()
        if variable.isolated:
            self.isolated.discard(position)
        if variable.collective:
            self._missing.pop()

    def amounts(self) -> Amounts:
        """Return the sums as (position, class name, amount), sorted."""
        return tuple(sorted([(position, name, amount) for (position, name), amount in self._held.items()]))

    def __len__(self) -> int:
        return len(self._held)

    def assignment(self) -> Assignment:
        """Return what is placed as a complete assignment."""
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
        """Return all that the rest of a walk depends on: from equal states it finds the same assignments."""
        return frozenset(self._held.items()), frozenset(self.isolated), self._missing[-1], self._from_tree > 0


def backtrack(
    variables: Sequence[Variable],
    partial: PartialAssignment,
    counter: StepCounter,
    rejections: Rejections | None = None,
) -> Iterator[Assignment | None]:
    """Yield every complete assignment, those that give equal candidates once, and None after each time slice.

    Not recursive, so that the number of groups is not limited by the interpreter's stack. Without mappings the
    variables of one run get providers in ascending order of position, so that exchanged ones are not found again. If
    different runs name the same class, different choices can lead to the same amounts; then a state that was reached
    before is not continued. With mappings all choices differ; then a state that was reached before is not continued if
    it led to nothing.

    :param rejections: counts what is rejected and why, if given.
    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    visited = VisitedStates(counter) if not partial.with_mappings and _classes_overlap(variables) else None
    dead_ends = _DeadEnds(variables, partial, counter)
    chosen = [0] * len(variables)
    last = len(variables) - 1
    depth = index = 0
    turn = counter.since_candidate + TIME_SLICE
    while depth >= 0:
        found = _next_fitting(variables[depth], index, partial, counter, rejections)
        if found is None:
            dead_ends.leave(depth)
            depth -= 1
        else:
            variable = variables[depth]
            partial.assign(variable, variable.domain[found])
            chosen[depth] = found
            start = found if depth < last and variables[depth + 1].symmetry_class == variable.symmetry_class else 0
            if visited is None or visited.is_new(partial, depth, start, depth == last):
                if depth == last:
                    counter.count(len(partial))
                    counter.since_candidate, turn = 0, TIME_SLICE
                    dead_ends.found += 1
                    yield partial.assignment()
                elif _may_succeed(variables, depth + 1, partial, counter) and not dead_ends.enter(depth + 1):
                    depth, index = depth + 1, start
                    continue
        if counter.since_candidate > turn:
            turn += TIME_SLICE
            yield None
        if depth >= 0:
            index = chosen[depth]
            partial.unassign(variables[depth], variables[depth].domain[index])
            index += 1


def _may_succeed(variables: Sequence[Variable], depth: int, partial: PartialAssignment, counter: StepCounter) -> bool:
    """Return whether the isolated variables from ``depth`` on may be assignable. True in a search that just began."""
    if counter.since_candidate < _PATIENCE or not partial.isolated:
        return True
    return not infeasibility.isolation_fails(variables[depth:], partial.isolated, counter)


def _next_fitting(
    variable: Variable, index: int, partial: PartialAssignment, counter: StepCounter, rejections: Rejections | None
) -> int | None:
    """Return the index of the first option from ``index`` on that fits; None if none does."""
    domain = variable.domain
    cost = max(len(variable.requirement.resources) + len(variable.subtrees), 1)
    while index < len(domain):
        counter.count(cost)
        reason = partial.rejection(variable, domain[index])
        if reason is None:
            return index
        if rejections is not None:
            rejections[variable.requirement.group, reason] += 1
        index += 1
    return None


def _classes_overlap(variables: Sequence[Variable]) -> bool:
    run_of: dict[str, int] = {}
    for variable in variables:
        for name, _ in variable.requirement.resources:
            if run_of.setdefault(name, variable.symmetry_class) != variable.symmetry_class:
                return True
    return False


class VisitedStates:
    """The assignments that were reached: complete ones and, as many as may be remembered, partial ones."""

    def __init__(self, counter: StepCounter) -> None:
        self._counter = counter
        self._complete: set[Amounts] = set()
        self._partial: set[tuple[object, ...]] = set()

    def is_new(self, partial: PartialAssignment, depth: int, start: int, complete: bool) -> bool:
        self._counter.count(2 * len(partial))
        if complete:
            return self._add(self._complete, partial.amounts())
        key = (depth, start, partial.state())
        if key in self._partial:
            return False
        if self._counter.reserve(len(partial)):
            self._partial.add(key)
        return True

    @staticmethod
    def _add(known: set[_Key], key: _Key) -> bool:
        before = len(known)
        known.add(key)
        return len(known) > before


class _DeadEnds:
    """The states of a walk with mappings from which no assignment was found, as many as may be remembered.

    They are used only while the walk finds nothing: with mappings the same amounts are placed in many ways, and if they
    cannot be completed in one way, they cannot in any.
    """

    def __init__(self, variables: Sequence[Variable], partial: PartialAssignment, counter: StepCounter) -> None:
        self._board = partial
        self._counter = counter
        self._subtrees = tuple(dict.fromkeys(one for variable in variables for one, _ in variable.subtrees))
        self._known: set[tuple[object, ...]] = set()
        #: How many assignments were found so far.
        self.found = 0
        self._found_before = [0] * len(variables)

    def enter(self, depth: int) -> bool:
        """Return whether the variables from ``depth`` on cannot be placed, as far as is known."""
        self._found_before[depth] = self.found
        return self._useful and self._key(depth) in self._known

    def leave(self, depth: int) -> None:
        """Remember that all domain of the variable at ``depth`` were tried."""
        if self._useful and self._found_before[depth] == self.found and self._counter.reserve(len(self._board)):
            self._known.add(self._key(depth))

    @property
    def _useful(self) -> bool:
        return self._board.with_mappings and self._counter.since_candidate >= _PATIENCE

    def _key(self, depth: int) -> tuple[object, ...]:
        self._counter.count(2 * len(self._board) + len(self._subtrees) + 1)
        return (depth, *self._board.state(), *[one.state() for one in self._subtrees])
