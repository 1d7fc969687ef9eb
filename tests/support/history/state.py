"""What a load knows of consumers and providers: the states that answers show, and the writes that were sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

#: Provider uuid -> resource class -> amount.
Allocations = Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class Consumer:
    """A consumer as a GET shows it. Generation 0: it does not exist. ``type`` is None if it has none."""

    generation: int
    allocations: Allocations
    type: str | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Consumer:
        """From the answer to GET /allocations/{consumer} at 1.28 or above."""
        allocations = {provider: dict(entry['resources']) for provider, entry in body['allocations'].items()}
        shown = body.get('consumer_type', 'unknown')
        return cls(body.get('consumer_generation', 0), allocations, None if shown == 'unknown' else shown)

    def claims(self, allocations: Allocations, type_: str | None) -> Consumer:
        """The state after a write of ``allocations``; none delete the consumer. Without a type it keeps its own."""
        return Consumer(self.generation + 1, allocations, type_ or self.type) if allocations else ABSENT


ABSENT = Consumer(0, {})


@dataclasses.dataclass(frozen=True)
class LostClaim:
    """A write of consumers of one caller whose outcome is unknown: their states before it, and those it makes.

    ``incremented`` are the providers whose generation it increments.
    """

    before: Mapping[str, Consumer]
    after: Mapping[str, Consumer]
    incremented: frozenset[str]


@dataclasses.dataclass(frozen=True)
class ClaimWrite:
    """A write of the allocations of consumers, and when it was sent and answered; infinity if the outcome is unknown.

    ``before`` is None if others write the consumers. ``detail`` is that of the error if the write was rejected.
    """

    start: float
    end: float
    before: Mapping[str, Allocations] | None
    after: Mapping[str, Allocations]
    detail: str
    is_reshape: bool

    def increases(self, inventory: tuple[str, str]) -> bool:
        """Whether it surely allocates more of an inventory (provider and class) than it releases."""
        return self.before is not None and _sum(self.after, inventory) > _sum(self.before, inventory)


def _sum(claims: Mapping[str, Allocations], inventory: tuple[str, str]) -> int:
    provider, resource_class = inventory
    return sum(allocations.get(provider, {}).get(resource_class, 0) for allocations in claims.values())


@dataclasses.dataclass(frozen=True)
class SharedWrite:
    """A write of a consumer that all callers write; a deletion if ``allocations`` is empty.

    ``generation`` is the one that the write named; None if it named none. ``accepted`` is False if the outcome is
    unknown.
    """

    consumer: str
    generation: int | None
    allocations: Allocations
    accepted: bool


@dataclasses.dataclass(frozen=True)
class ProviderWrite:
    """A change of a provider that named its generation. ``capacities`` is given if it replaced the inventories.

    ``increments`` is by how much it increments the generation, apart from what allocations in the same request do.
    ``accepted`` is False if the outcome is unknown.
    """

    provider: str
    generation: int
    capacities: Mapping[str, float] | None
    increments: int
    accepted: bool
    #: When it was sent and answered.
    start: float = 0.0
    end: float = 0.0


@dataclasses.dataclass(frozen=True)
class Provider:
    """A provider as GETs of itself, its inventories, usages and allocations show it."""

    generation: int
    capacities: Mapping[str, float]
    usages: Mapping[str, int]
    #: Consumer uuid -> resource class -> amount.
    allocations: Allocations
    parent: str | None
    root: str
