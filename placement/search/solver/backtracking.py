"""Assigns providers to the variables of one search unit: a depth-first search with backtracking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from placement.cache.providers import SHARING_TRAIT
from placement.search.budget import Reason, StepCounter
from placement.search.request import CompiledRequest
from placement.search.search_units import Amounts, Assignment, Mappings, SearchUnit
from placement.search.solver.matching import Isolation
from placement.search.solver.variables import Variable

#: After this number of steps without an assignment, a search pauses, and the other equivalence classes continue.
TIME_SLICE = 1000

#: After this number of steps without an assignment, a search with mappings remembers dead ends.
_STEPS_BEFORE_DEAD_ENDS = 500


class PartialAssignment:
    """The variables assigned so far at one search unit, and the resulting sums."""

    def __init__(
        self, compiled: CompiledRequest, search_unit: SearchUnit, variables: Sequence[Variable], counter: StepCounter
    ) -> None:
        self._counter = counter
        self._providers = search_unit.tree + search_unit.sharing
        self._tree_size = search_unit.tree_size
        self._tree_required = bool(search_unit.tree)
        self._nested_aware = compiled.request.nested_aware
        self._from_tree = 0
        self._amounts: dict[tuple[int, str], int] = {}
        #: The positions of the isolated variables, and the matching that shows whether all can get different ones.
        self._isolated: set[int] = set()
        isolated = [variable for variable in variables if variable.isolated]
        self._isolation = Isolation(isolated, counter.count_steps) if isolated else None
        self._by_tree: defaultdict[int, list[int]] = defaultdict(list)
        self._missing = [(1 << len(compiled.collective.sets)) - 1]
        self.with_mappings = compiled.request.with_mappings
        #: The positions of the variables of each group, by suffix.
        self._by_group: dict[str, list[int]] = {group.suffix: [] for group in compiled.request.groups}

    def rejection(self, variable: Variable, position: int) -> Reason | None:
        """Return the rule that assigning ``variable`` to ``position`` would violate; None if it violates none."""
        if variable.isolated and position in self._isolated:
            return Reason.ISOLATED
        provider = self._providers[position]
        for name, amount in variable.requirement.resources:
            assigned = self._amounts.get((position, name))
            if assigned is not None and assigned + amount > provider.inventories[name].max_increase:
                return Reason.COMBINED_AMOUNT
        if not self._nested_aware:
            of_tree = self._by_tree[provider.root_id]
            if of_tree and of_tree[-1] != position:
                return Reason.SAME_TREE
        return self._lookahead_rejection(variable, position)

    def _lookahead_rejection(self, variable: Variable, position: int) -> Reason | None:
        """Return the rule that the later variables could not satisfy if ``variable`` were assigned to ``position``."""
        if variable.collective and not variable.lookahead.can_provide(
            self._missing[-1] & ~variable.provided_traits[position], self._counter
        ):
            return Reason.COLLECTIVE_TRAITS
        if (
            self._tree_required
            and not self._from_tree
            and not variable.tree_in_lookahead
            and position >= self._tree_size
        ):
            return Reason.OTHER_TREE
        for subtree, later_domain in variable.subtrees:
            if not subtree.allows(position, later_domain):
                return Reason.SUBTREE
        if self._isolation and variable.isolated and not self._isolation.reserve(variable, position, self._isolated):
            return Reason.TOO_FEW_PROVIDERS
        return None

    def assign(self, variable: Variable, position: int) -> None:
        """Assign the provider at ``position`` to ``variable``."""
        for name, amount in variable.requirement.resources:
            key = (position, name)
            self._amounts[key] = self._amounts.get(key, 0) + amount
        self._from_tree += position < self._tree_size
        self._by_group[variable.requirement.suffix].append(position)
        for subtree, _ in variable.subtrees:
            subtree.assign(position)
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].append(position)
        if variable.isolated:
            self._isolated.add(position)
        if variable.collective:
            self._missing.append(self._missing[-1] & ~variable.provided_traits[position])

    def unassign(self, variable: Variable, position: int) -> None:
        """Undo the last ``assign``, which had these arguments."""
        for name, amount in variable.requirement.resources:
            key = (position, name)
            self._amounts[key] -= amount
            if not self._amounts[key]:
                del self._amounts[key]
        self._from_tree -= position < self._tree_size
        self._by_group[variable.requirement.suffix].pop()
        for subtree, _ in variable.subtrees:
            subtree.unassign()
        if not self._nested_aware:
            self._by_tree[self._providers[position].root_id].pop()
        if variable.isolated:
            self._isolated.discard(position)
        if variable.collective:
            self._missing.pop()

    def amounts(self) -> Amounts:
        """Return the sums as sorted triples of position, class name and amount."""
        return tuple(sorted([(position, name, amount) for (position, name), amount in self._amounts.items()]))

    def __len__(self) -> int:
        return len(self._amounts)

    def assignment(self) -> Assignment:
        """Return the current assignment, which is complete."""
        mappings: Mappings = ()
        if self.with_mappings:
            # A suffixed group has one provider; a provider of the unsuffixed group may serve several of its classes.
            groups = self._by_group.values()
            mappings = tuple([tuple(group) if len(group) == 1 else tuple(set(group)) for group in groups])
        amounts = self.amounts()
        tree_size, providers = self._tree_size, self._providers
        for positions in self._by_group.values():
            for position in positions:
                if position < tree_size and SHARING_TRAIT not in providers[position].traits:
                    return Assignment(amounts, False, mappings)
        return Assignment(amounts, True, mappings)

    def state(self) -> tuple[object, ...]:
        """Return all that the rest of the search depends on, except ``Subtree.state``.

        If these are also equal, equal states lead to the same assignments.
        """
        return frozenset(self._amounts.items()), frozenset(self._isolated), self._missing[-1], self._from_tree > 0


def backtrack(
    variables: Sequence[Variable],
    partial: PartialAssignment,
    counter: StepCounter,
) -> Iterator[Assignment | None]:
    """Yield a complete assignment for each distinct candidate, and None after each time slice.

    This is not recursive, so the interpreter's stack does not limit the number of groups.

    Without mappings, the variables of one symmetry class get providers in ascending order of position, so that the
    search does not find an assignment again with exchanged providers. Only if different symmetry classes name the same
    resource class can different choices still lead to the same amounts; then the search does not continue from a state
    that it has visited. With mappings all choices differ, so it only skips visited states that led to no assignment.

    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    # Recognizes partial assignments that lead to nothing new, unless each leads to something new.
    kind = DeadEnds if partial.with_mappings else VisitedStates if _classes_overlap(variables) else Memory
    memory = kind(variables, partial, counter)
    #: The index in the domain of each assigned variable: those before ``depth``.
    chosen = [0] * len(variables)
    last = len(variables) - 1
    depth = index = 0
    slice_end = counter.since_candidate + TIME_SLICE
    while True:
        variable = variables[depth]
        allowed = _next_allowed(variable, index, partial, counter)
        if allowed is None:
            # The domain is exhausted: go back to the variable before.
            memory.leave(depth)
            if depth == 0:
                return
            depth -= 1
        else:
            # Assign this variable, and continue with the next one.
            partial.assign(variable, variable.domain[allowed])
            chosen[depth] = allowed
            if depth < last:
                start = allowed if variables[depth + 1].symmetry_class == variable.symmetry_class else 0
                if memory.enter(depth + 1, start):
                    depth, index = depth + 1, start
                    continue
            elif memory.is_new():
                counter.count_steps(len(partial))
                counter.since_candidate, slice_end = 0, TIME_SLICE
                yield partial.assignment()
        if counter.since_candidate > slice_end:
            slice_end += TIME_SLICE
            yield None
        # Take back the last choice, and try the next position of its domain.
        partial.unassign(variables[depth], variables[depth].domain[chosen[depth]])
        index = chosen[depth] + 1


def _next_allowed(variable: Variable, index: int, partial: PartialAssignment, counter: StepCounter) -> int | None:
    """Return the index of the first position from ``index`` on that violates no rule; None if there is none."""
    domain = variable.domain
    cost = max(len(variable.requirement.resources) + len(variable.subtrees), 1)
    while index < len(domain):
        counter.count_steps(cost)
        reason = partial.rejection(variable, domain[index])
        if reason is None:
            return index
        counter.reject(reason)
        index += 1
    return None


def _classes_overlap(variables: Sequence[Variable]) -> bool:
    """Return whether variables of different symmetry classes name the same resource class."""
    class_of: dict[str, int] = {}
    for variable in variables:
        for name, _ in variable.requirement.resources:
            if class_of.setdefault(name, variable.symmetry_class) != variable.symmetry_class:
                return True
    return False


class Memory:
    """Remembers nothing, and finds everything new. It is for searches whose choices all lead to different amounts."""

    def __init__(self, variables: Sequence[Variable], partial: PartialAssignment, counter: StepCounter) -> None:
        self._partial = partial
        self._counter = counter
        self._subtrees = tuple(dict.fromkeys(condition for variable in variables for condition, _ in variable.subtrees))
        self._remembered: set[Hashable] = set()

    def enter(self, depth: int, start: int) -> bool:  # noqa: ARG002
        """Return whether assigning the variables from ``depth`` on may lead to something new.

        :param start: the first index in the domain of the variable at ``depth`` that will be tried.
        """
        return True

    def leave(self, depth: int) -> None:
        """Note that all assignments of the variables from ``depth`` on were tried."""

    def is_new(self) -> bool:
        """Return whether the current assignment, which is complete, was not found before."""
        return True

    def _state(self, depth: int, start: int) -> Hashable:
        """Return all that the rest of the search depends on."""
        self._counter.count_steps(2 * len(self._partial) + len(self._subtrees) + 1)
        return (depth, start, *self._partial.state(), *[condition.state() for condition in self._subtrees])

    def _remember(self, state: Hashable) -> None:
        if self._counter.reserve(len(self._partial)):
            self._remembered.add(state)


class VisitedStates(Memory):
    """Remembers the states from which the search has continued, and the assignments.

    Without mappings, nothing new follows from a state that was visited before.
    """

    def __init__(self, variables: Sequence[Variable], partial: PartialAssignment, counter: StepCounter) -> None:
        super().__init__(variables, partial, counter)
        self._complete: set[Amounts] = set()
        #: For each depth, the state at which it was entered.
        self._entered = [self._state(0, 0)] * len(variables)

    def enter(self, depth: int, start: int) -> bool:
        self._entered[depth] = state = self._state(depth, start)
        return state not in self._remembered

    def leave(self, depth: int) -> None:
        self._remember(self._entered[depth])

    def is_new(self) -> bool:
        self._counter.count_steps(2 * len(self._partial))
        amounts, count = self._partial.amounts(), len(self._complete)
        self._complete.add(amounts)
        return len(self._complete) > count


class DeadEnds(Memory):
    """Remembers the states that led to no assignment, once the search has found nothing for a while.

    With mappings there are many ways to assign the same amounts; if one of them cannot be completed, none can.
    """

    def __init__(self, variables: Sequence[Variable], partial: PartialAssignment, counter: StepCounter) -> None:
        super().__init__(variables, partial, counter)
        self._found = 0
        #: For each depth, the start and the state (None if not computed) at which it was entered, and ``_found``.
        self._entered: list[tuple[int, Hashable, int]] = [(0, None, 0)] * len(variables)

    def enter(self, depth: int, start: int) -> bool:
        state = self._state(depth, start) if self._is_long else None
        self._entered[depth] = start, state, self._found
        return state is None or state not in self._remembered

    def leave(self, depth: int) -> None:
        start, state, found_before = self._entered[depth]
        if found_before == self._found and self._is_long:
            self._remember(state or self._state(depth, start))

    def is_new(self) -> bool:
        self._found += 1
        return True

    @property
    def _is_long(self) -> bool:
        return self._counter.since_candidate >= _STEPS_BEFORE_DEAD_ENDS
