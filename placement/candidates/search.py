"""From anchors to candidates: a pipeline of small lazy stages, one rule each.

::

    anchors -> candidates of each anchor -> one from each root before a second -> equal bodies once
            -> at most ``bound`` -> the first ``limit``, or a uniform sample

Every stage pulls only what the next one asks for, so with a limit neither the anchors nor the combinations behind it
are ever looked at.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from placement.candidates import slots, steps, walk
from placement.candidates.reasons import Rejections
from placement.candidates.request import CandidateRequest
from placement.candidates.rows import Anchor, Candidate, Provider

_Item = TypeVar('_Item')


class Finder:
    """Finds the candidates of one anchor for one request, each body once.

    A candidate at an anchor with a tree uses at least one provider of that tree. Those made of sharing providers alone
    are therefore found at the roots of these providers, or at a bridge, and not again at each root that they reach.

    ``rejections``, when given, counts what was turned down and why.
    """

    def __init__(self, request: CandidateRequest, rejections: Rejections | None = None) -> None:
        self._plan = steps.compile_request(request)
        self._matcher = slots.Matcher(self._plan, rejections)
        self._rejections = rejections

    def __call__(self, anchor: Anchor) -> Iterator[Candidate]:
        """Yield the candidates of ``anchor``, in an order that depends on the arguments alone."""
        places = self._matcher.slots(anchor)
        if not places:
            return
        reason = slots.hopeless(places)
        if reason is not None:
            if self._rejections is not None:
                self._rejections['', reason] += 1
            return
        board = walk.Board(self._plan, anchor.tree[0].id if anchor.tree else None)
        for amounts in walk.walk(places, board, self._rejections):
            yield Candidate(anchor, amounts)

    def served_by(self, sharing: tuple[Provider, ...]) -> bool:
        """Say whether sharing providers alone could serve every part of the request."""
        return bool(self._matcher.slots(Anchor((), sharing)))


def search(
    anchors: Iterable[Anchor],
    request: CandidateRequest,
    sharing_ids: frozenset[int] = frozenset(),
    rejections: Rejections | None = None,
) -> Iterator[Candidate]:
    """Yield the candidates of ``request`` lazily, each body once.

    :param anchors: every tree that can matter with the sharing providers that reach it, and the bridges.
    :param sharing_ids: the ids of all sharing providers; bodies of these alone can arise at several anchors.
    :param rejections: counts what was turned down and why, when given.
    """
    find: Callable[[Anchor], Iterator[Candidate]] = Finder(request, rejections)
    return collapsed(breadth_first(map(find, anchors)), sharing_ids)


def breadth_first(streams: Iterable[Iterator[_Item]]) -> Iterator[_Item]:
    """Yield the first item of each stream, then the second of each, and so on.

    A stream is pulled one item ahead once its item is out, so that exhausted ones are let go at once and only those
    with more to give are kept.
    """
    waiting: deque[tuple[_Item, Iterator[_Item]]] = deque()
    for stream in streams:
        for item in stream:
            yield item
            for following in stream:
                waiting.append((following, stream))
                break
            break
    while waiting:
        item, stream = waiting.popleft()
        yield item
        for following in stream:
            waiting.append((following, stream))
            break


def collapsed(candidates: Iterator[Candidate], sharing_ids: frozenset[int]) -> Iterator[Candidate]:
    """Drop repeated bodies. Only those of sharing providers alone can repeat, so only they are remembered."""
    return _first_of_each(candidates, sharing_ids) if sharing_ids else candidates


def _first_of_each(candidates: Iterator[Candidate], sharing_ids: frozenset[int]) -> Iterator[Candidate]:
    seen = set()
    for candidate in candidates:
        if all(provider in sharing_ids for provider, _, _ in candidate.amounts):
            if candidate.amounts in seen:
                continue
            seen.add(candidate.amounts)
        yield candidate


def chosen(candidates: Iterator[_Item], limit: int | None, rng: random.Random | None = None) -> list[_Item]:
    """Return the first ``limit`` items (None: all), or with ``rng`` a uniform sample of that size in random order.

    The sample is a reservoir: it reads the whole stream and holds ``limit`` items at a time.
    """
    kept = list(itertools.islice(candidates, limit))
    if rng is None:
        return kept
    for count, candidate in enumerate(candidates, start=len(kept) + 1):
        place = rng.randrange(count)
        if place < len(kept):
            kept[place] = candidate
    rng.shuffle(kept)
    return kept
