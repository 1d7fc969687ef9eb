"""Finds the candidates of a request at the search units: a pipeline of generators.

::

    search units -> the assignments of each equivalence class
                 -> families: the first candidate of each tree, then the second ones, ...; equal ones once
                 -> at most ``limits.max_candidates`` -> ``selection.select``

Each stage pulls from the one before it only what it needs. So when the limit of the request is reached, further search
units and combinations are not evaluated. The pipeline passes families and search units, which may have many trees, not
single candidates.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from placement.candidates import backtracking, infeasibility, variables
from placement.candidates.limits import Limit, SearchLimits, StepCounter, StepLimitReached
from placement.candidates.requirements import CompiledRequest, Rejections
from placement.candidates.search_units import Amounts, Assignment, Family, Mappings, SearchUnit


def search(
    search_units: Iterable[SearchUnit],
    compiled: CompiledRequest,
    limits: SearchLimits,
    rejections: Rejections | None = None,
) -> Iterator[Family]:
    """Yield the candidates of a request, each once, in families.

    :param search_units: all trees that could have a candidate, with the sharing providers that reach them, and the
        shared-only ones.
    :param limits: end the search early; ``limits.reached`` then has the reason.
    :param rejections: counts what is rejected and why, if given.
    """
    left = limits.max_candidates
    for family in breadth_first(AssignmentFinder(compiled, limits, rejections).streams(search_units)):
        if left < len(family):
            if left:
                yield family[:left]
            limits.reached.add(Limit.CANDIDATES)
            return
        left -= len(family)
        yield family


class AssignmentStream:
    """The assignments of one equivalence class of search units, computed when first needed.

    ``found`` has those found so far. ``breadth_first`` requests the same number at each search unit before it requests
    the next one, so only the last two are kept; the others are None. ``ended`` is true when there are no more.

    :param stream: yields the assignments, and None at the end of each time slice (``backtracking.TIME_SLICE``).
    """

    __slots__ = ('_stream', 'ended', 'found')

    def __init__(self, stream: Iterator[Assignment | None]) -> None:
        self._stream = stream
        self.found: list[Assignment | None] = []
        self.ended = False

    def get_within(self, index: int, max_slices: int) -> tuple[Assignment | None, int]:
        """Return the assignment with this number, counted from 0, and how many time slices that took, at least 1.

        None means that there are fewer, if ``ended`` is true, or else that it was not found in so many time slices.
        """
        found, slices = self.found, 1
        while len(found) <= index:
            try:
                following = next(self._stream)
            except StopIteration:
                self.ended = True
                return None, slices
            if following is not None:
                found.append(following)
                if len(found) > 2:
                    found[-3] = None
            elif slices == max_slices:
                return None, slices
            else:
                slices += 1
        return found[index], slices


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
        """Yield the assignments at the first tree of ``search_unit``, and None after each time slice.

        The order depends on the arguments alone. Ends early when the steps of the tree or of the request are used up.
        """
        counter = StepCounter(self._limits)
        providers = search_unit.tree + search_unit.sharing
        try:
            unassigned = self._builder.variables(search_unit, counter)
            if not unassigned:
                return
            conflict = infeasibility.find_conflict(unassigned, providers, counter)
            conflict = conflict or infeasibility.find_subtree_conflict(unassigned, providers, counter)
            if conflict is None:
                partial = backtracking.PartialAssignment(self._compiled, search_unit, counter)
                yield from backtracking.backtrack(unassigned, partial, counter, self._rejections)
            elif self._rejections is not None:
                self._rejections['', conflict] += 1
        except StepLimitReached:
            return
        finally:
            counter.release()


def breadth_first(streams: Iterable[tuple[SearchUnit, AssignmentStream]]) -> Iterator[Family]:
    """Yield the first candidate of each tree, then the second of each, and so on; equal ones once.

    Each tree gives the stream of its class one time slice to find a missing assignment. A tree at which the time slice
    ends without one is continued after the others of the round. After each round of a search unit, its trees likewise
    make the stream find the next assignment, so that a search unit without a next one is dropped immediately. Only
    candidates that use nothing but sharing providers can be found at several trees, so only these are remembered.
    """
    seen: set[tuple[Amounts, Mappings]] = set()
    index = 0
    while streams:
        remaining: list[tuple[SearchUnit, AssignmentStream]] = []
        while streams:
            late: list[tuple[SearchUnit, AssignmentStream]] = []
            for unit, stream in streams:
                assignment, slices = stream.get_within(index, unit.count)
                if assignment is None:
                    if not stream.ended:
                        late.append((unit, stream))
                    continue
                if slices > 1:
                    late.append((unit[: slices - 1], stream))
                ready = unit[slices - 1 :] if slices > 1 else unit
                family = Family(ready, assignment)
                if assignment.sharing_only:
                    yield from (one for one in family if _is_new(one, seen))
                else:
                    yield family
                following, _ = stream.get_within(index + 1, ready.count)
                if following is not None or not stream.ended:
                    remaining.append((ready, stream))
            streams = late
        streams = remaining
        index += 1


def _is_new(candidate: Family, seen: set[tuple[Amounts, Mappings]]) -> bool:
    before = len(seen)
    seen.add((candidate.amounts, candidate.mappings))
    return len(seen) > before
