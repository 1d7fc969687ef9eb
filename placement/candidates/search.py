"""From sites to candidates: a pipeline of small lazy stages.

::

    sites -> a walk for each shape -> one candidate from each site before a second, equal ones once
          -> at most ``budget.candidates`` -> the first ``limit``, or a uniform sample, as far as they fit

Every stage pulls only what the next one asks for, so with a limit neither the sites nor the combinations behind it are
ever looked at.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterable, Iterator

from placement.candidates import parts, refutation, slots, walk
from placement.candidates.budget import Bound, Budget, Meter, OutOfSteps
from placement.candidates.providers import Anchor, Provider
from placement.candidates.reasons import Rejections
from placement.candidates.request import CandidateRequest
from placement.candidates.sites import Amounts, Candidate, Placement, Site
from placement.candidates.size import Size, at_most

#: How many candidates are taken before their size is looked at.
_BATCH = 1000


class Walk:
    """The placements of one shape, found one after the other as they are asked for, for all its sites.

    ``found`` holds those found so far. Sites take turns, so none asks for one before the last: only the latest
    two are kept, None stands for the others. ``ended`` says that there are no more.

    ``stream`` yields None when it has taken long enough for one turn.
    """

    __slots__ = ('_stream', 'ended', 'found')

    def __init__(self, stream: Iterator[Placement | None]) -> None:
        self._stream = stream
        self.found: list[Placement | None] = []
        self.ended = False

    def get(self, index: int) -> Placement | None:
        """Return the placement with this number, counted from 0.

        None when there are fewer, or, unless ``ended`` is true, when finding it takes more than this turn.
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
        """Say whether there is a placement with this number, as far as one turn tells."""
        return self.get(index) is not None or not self.ended


class Finder:
    """Finds the placements of one anchor for one request.

    A candidate at an anchor with a tree uses at least one provider of that tree. Those made of sharing providers alone
    are therefore found at the roots of these providers, or at a bridge, and not again at each root that they reach.

    ``rejections``, when given, counts what was turned down and why.
    """

    def __init__(self, request: CandidateRequest, budget: Budget, rejections: Rejections | None = None) -> None:
        self._compiled = parts.compile_request(request)
        self._matcher = slots.Matcher(self._compiled, rejections)
        self._budget = budget
        self._rejections = rejections

    def walks(self, sites: Iterable[Site]) -> Iterator[tuple[Site, Walk]]:
        """Pair each site with its walk, which sites of one shape have in common, while there are steps left."""
        known: dict[Hashable, Walk] = {}
        for site in sites:
            if self._budget.exhausted:
                return
            shape = site.shape
            found = known.get(shape)
            if found is None:
                found = Walk(self.placements(site.anchor()))
                if shape is not None:
                    known[shape] = found
            yield site, found

    def placements(self, anchor: Anchor) -> Iterator[Placement | None]:
        """Yield what can be placed at ``anchor``, in an order that depends on the arguments alone.

        None stands where a turn ends. When there are no steps left, there is no more.
        """
        meter = Meter(self._budget)
        try:
            yield from self._placements(anchor, meter)
        except OutOfSteps:
            return
        finally:
            meter.forget()

    def _placements(self, anchor: Anchor, meter: Meter) -> Iterator[Placement | None]:
        places = self._matcher.slots(anchor, meter)
        if not places:
            return
        reason = refutation.refute(places, anchor.tree + anchor.sharing, meter)
        if reason is None:
            yield from walk.walk(places, walk.Board(self._compiled, anchor, meter), meter, self._rejections)
        elif self._rejections is not None:
            self._rejections['', reason] += 1


def served_by(request: CandidateRequest, sharing: tuple[Provider, ...]) -> bool:
    """Say whether sharing providers alone could serve every part of the request."""
    return bool(slots.Matcher(parts.compile_request(request)).slots(Anchor((), sharing), Meter(Budget())))


def search(
    sites: Iterable[Site], request: CandidateRequest, budget: Budget, rejections: Rejections | None = None
) -> Iterator[Candidate]:
    """Yield the candidates of ``request`` lazily, each body once.

    :param sites: every tree that can matter with the sharing providers that reach it, and the bridges.
    :param budget: ends the search early, and is told why.
    :param rejections: counts what was turned down and why, when given.
    """
    candidates = breadth_first(Finder(request, budget, rejections).walks(sites))
    yield from itertools.islice(candidates, budget.candidates)
    if next(candidates, None) is not None:
        budget.met.add(Bound.CANDIDATES)


def breadth_first(walks: Iterable[tuple[Site, Walk]]) -> Iterator[Candidate]:
    """Yield the first candidate of each site, then the second of each, and so on; equal ones once.

    In each round, sites that take long come after those that do not. A walk is asked for one more once its candidate is
    out, so that those without more are forgotten at once. Only candidates of sharing
    providers alone can be equal, so only they are remembered.
    """
    seen: set[Amounts] = set()
    index = 0
    while walks:
        going_on: list[tuple[Site, Walk]] = []
        while walks:
            late = []
            for one in walks:
                site, shared = one
                found = shared.found
                # Most have been found for another site before: spare them the call.
                placement = found[index] if len(found) > index else shared.get(index)
                if placement is None:
                    if not shared.ended:
                        late.append(one)
                    continue
                candidate = Candidate(site, placement)
                if not placement.sharing_only or _is_new(candidate, seen):
                    yield candidate
                if len(found) > index + 1 or (not shared.ended and shared.goes_on(index + 1)):
                    going_on.append(one)
            walks = late
        walks = going_on
        index += 1


def _is_new(candidate: Candidate, seen: set[Amounts]) -> bool:
    before = len(seen)
    seen.add(candidate.amounts)
    return len(seen) > before


def chosen(
    candidates: Iterator[Candidate], request: CandidateRequest, budget: Budget, rng: random.Random | None = None
) -> list[Candidate]:
    """Return as many candidates as ``request`` wants: the first, or with ``rng`` a uniform sample in random order.

    They hold no more than ``budget.size``, except that the first may. An answer that is as long as was wanted has met
    no bound, unless it is a sample.
    """
    if rng is not None:
        return _sample(candidates, request, budget, rng)
    kept = _first(candidates, request, budget)
    if len(kept) == request.limit:
        budget.met.clear()
    return kept


def _first(candidates: Iterator[Candidate], request: CandidateRequest, budget: Budget) -> list[Candidate]:
    kept: list[Candidate] = []
    wanted = itertools.islice(candidates, request.limit)
    room = budget.size
    while room >= 0:
        batch = list(itertools.islice(wanted, _BATCH))
        if not batch:
            return kept
        kept += batch
        room -= at_most(batch, request)
    # It might be too large. Look closer.
    return _filled(itertools.chain(kept, wanted), Size(request), request, budget)


def _filled(candidates: Iterator[Candidate], size: Size, request: CandidateRequest, budget: Budget) -> list[Candidate]:
    """Return the first candidates that are wanted and fit."""
    kept: list[Candidate] = []
    for candidate in itertools.islice(candidates, request.limit):
        size.add(candidate)
        if size.total > budget.size and kept:
            size.remove(candidate)
            budget.met.add(Bound.ANSWER_SIZE)
            break
        kept.append(candidate)
    return kept


def _sample(
    candidates: Iterator[Candidate], request: CandidateRequest, budget: Budget, rng: random.Random
) -> list[Candidate]:
    """Fill a reservoir: it reads the whole stream and holds no more candidates at a time than it returns."""
    size = Size(request)
    kept = _filled(candidates, size, request, budget)
    for count, candidate in enumerate(candidates, start=len(kept) + 1):
        place = rng.randrange(count)
        if place < len(kept):
            _exchange(kept, place, candidate, size, budget)
    rng.shuffle(kept)
    return kept


def _exchange(kept: list[Candidate], place: int, candidate: Candidate, size: Size, budget: Budget) -> None:
    """Put ``candidate`` in the place of another, unless the rest leaves no room for it."""
    former = kept[place]
    size.remove(former)
    size.add(candidate)
    if size.total <= budget.size:
        kept[place] = candidate
        return
    budget.met.add(Bound.ANSWER_SIZE)
    size.remove(candidate)
    size.add(former)
