"""Judges each claim of a load by what consumers held while it ran: none was too much, and none was wrongly rejected.

A write takes effect at an unknown moment between its start and its end, one of unknown outcome later or never. So a
consumer *surely* holds an amount from the end of the write until the start of the next one, and *possibly* from the
start until the end of the next one.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.support.history.load import INVENTORIES, Load
from tests.support.history.state import ClaimWrite, Inventory, amounts_of, capacities_of


@dataclasses.dataclass(frozen=True)
class Amount:
    """An amount of an inventory, and when the consumer held it. ``is_increase``: the request took more than before."""

    consumer: str
    amount: int
    is_increase: bool
    possibly_from: float
    surely_from: float
    surely_until: float
    possibly_until: float


#: The capacities that the inventories of a provider have had, each with the times between which it was in force.
Periods = Sequence[tuple[float, float, Mapping[str, float]]]


def _periods(load: Load, provider: str) -> Periods:
    """Those of the accepted writes, and those of unknown outcome, by their generations."""
    writes = [write for write in load.provider_writes if write.provider == provider]
    periods: list[tuple[float, int, Mapping[str, float]]] = [(-math.inf, -1, capacities_of(INVENTORIES))]
    periods += [(write.reply.start, write.generation, write.capacities) for write in writes]
    replaced = [(write.generation, write.reply.end) for write in writes if write.reply.accepted]
    return [
        (start, min((end for later, end in replaced if later > generation), default=math.inf), capacities)
        for start, generation, capacities in periods
    ]


def _limits(periods: Periods, start: float, end: float, resource_class: str) -> list[float]:
    """The capacities of a class that can have been in force between two times."""
    return [capacities.get(resource_class, 0) for first, last, capacities in periods if first <= end and last >= start]


def problems(load: Load) -> Iterator[str]:
    """Claims that exceeded a capacity, and those that were rejected although they fit, as sentences."""
    held = _amounts_held(load)
    periods = {provider: _periods(load, provider) for provider in load.providers}
    for inventory, amounts in held.items():
        yield from _oversold(inventory, amounts, periods[inventory[0]])
    # A node of a cluster may not have applied a release that another one has answered.
    for claim in load.claims if load.strict_reads and len(load.urls) == 1 else ():
        # A reshape is judged by its own inventories.
        if is_rejected(claim) and not claim.is_reshape:
            requested = amounts_of(claim.after)
            if all(
                _fits(claim, inventory, amount, held.get(inventory, ()), periods[inventory[0]])
                for inventory, amount in requested.items()
            ):
                yield f'{list(claim.after)}: {dict(requested)} were rejected, although they fit'


def is_rejected(claim: ClaimWrite) -> bool:
    """Whether it was rejected, which only those for want of capacity are that a load notes."""
    return not (claim.reply.accepted or claim.reply.unknown)


def _amounts_held(load: Load) -> dict[Inventory, list[Amount]]:
    claims: dict[str, list[ClaimWrite]] = defaultdict(list)
    for claim in load.claims:
        if not is_rejected(claim):
            for consumer in claim.after:
                claims[consumer].append(claim)
    held: dict[Inventory, list[Amount]] = defaultdict(list)
    for consumer, writes in claims.items():
        for write in writes:
            # What may have followed it, and what surely did.
            starts = (other.reply.start for other in writes if other is not write and other.end > write.reply.start)
            ends = (other.end for other in writes if other.reply.start >= write.end)
            times = (write.reply.start, write.end, min(starts, default=math.inf), min(ends, default=math.inf))
            for inventory, amount in amounts_of({consumer: write.after[consumer]}).items():
                held[inventory].append(Amount(consumer, amount, write.increases(inventory), *times))
    return held


def _oversold(inventory: Inventory, amounts: Sequence[Amount], periods: Periods) -> Iterator[str]:
    """The first moment at which more was surely held than fitted when the last of it was allocated."""
    held: list[Amount] = []
    for taken in sorted(amounts, key=lambda amount: amount.surely_from):
        if taken.surely_until <= taken.surely_from:
            continue
        held = [*(amount for amount in held if amount.surely_until > taken.surely_from), taken]
        start = max(amount.possibly_from for amount in held)
        if not all(amount.is_increase for amount in held if amount.surely_from >= start):
            # A write may keep what is above a capacity that was reduced.
            start = -math.inf
        total = sum(amount.amount for amount in held)
        limit = max(_limits(periods, start, taken.surely_from, inventory[1]))
        if total > limit:
            consumers = ', '.join(sorted(amount.consumer for amount in held))
            yield f'provider {inventory[0]}: {total} {inventory[1]} held at once, capacity {limit:g}, by {consumers}'
            return


def _fits(claim: ClaimWrite, inventory: Inventory, requested: int, amounts: Sequence[Amount], periods: Periods) -> bool:
    """Whether a request would have fitted even if others held all that they possibly did."""
    by_consumer: dict[str, int] = defaultdict(int)
    for held in amounts:
        is_during = held.possibly_from <= claim.end and held.possibly_until >= claim.reply.start
        if is_during and held.consumer not in claim.after:
            by_consumer[held.consumer] = max(by_consumer[held.consumer], held.amount)
    return sum(by_consumer.values()) + requested <= min(_limits(periods, claim.reply.start, claim.end, inventory[1]))
