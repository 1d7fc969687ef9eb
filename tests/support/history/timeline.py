"""Turns ordered writes into time windows: what was held and which capacity was in force, surely or possibly."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.support.history import chains
from tests.support.history.record import (
    Allocations,
    ClaimWrite,
    Event,
    Outcome,
    ProviderState,
    ProviderWrite,
    Snapshot,
    provider_writes,
)

#: A provider's uuid and a resource class.
Inventory = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Version:
    """One set of allocations of one consumer: written by event ``writer``, ended by the write of the next version.

    It was written between ``earliest`` and ``latest``, so it is surely held from ``latest`` until the ``earliest``
    of the next one.
    """

    consumer: str
    writer: int
    generation: int
    allocations: Allocations
    earliest: float
    latest: float


@dataclasses.dataclass(frozen=True)
class AllocatedAmount:
    """An amount of one inventory held by one consumer through one version."""

    consumer: str
    amount: int
    possible_from: float
    certain_from: float
    certain_to: float
    possible_to: float
    #: The write took more of the inventory than it released, so it had to fit.
    is_increase: bool


def versions(consumer: str, order: Sequence[int], events: Mapping[int, Event], end: float) -> list[Version]:
    """The versions of a consumer, oldest first, beginning with the absent one; ``end`` is when the history ends."""
    starts = [events[number].start for number in order]
    ends = [min(events[number].latest, end) for number in order]
    chain = [Version(consumer, -1, 0, {}, -math.inf, -math.inf)]
    for index, number in enumerate(order):
        action = events[number].action
        allocated = action.claims[consumer].allocations if isinstance(action, ClaimWrite) else {}
        generation = chain[-1].generation + 1 if allocated else 0
        chain.append(Version(consumer, number, generation, allocated, max(starts[: index + 1]), min(ends[index:])))
    return chain


@dataclasses.dataclass(frozen=True)
class Loose:
    """What a consumer held, where its answers allow several orders of its writes.

    Each writer's set is surely held from its answer until the first of its possible replacers began, and may have
    replaced any of several sets.
    """

    consumer: str
    explanation: chains.Explanation
    events: Mapping[int, Event]

    def allocations(self, number: int) -> Allocations:
        """The set that event ``number`` wrote; empty if it is no event."""
        action = self.events[number].action if number in self.events else None
        return action.claims[self.consumer].allocations if isinstance(action, ClaimWrite) else {}

    def gains(self) -> Iterator[tuple[int, Inventory, int]]:
        """Event, inventory, and the least that the event can have added there."""
        for number, before in self.explanation.replaced.items():
            new = Counter(dict(amounts(self.allocations(number))))
            old = [Counter(dict(amounts(self.allocations(previous)))) for previous in before]
            for inventory in {*new, *itertools.chain.from_iterable(old)}:
                yield number, inventory, new[inventory] - max(previous[inventory] for previous in old)

    def allocated(self, increases: Mapping[int, frozenset[Inventory]]) -> Iterator[tuple[Inventory, AllocatedAmount]]:
        """What the consumer held by each write, surely and possibly."""
        for number, replacers in self.explanation.replacers.items():
            event = self.events[number]
            ends = [self.events[replacer] for replacer in replacers if replacer in self.events]
            surely_to = min((end.start for end in ends), default=math.inf)
            possibly_to = math.inf if chains.AT_THE_END in replacers else max(end.latest for end in ends)
            for inventory, amount in amounts(self.allocations(number)):
                grown = inventory in increases.get(number, frozenset())
                yield (
                    inventory,
                    AllocatedAmount(self.consumer, amount, event.start, event.latest, surely_to, possibly_to, grown),
                )


def holdings(
    ordered: Mapping[str, Sequence[Version]],
    loose: Iterable[Loose],
    increases: Mapping[int, frozenset[Inventory]],
) -> dict[Inventory, list[AllocatedAmount]]:
    """All amounts by inventory. ``increases`` has for each event the inventories whose usage it raised."""
    amounts_held: dict[Inventory, list[AllocatedAmount]] = defaultdict(list)
    for consumer, chain in ordered.items():
        for index, version in enumerate(chain):
            following = chain[index + 1] if index + 1 < len(chain) else None
            for inventory, amount in amounts(version.allocations):
                amounts_held[inventory].append(
                    AllocatedAmount(
                        consumer,
                        amount,
                        version.earliest,
                        version.latest,
                        following.earliest if following else math.inf,
                        following.latest if following else math.inf,
                        inventory in increases.get(version.writer, frozenset()),
                    )
                )
    for writes in loose:
        for inventory, allocated in writes.allocated(increases):
            amounts_held[inventory].append(allocated)
    return dict(amounts_held)


def amounts(allocations: Allocations) -> Iterator[tuple[Inventory, int]]:
    """Each (provider, class) with its amount."""
    for provider, resources in allocations.items():
        for resource_class, amount in resources.items():
            yield (provider, resource_class), amount


def increases(ordered: Mapping[str, Sequence[Version]], loose: Iterable[Loose]) -> dict[int, frozenset[Inventory]]:
    """For each event: the inventories of which it surely took more than it released, over all its consumers."""
    deltas: dict[int, dict[Inventory, int]] = defaultdict(lambda: defaultdict(int))
    for chain in ordered.values():
        for before, version in itertools.pairwise(chain):
            for inventory, amount in amounts(version.allocations):
                deltas[version.writer][inventory] += amount
            for inventory, amount in amounts(before.allocations):
                deltas[version.writer][inventory] -= amount
    for writes in loose:
        for number, inventory, gain in writes.gains():
            deltas[number][inventory] += gain
    return {
        number: frozenset(inventory for inventory, delta in changed.items() if delta > 0)
        for number, changed in deltas.items()
    }


@dataclasses.dataclass(frozen=True)
class _InForce:
    capacity: float
    possible_from: float
    possible_to: float


class Capacities:
    """Which capacities each inventory can have had, and when."""

    def __init__(self, before: Snapshot, events: Iterable[Event]) -> None:
        self._versions: dict[Inventory, list[_InForce]] = defaultdict(list)
        writes: dict[str, list[tuple[Event, ProviderWrite]]] = defaultdict(list)
        for event, write in provider_writes(events):
            if write.capacities is not None and event.outcome is not Outcome.REJECTED:
                writes[write.provider].append((event, write))
        for provider, state in before.providers.items():
            self._add(provider, state, writes[provider])

    def _add(self, provider: str, first: ProviderState, writes: Sequence[tuple[Event, ProviderWrite]]) -> None:
        """The generations that the writes named give their order; a write of unknown outcome ends no capacity."""
        replaced = [(write.generation, event.end) for event, write in writes if event.outcome is Outcome.ACCEPTED]
        self._record(provider, first.capacities, -math.inf, min((end for _, end in replaced), default=math.inf))
        for event, write in writes:
            later = [end for generation, end in replaced if generation > write.generation]
            self._record(provider, write.capacities or {}, event.start, min(later, default=math.inf))

    def _record(self, provider: str, capacities: Mapping[str, float], start: float, end: float) -> None:
        for resource_class, capacity in capacities.items():
            self._versions[provider, resource_class].append(_InForce(capacity, start, end))

    def largest(self, inventory: Inventory, start: float, end: float) -> float:
        """The largest capacity that can have been in force at some moment from ``start`` to ``end``; 0 if none."""
        return max(self._possible(inventory, start, end), default=0.0)

    def smallest(self, inventory: Inventory, start: float, end: float) -> float:
        """The smallest capacity that can have been in force at some moment from ``start`` to ``end``; 0 if none."""
        return min(self._possible(inventory, start, end), default=0.0)

    def _possible(self, inventory: Inventory, start: float, end: float) -> Iterator[float]:
        for version in self._versions[inventory]:
            if version.possible_from <= end and version.possible_to >= start:
                yield version.capacity
