"""What a load knows of consumers and providers: the states that answers show, and the writes that were sent."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.support.history.client import Reply

#: Provider and resource class.
Inventory = tuple[str, str]
#: Provider uuid -> resource class -> amount.
Allocations = Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class Consumer:
    """A consumer as a GET shows it. Generation 0: it does not exist."""

    generation: int
    allocations: Allocations

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Consumer:
        """From the answer to GET /allocations/{consumer} at 1.28 or above."""
        allocations = {provider: dict(entry['resources']) for provider, entry in body['allocations'].items()}
        return cls(body.get('consumer_generation', 0), allocations)

    def claims(self, allocations: Allocations) -> Consumer:
        """The state after a write of ``allocations``; none delete the consumer."""
        return Consumer(self.generation + 1, allocations) if allocations else ABSENT


ABSENT = Consumer(0, {})


def amounts_of(states: Mapping[str, Consumer]) -> Counter[Inventory]:
    """The sum of the allocations of several consumers by inventory."""
    amounts: Counter[Inventory] = Counter()
    for state in states.values():
        for provider, resources in state.allocations.items():
            amounts.update({(provider, name): amount for name, amount in resources.items()})
    return amounts


def capacities_of(records: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """The capacity of each inventory record, not truncated (api-ref/capacity.md#the-capacity-rule)."""
    return {
        name: float((record['total'] - record.get('reserved', 0)) * record.get('allocation_ratio', 1.0))
        for name, record in records.items()
    }


@dataclasses.dataclass(frozen=True)
class ClaimWrite:
    """A write of consumers that was accepted, or rejected for want of capacity, or whose outcome is unknown."""

    reply: Reply
    #: The states of the consumers of one caller before it; None for a consumer that all callers write.
    before: Mapping[str, Consumer] | None
    #: The states that it makes; generations are those of the consumers of one caller.
    after: Mapping[str, Consumer]
    #: The providers whose generation it increments.
    incremented: frozenset[str]
    #: The generation that it named of a consumer that all callers write; None if it named none.
    generation: int | None = None
    is_reshape: bool = False

    @property
    def end(self) -> float:
        """When it was answered; infinity if the outcome is unknown."""
        return math.inf if self.reply.unknown else self.reply.end

    def increases(self, inventory: Inventory) -> bool:
        """Whether it surely allocates more of an inventory (provider and class) than it releases."""
        return self.before is not None and amounts_of(self.after)[inventory] > amounts_of(self.before)[inventory]


@dataclasses.dataclass(frozen=True)
class ProviderWrite:
    """A write of all inventories of a provider that named its generation, and was accepted or may have been.

    ``increments`` is by how much it increments the generation, apart from what allocations in the same request do.
    """

    reply: Reply
    provider: str
    generation: int
    capacities: Mapping[str, float]
    increments: int
