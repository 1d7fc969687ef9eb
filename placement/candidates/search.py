"""Finds the candidates of a request at the search units: a pipeline of generators.

::

    search units -> the assignments of each equivalence class
                 -> the first candidate of each unit, then the second ones, ...; equal ones once
                 -> at most ``limits.max_candidates`` -> ``selection.select``

Each stage asks the one before it only for what it needs. So when the limit of the request is reached, further search
units and combinations are not looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator

from placement.candidates import backtracking, infeasibility, variables
from placement.candidates.limits import Limit, SearchLimits, StepCounter, StepLimitReached
from placement.candidates.requirements import CompiledRequest, Rejections
from placement.candidates.search_units import Amounts, Assignment, Candidate, Mappings, SearchUnit


def search(
    search_units: Iterable[SearchUnit],
    compiled: CompiledRequest,
    limits: SearchLimits,
    rejections: Rejections | None = None,
) -> Iterator[Candidate]:
    """Yield the candidates of a request, each once.

    :param search_units: all trees that could have a candidate, with the sharing providers that reach them, and the
        shared-only ones.
    :param limits: end the search early; ``limits.reached`` then has the reason.
    :param rejections: counts what is rejected and why, if given.
    """
    candidates = breadth_first(AssignmentFinder(compiled, limits, rejections).streams(search_units))
    yield from itertools.islice(candidates, limits.max_candidates)
    if next(candidates, None) is not None:
        limits.reached.add(Limit.CANDIDATES)


class AssignmentStream:
    """The assignments of one equivalence class of search units, computed when first needed.

    ``found`` has those found so far. ``breadth_first`` asks for the same number at each search unit before it asks for
    the next one, so only the last two are kept; None stands for the others. ``ended`` is true when there are no more.

    :param stream: yields the assignments, and None at the end of each time slice (``backtracking.TIME_SLICE``).
    """

    __slots__ = ('_stream', 'ended', 'found')

    def __init__(self, stream: Iterator[Assignment | None]) -> None:
        self._stream = stream
        self.found: list[Assignment | None] = []
        self.ended = False

    def get(self, index: int) -> Assignment | None:
        """Return the assignment with this number, counted from 0.

        None means that there are fewer, if ``ended`` is true, or else that the time slice ended before it was found.
        """
        found = self.found
        while len(found) <= index:
            try:
                following = next(self._stream)
            except StopIteration:
                self.ended = True
                return None
            if following is None:
                return None
            found.append(following)
            if len(found) > 2:
                found[-3] = None
        return found[index]


class AssignmentFinder:
    """Finds the assignments of one request at one search unit after the other.

    A candidate at a search unit with a tree uses at least one provider of that tree. So a candidate of sharing
    providers alone is found at the root of one of them, or at a shared-only search unit, and not again at each root
    that they reach.

    :param rejections: counts what is rejected and why, if given.
    """

    def __init__(self, compiled: CompiledRequest, limits: SearchLimits, rejections: Rejections | None = None) -> None:
        self._compiled = compiled
        self._builder = variables.VariableBuilder(compiled, rejections)
        self._limits = limits
        self._rejections = rejections

    def streams(self, search_units: Iterable[SearchUnit]) -> Iterator[tuple[SearchUnit, AssignmentStream]]:
        """Yield each search unit with the assignments of its equivalence class, until the request's steps are used."""
        known: dict[Hashable, AssignmentStream] = {}
        for unit in search_units:
            if self._limits.steps_exhausted:
                return
            key = unit.equivalence_key
            found = known.get(key)
            if found is None:
                found = AssignmentStream(self.assignments(unit))
                if key is not None:
                    known[key] = found
            yield unit, found

    def assignments(self, search_unit: SearchUnit) -> Iterator[Assignment | None]:
        """Yield the assignments at ``search_unit``, and None after each time slice.

        The order depends on the arguments alone. Ends early when the steps of the tree or of the request are used up.
        """
        counter = StepCounter(self._limits)
        try:
            yield from self._assignments(search_unit, counter)
        except StepLimitReached:
            return
        finally:
            counter.release()

    def _assignments(self, search_unit: SearchUnit, counter: StepCounter) -> Iterator[Assignment | None]:
        unassigned = self._builder.variables(search_unit, counter)
        if not unassigned:
            return
        providers = search_unit.tree + search_unit.sharing
        conflict = infeasibility.find_conflict(unassigned, providers, counter)
        conflict = conflict or infeasibility.find_subtree_conflict(unassigned, providers, counter)
        if conflict is None:
            partial = backtracking.PartialAssignment(self._compiled, search_unit, counter)
            yield from backtracking.backtrack(unassigned, partial, counter, self._rejections)
        elif self._rejections is not None:
            self._rejections['', conflict] += 1


def breadth_first(streams: Iterable[tuple[SearchUnit, AssignmentStream]]) -> Iterator[Candidate]:
    """Yield the first candidate of each search unit, then the second of each, and so on; equal ones once.

    A search unit whose time slice ends without an assignment is asked again after the others of the round. After each
    candidate its stream computes the next one, so that a search unit without a next one is dropped at once. Only
    candidates that use nothing but sharing providers can be found at several search units, so only these are
    remembered.
    """
    seen: set[tuple[Amounts, Mappings]] = set()
    index = 0
    while streams:
        remaining: list[tuple[SearchUnit, AssignmentStream]] = []
        while streams:
            late = []
            for one in streams:
                unit, stream = one
                found = stream.found
                # Saves a call in the most frequent case, in which another search unit has asked for it before.
                assignment = found[index] if len(found) > index else stream.get(index)
                if assignment is None:
                    if not stream.ended:
                        late.append(one)
                    continue
                candidate = Candidate(unit, assignment)
                if not assignment.sharing_only or _is_new(candidate, seen):
                    yield candidate
                if len(found) > index + 1 or (
                    not stream.ended and (stream.get(index + 1) is not None or not stream.ended)
                ):
                    remaining.append(one)
            streams = late
        streams = remaining
        index += 1


def _is_new(candidate: Candidate, seen: set[tuple[Amounts, Mappings]]) -> bool:
    before = len(seen)
    seen.add((candidate.amounts, candidate.mappings))
    return len(seen) > before
