"""Finds the candidates of a request at the search units: a pipeline of generators.

::

    search units -> the assignments of each equivalence class
                 -> candidate sets without duplicates: the first candidate of each tree, then the second of each, ...
                 -> at most ``budget.max_candidates`` -> ``selection.select``

Each stage pulls from the previous one only what it needs. So when the limit of the request is reached, the remaining
search units and combinations are not evaluated. Search units and candidate sets may represent many trees, so the
pipeline does not handle each candidate.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator

from placement.search.budget import Limit, Rejections, SearchBudget, StepCounter, StepLimitReached
from placement.search.request import CompiledRequest
from placement.search.search_units import Amounts, Assignment, CandidateSet, Mappings, SearchUnit
from placement.search.solver import backtracking, infeasibility
from placement.search.solver.variables import build_variables


def find_candidate_sets(
    search_units: Iterable[SearchUnit], compiled: CompiledRequest, budget: SearchBudget
) -> Iterator[CandidateSet]:
    """Yield the candidates of a request, each once, in candidate sets.

    :param search_units: all search units that could have a candidate, including the shared-only ones.
    :param budget: may end the search early; then ``budget.reached`` has the reason.
    """
    remaining = budget.max_candidates
    for candidate_set in round_robin(with_streams(search_units, compiled, budget)):
        if remaining < len(candidate_set):
            if remaining:
                yield candidate_set[:remaining]
            budget.reached.add(Limit.CANDIDATES)
            return
        remaining -= len(candidate_set)
        yield candidate_set


class AssignmentStream:
    """The assignments of one equivalence class of search units, found when they are needed.

    ``assignments`` has, by index, the assignments of the current round of ``round_robin`` and of the next one.
    ``ended`` is true if there are no more.

    :param search: yields the assignments, and None at the end of each time slice (``backtracking.TIME_SLICE``).
    """

    __slots__ = ('_search', 'assignments', 'ended')

    def __init__(self, search: Generator[Assignment | None, None, None]) -> None:
        self._search = search
        self.assignments: dict[int, Assignment] = {}
        self.ended = False

    def find(self, index: int) -> bool:
        """Return whether the assignment at ``index`` is found. If it is not, search for one time slice first."""
        if index in self.assignments:
            return True
        try:
            # Units ask for the assignments in order, so the next one has this index.
            assignment = next(self._search)
        except StopIteration:
            self.ended = True
            return False
        if assignment is None:
            return False
        self.assignments.pop(index - 2, None)
        self.assignments[index] = assignment
        return True

    def has_any(self) -> bool:
        """Return whether there is an assignment: search until one is found, and never for another one."""
        while not self.ended:
            if self.find(0):
                self._search.close()
                return True
        return False


def with_streams(
    search_units: Iterable[SearchUnit], compiled: CompiledRequest, budget: SearchBudget
) -> Iterator[tuple[SearchUnit, AssignmentStream]]:
    """Yield each search unit with the assignments of its equivalence class, until the request has no steps left."""
    streams: dict[Hashable, AssignmentStream] = {}
    for unit in search_units:
        if budget.steps_exhausted:
            return
        key = unit.equivalence_key
        stream = streams.get(key)
        if stream is None:
            stream = AssignmentStream(find_assignments(unit, compiled, budget))
            if key is not None:
                streams[key] = stream
        yield unit, stream


def find_assignments(
    search_unit: SearchUnit, compiled: CompiledRequest, budget: SearchBudget, rejections: Rejections | None = None
) -> Generator[Assignment | None, None, None]:
    """Yield the assignments at the first tree of ``search_unit``, and None after each time slice.

    The order depends only on the arguments. Stop early if the steps of the tree or of the request are used up.

    A candidate at a search unit with a tree uses at least one provider of this tree. So a candidate that uses only
    sharing providers is found in the tree of one of them, or at a shared-only search unit, but not again in each tree
    that they reach.

    :param rejections: if given, counts the rejections by reason.
    """
    counter = StepCounter(budget, rejections)
    providers = search_unit.tree + search_unit.sharing
    try:
        unassigned = build_variables(search_unit, compiled, counter)
        if not unassigned:
            return
        conflict = infeasibility.find_conflict(unassigned, providers, counter)
        if conflict is None:
            partial = backtracking.PartialAssignment(compiled, search_unit, unassigned, counter)
            yield from backtracking.backtrack(unassigned, partial, counter)
        else:
            counter.reject(conflict)
    except StepLimitReached:
        return
    finally:
        counter.release()


def round_robin(streams: Iterable[tuple[SearchUnit, AssignmentStream]]) -> Iterator[CandidateSet]:
    """Yield the first candidate of each tree, then the second of each, and so on, without duplicates.

    A search unit whose time slice did not suffice gets another one after all other units of the round. Several search
    units can find the same candidate only if it uses just sharing providers, so only such candidates are remembered.
    """
    seen: set[tuple[Amounts, Mappings]] = set()
    index = 0
    next_round: list[tuple[SearchUnit, AssignmentStream]] = []
    while streams:
        late: list[tuple[SearchUnit, AssignmentStream]] = []
        for unit, stream in streams:
            if not stream.find(index):
                if not stream.ended:
                    late.append((unit, stream))
                continue
            candidate_set = CandidateSet(unit, stream.assignments[index])
            if not candidate_set.assignment.sharing_only:
                yield candidate_set
            else:
                for candidate in candidate_set:
                    identity = (candidate.amounts, candidate.mappings)
                    if identity not in seen:
                        seen.add(identity)
                        yield candidate
            # Look for the next assignment now, because a search that has ended releases its memory.
            stream.find(index + 1)
            if not stream.ended:
                next_round.append((unit, stream))
        # The round continues with the late units. If there are none, the next round begins.
        streams = late
        if not late:
            streams, next_round, index = next_round, [], index + 1
