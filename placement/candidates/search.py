"""From search_units to candidates: a pipeline of generators.

::

    search units -> the assignments of each equivalence class
                 -> the first candidate of each unit, then the second ones, ...; equal ones once
                 -> at most ``limits.candidates`` -> the first ``limit``, or a uniform sample, within ``limits.size``

Each stage asks the one before it only for what it needs. So when ``limit`` is reached, further search_units and
combinations are not looked at.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterable, Iterator

from placement.candidates import backtracking, infeasibility, requirements, variables
from placement.candidates.limits import Limit, SearchLimits, StepCounter, StepLimitReached
from placement.candidates.providers import Anchor, Provider
from placement.candidates.reasons import Rejections
from placement.candidates.request import CandidateRequest
from placement.candidates.search_units import Amounts, Assignment, Candidate, Mappings, SearchUnit
from placement.candidates.size import Size, at_most

#: How many candidates are taken before their size is checked.
_BATCH = 1000


class AssignmentStream:
    """The assignments of one equivalence class of search units, computed when first needed.

    ``found`` has those found so far. ``breadth_first`` asks for the same number at each search_unit before it asks for
    the next one, so only the last two are kept; None stands for the others. ``ended`` is true when there are no more.

    :param stream: yields the assignments, and None at the end of each turn (``walk.TURN``).
    """

    __slots__ = ('_stream', 'ended', 'found')

    def __init__(self, stream: Iterator[Assignment | None]) -> None:
        self._stream = stream
        self.found: list[Assignment | None] = []
        self.ended = False

    def get(self, index: int) -> Assignment | None:
        """Return the assignment with this number, counted from 0.

        None means that there are fewer, if ``ended`` is true, or else that the turn ended before it was found.
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

    def goes_on(self, index: int) -> bool:
        """Return whether there is, or may be, a assignment with this number, after one turn of looking for it."""
        return self.get(index) is not None or not self.ended


class AssignmentFinder:
    """Finds the assignments of one request at one anchor after the other.

    A candidate at an anchor with a tree uses at least one provider of that tree. So a candidate of sharing providers
    alone is found at the root of one of them, or at a bridge, and not again at each root that they reach.

    :param rejections: counts what is rejected and why, if given.
    """

    def __init__(self, request: CandidateRequest, limits: SearchLimits, rejections: Rejections | None = None) -> None:
        self._compiled = requirements.compile_request(request)
        self._matcher = variables.VariableBuilder(self._compiled, rejections)
        self._limits = limits
        self._rejections = rejections

    def walks(self, search_units: Iterable[SearchUnit]) -> Iterator[tuple[SearchUnit, AssignmentStream]]:
        """Yield each search_unit with the walk of its equivalence_key, until the steps of the request are used up."""
        known: dict[Hashable, AssignmentStream] = {}
        for search_unit in search_units:
            if self._limits.steps_exhausted:
                return
            equivalence_key = search_unit.equivalence_key
            found = known.get(equivalence_key)
            if found is None:
                found = AssignmentStream(self.assignments(search_unit.anchor()))
                if equivalence_key is not None:
                    known[equivalence_key] = found
            yield search_unit, found

    def assignments(self, anchor: Anchor) -> Iterator[Assignment | None]:
        """Yield the assignments at ``anchor``, and None after each turn.

        The order depends on the arguments alone. Ends early when the steps of the tree or of the request are used up.
        """
        counter = StepCounter(self._limits)
        try:
            yield from self._placements(anchor, counter)
        except StepLimitReached:
            return
        finally:
            counter.release()

    def _placements(self, anchor: Anchor, counter: StepCounter) -> Iterator[Assignment | None]:
        places = self._matcher.variables(anchor, counter)
        if not places:
            return
        providers = anchor.tree + anchor.sharing
        reason = infeasibility.refute(places, providers, counter) or infeasibility.refute_subtrees(
            places, providers, counter
        )
        if reason is None:
            yield from backtracking.backtrack(
                places, backtracking.PartialAssignment(self._compiled, anchor, counter), counter, self._rejections
            )
        elif self._rejections is not None:
            self._rejections['', reason] += 1


def can_serve(request: CandidateRequest, sharing: tuple[Provider, ...]) -> bool:
    """Return whether for each part of the request one of the ``sharing`` providers could take it."""
    return bool(
        variables.VariableBuilder(requirements.compile_request(request)).variables(
            Anchor((), sharing), StepCounter(SearchLimits())
        )
    )


def search(
    search_units: Iterable[SearchUnit],
    request: CandidateRequest,
    limits: SearchLimits,
    rejections: Rejections | None = None,
) -> Iterator[Candidate]:
    """Yield the candidates of ``request``, each once.

    :param search_units: all trees that could have a candidate, with the sharing providers that reach them, and the
        shared_only_anchors.
    :param limits: ends the search early; its ``met`` then has the reason.
    :param rejections: counts what is rejected and why, if given.
    """
    candidates = breadth_first(AssignmentFinder(request, limits, rejections).walks(search_units))
    yield from itertools.islice(candidates, limits.candidates)
    if next(candidates, None) is not None:
        limits.reached.add(Limit.CANDIDATES)


def breadth_first(walks: Iterable[tuple[SearchUnit, AssignmentStream]]) -> Iterator[Candidate]:
    """Yield the first candidate of each search_unit, then the second of each, and so on; equal ones once.

    A search_unit whose walk ends its turn without a assignment is asked again after the other search_units of the
    round. After each candidate its walk looks for the next one, so that a search_unit without a next one is dropped at
    once. Only candidates that use nothing but sharing providers can be found at several search_units, so only these are
    remembered.
    """
    seen: set[tuple[Amounts, Mappings]] = set()
    index = 0
    while walks:
        going_on: list[tuple[SearchUnit, AssignmentStream]] = []
        while walks:
            late = []
            for one in walks:
                search_unit, shared = one
                found = shared.found
                # Saves a call in the most frequent case, in which another search_unit has asked for it before.
                assignment = found[index] if len(found) > index else shared.get(index)
                if assignment is None:
                    if not shared.ended:
                        late.append(one)
                    continue
                candidate = Candidate(search_unit, assignment)
                if not assignment.sharing_only or _is_new(candidate, seen):
                    yield candidate
                if len(found) > index + 1 or (not shared.ended and shared.goes_on(index + 1)):
                    going_on.append(one)
            walks = late
        walks = going_on
        index += 1


def _is_new(candidate: Candidate, seen: set[tuple[Amounts, Mappings]]) -> bool:
    before = len(seen)
    seen.add((candidate.amounts, candidate.mappings))
    return len(seen) > before


def chosen(
    candidates: Iterator[Candidate], request: CandidateRequest, limits: SearchLimits, rng: random.Random | None = None
) -> list[Candidate]:
    """Return as many of ``candidates`` as ``request`` wants: the first, or a uniform sample in random order.

    Their size is at most ``limits.size``, unless there is only one. If there are as many as the request wants,
    ``limits.reached`` is emptied, except for a sample, which then may not be uniform.

    :param rng: for a sample; None for the first ones.
    """
    if rng is not None:
        return _sample(candidates, request, limits, rng)
    kept = _first(candidates, request, limits)
    if len(kept) == request.limit:
        limits.reached.clear()
    return kept


def _first(candidates: Iterator[Candidate], request: CandidateRequest, limits: SearchLimits) -> list[Candidate]:
    kept: list[Candidate] = []
    wanted = itertools.islice(candidates, request.limit)
    room = limits.size
    while room >= 0:
        batch = list(itertools.islice(wanted, _BATCH))
        if not batch:
            return kept
        kept += batch
        room -= at_most(batch, request)
    # The upper bounds of ``at_most`` add up to too much, so the exact size is needed.
    return _filled(itertools.chain(kept, wanted), Size(request), request, limits)


def _filled(
    candidates: Iterator[Candidate], size: Size, request: CandidateRequest, limits: SearchLimits
) -> list[Candidate]:
    """Return the first candidates, up to the limit of the request and the size of the limits."""
    kept: list[Candidate] = []
    for candidate in itertools.islice(candidates, request.limit):
        size.add(candidate)
        if size.total > limits.size and kept:
            size.remove(candidate)
            limits.reached.add(Limit.ANSWER_SIZE)
            break
        kept.append(candidate)
    return kept


def _sample(
    candidates: Iterator[Candidate], request: CandidateRequest, limits: SearchLimits, rng: random.Random
) -> list[Candidate]:
    """Sample with a reservoir: this reads all candidates, but keeps no more at a time than it returns."""
    size = Size(request)
    kept = _filled(candidates, size, request, limits)
    for count, candidate in enumerate(candidates, start=len(kept) + 1):
        place = rng.randrange(count)
        if place < len(kept):
            _exchange(kept, place, candidate, size, limits)
    rng.shuffle(kept)
    return kept


def _exchange(kept: list[Candidate], place: int, candidate: Candidate, size: Size, limits: SearchLimits) -> None:
    """Replace the candidate at ``place``, unless the answer would be too large."""
    former = kept[place]
    size.remove(former)
    size.add(candidate)
    if size.total <= limits.size:
        kept[place] = candidate
        return
    limits.reached.add(Limit.ANSWER_SIZE)
    size.remove(candidate)
    size.add(former)
