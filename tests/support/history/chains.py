"""Finds an order of the writes to one consumer that agrees with every answer and the state at the end.

A consumer is a register with a generation and a type: a write that names generation *g* can only take effect while it
is *g*, and one that names no type leaves the type. An order is valid when each request takes effect between its start
and its end, accepted ones exactly once, rejected ones never, and those of unknown outcome once or never, at any time
after their start.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.support.history.record import (
    UNCHECKED,
    Allocations,
    Claim,
    ClaimWrite,
    ConsumerRead,
    ConsumerState,
    Event,
    Outcome,
    Removal,
)

#: Orders are searched exhaustively up to this many intermediate states.
SEARCH_LIMIT = 300_000

#: In place of the event that wrote a consumer's set: the consumer has no set, or its set is not replaced.
ABSENT = -1
AT_THE_END = -2


class UndecidedError(Exception):
    """There were too many possible orders to check all of them."""


class Kind(enum.Enum):
    """What a step does to the consumer."""

    WRITE = enum.auto()
    REMOVE = enum.auto()
    #: A DELETE that was answered with 404.
    MISS = enum.auto()
    #: A write that was rejected because of its generation.
    STALE = enum.auto()
    READ = enum.auto()


@dataclasses.dataclass(frozen=True)
class Step:
    """What one event means for one consumer. A step that is not ``certain`` may not have happened."""

    number: int
    start: float
    end: float
    kind: Kind
    certain: bool = True
    claim: Claim | None = None
    seen: ConsumerState | None = None
    #: Of two simultaneous DELETEs the slower one may answer 204 or 404 (api-ref/allocations.md).
    overlaps_removal: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether the step only tells the state, at the time when it happens."""
        return self.kind in (Kind.MISS, Kind.STALE, Kind.READ)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One valid order: event numbers of the steps that changed the consumer; ``guessed`` were of unknown outcome."""

    order: tuple[int, ...]
    guessed: frozenset[int]
    #: For each step that changed the consumer: whose sets it can have replaced, over all valid orders of these steps.
    replaced: Mapping[int, frozenset[int]] = dataclasses.field(default_factory=dict)
    #: For each step that wrote a set: by which steps that can have been replaced; ``AT_THE_END`` if by none.
    replacers: Mapping[int, frozenset[int]] = dataclasses.field(default_factory=dict)

    @property
    def is_the_only_one(self) -> bool:
        """Whether the answers allow no other order. They allow several for concurrent writes without generation."""
        return all(len(numbers) < 2 for numbers in (*self.replaced.values(), *self.replacers.values()))


#: Generation, the number of the event that wrote the current set, and the type.
_State = tuple[int, int, str | None]
_NOTHING: _State = (0, ABSENT, None)
#: Bit mask of the steps that are left, and the state.
_Node = tuple[int, _State]


class _Search:
    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = sorted(steps, key=lambda step: step.start)
        self._written: Mapping[int, Allocations] = {s.number: s.claim.allocations for s in steps if s.claim}
        self._certain = sum(1 << index for index, step in enumerate(self._steps) if step.certain)
        self._parents: dict[_Node, list[tuple[_Node, int]]] = {}

    def run(self) -> list[Explanation]:
        first: _Node = ((1 << len(self._steps)) - 1, _NOTHING)
        self._parents[first] = []
        stack, ends = [first], defaultdict(list)
        while stack:
            node = stack.pop()
            if not node[0] & self._certain:
                ends[node[0]].append(node)
                continue
            for index, state in self._successors(node):
                successor = (node[0] & ~(1 << index), state)
                if successor not in self._parents:
                    self._parents[successor] = []
                    stack.append(successor)
                self._parents[successor].append((node, index))
            if len(self._parents) > SEARCH_LIMIT:
                raise UndecidedError
        return [self._explanation(nodes) for nodes in ends.values()]

    def _successors(self, node: _Node) -> Iterator[tuple[int, _State]]:
        remaining, state = node
        possible = []
        for index in self._eligible(remaining):
            step = self._steps[index]
            after = self._apply(step, state)
            if after == state and step.changes_nothing:
                # It changes nothing, so it can be taken first.
                yield index, state
                return
            if after is not None and (after != state or step.certain):
                possible.append((index, after))
        yield from possible

    def _eligible(self, remaining: int) -> list[int]:
        """The steps that can be next: none that is left has to end before they start."""
        seen, first_end = [], math.inf
        while remaining:
            index = (remaining & -remaining).bit_length() - 1
            remaining &= remaining - 1
            step = self._steps[index]
            if step.start > first_end:
                break
            seen.append(index)
            if step.certain:
                first_end = min(first_end, step.end)
        return seen

    def _apply(self, step: Step, state: _State) -> _State | None:
        """The state after ``step``, or None when it cannot happen in ``state``."""
        generation, writer, type_ = state
        if step.kind is Kind.READ:
            assert step.seen is not None
            allocations = self._written[writer] if generation else {}
            return state if step.seen == ConsumerState(generation, allocations, type_) else None
        if step.kind is Kind.MISS:
            return None if generation else state
        if step.kind is Kind.REMOVE:
            return _NOTHING if generation or step.overlaps_removal else None
        assert step.claim is not None
        fits = step.claim.expected in (UNCHECKED, generation or None)
        if step.kind is Kind.STALE:
            return None if fits else state
        if not fits:
            return None
        return (generation + 1, step.number, step.claim.type or type_) if step.claim.allocations else _NOTHING

    def _explanation(self, ends: Sequence[_Node]) -> Explanation:
        """One order that leads to one of ``ends``, and what all of them have in common."""
        order, guessed = [], set()
        node = ends[0]
        while self._parents[node]:
            parent, index = self._parents[node][0]
            step = self._steps[index]
            if parent[1] != node[1]:
                order.append(step.number)
            if not step.certain:
                guessed.add(step.number)
            node = parent
        return Explanation(tuple(reversed(order)), frozenset(guessed), *self._replacements(ends))

    def _replacements(self, ends: Sequence[_Node]) -> tuple[dict[int, frozenset[int]], dict[int, frozenset[int]]]:
        replaced: defaultdict[int, set[int]] = defaultdict(set)
        replacers: defaultdict[int, set[int]] = defaultdict(set)
        for _mask, (_generation, writer, _type) in ends:
            replacers[writer].add(AT_THE_END)
        seen, stack = set(ends), list(ends)
        while stack:
            node = stack.pop()
            for parent, index in self._parents[node]:
                if parent[1] != node[1]:
                    number, before = self._steps[index].number, parent[1][1]
                    replaced[number].add(before)
                    replacers[before].add(number)
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        # Absence is no set, and can end several times.
        replacers.pop(ABSENT, None)
        return _frozen(replaced), _frozen(replacers)


def _frozen(sets: Mapping[int, set[int]]) -> dict[int, frozenset[int]]:
    return {number: frozenset(numbers) for number, numbers in sets.items()}


def explanations(steps: Sequence[Step]) -> list[Explanation]:
    """One valid order for each possible set of unknown outcomes; empty when no order agrees with the answers.

    Raises UndecidedError when there are too many orders to try.
    """
    return _Search(steps).run()


def steps_of(consumer: str, events: Sequence[Event], final: ConsumerState, *, strict_reads: bool) -> list[Step]:
    """What ``events`` mean for ``consumer``, with the state at the end as the last read.

    Reads take part when ``strict_reads``: each must then show the state of a moment between its start and end.
    """
    mine = [event for event in events if _concerns(event, consumer)]
    removals = [event for event in mine if isinstance(event.action, Removal)]
    steps = []
    for event in mine:
        if isinstance(event.action, ConsumerRead) and not strict_reads:
            continue
        step = _step(event, consumer)
        if step is not None:
            overlaps = any(_overlap(event, other) for other in removals if other is not event)
            steps.append(dataclasses.replace(step, overlaps_removal=overlaps))
    return [*steps, Step(-2, math.inf, math.inf, Kind.READ, seen=final)]


def _concerns(event: Event, consumer: str) -> bool:
    action = event.action
    if isinstance(action, ClaimWrite):
        return consumer in action.claims
    return isinstance(action, (Removal, ConsumerRead)) and action.consumer == consumer


def _overlap(first: Event, other: Event) -> bool:
    return first.start <= other.latest and other.start <= first.latest


def _step(event: Event, consumer: str) -> Step | None:
    """None for an event that tells nothing about the consumer: a failed read, a rejection for lack of capacity."""
    is_certain = event.outcome is not Outcome.UNKNOWN
    span = (event.number, event.start, event.latest)
    if isinstance(event.action, ConsumerRead):
        accepted = event.outcome is Outcome.ACCEPTED
        return Step(*span, Kind.READ, seen=ConsumerState.from_body(event.body)) if accepted else None
    if isinstance(event.action, Removal):
        if event.outcome is Outcome.REJECTED:
            return Step(*span, Kind.MISS) if event.status == 404 else None
        return Step(*span, Kind.REMOVE, certain=is_certain)
    assert isinstance(event.action, ClaimWrite)
    claim = event.action.claims[consumer]
    if event.outcome is Outcome.REJECTED:
        # With several consumers the answer does not tell which of them had another generation.
        stale = 'consumer generation conflict' in event.detail and len(event.action.claims) == 1
        return Step(*span, Kind.STALE, claim=claim) if stale else None
    return Step(*span, Kind.WRITE, certain=is_certain, claim=claim)
