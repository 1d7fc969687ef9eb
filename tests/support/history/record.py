"""What a client requested, how it was answered, and when: the input of the history checker."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from tests.support.history import client

#: Marks a write that names no generation.
UNCHECKED: Final = 'unchecked'

#: Provider uuid -> resource class -> amount.
Allocations = Mapping[str, Mapping[str, int]]


class Outcome(enum.Enum):
    """What the client knows after the answer, or without one."""

    ACCEPTED = 'accepted'
    REJECTED = 'rejected'
    UNKNOWN = 'unknown'


@dataclasses.dataclass(frozen=True)
class Claim:
    """The new allocations of one consumer, the consumer generation that the write named, and the type of the consumer.

    Without ``type`` the write was below 1.38, so a consumer that exists keeps its type.
    """

    allocations: Allocations
    expected: int | str | None = UNCHECKED
    type: str | None = None


@dataclasses.dataclass(frozen=True)
class ClaimWrite:
    """PUT or POST allocations: consumer uuid -> its claim."""

    claims: Mapping[str, Claim]


@dataclasses.dataclass(frozen=True)
class Removal:
    """DELETE of one consumer's allocations."""

    consumer: str


@dataclasses.dataclass(frozen=True)
class ProviderWrite:
    """A change of a provider that names its generation. ``capacities`` is given when it replaces the inventory.

    ``moves`` is by how much it increments the generation, apart from what allocations in the same request do.
    """

    provider: str
    generation: int
    capacities: Mapping[str, float] | None = None
    moves: int = 1


@dataclasses.dataclass(frozen=True)
class Reshape(ClaimWrite):
    """POST /reshaper: claims, and the new inventories of some providers."""

    inventories: tuple[ProviderWrite, ...] = ()


@dataclasses.dataclass(frozen=True)
class Move:
    """A change of a provider's parent; None for no parent."""

    provider: str
    parent: str | None


@dataclasses.dataclass(frozen=True)
class ConsumerRead:
    """GET of one consumer's allocations."""

    consumer: str


@dataclasses.dataclass(frozen=True)
class ProviderRead:
    """GET of the allocations on one provider."""

    provider: str


_Action = TypeVar('_Action')

Action: TypeAlias = ClaimWrite | Removal | ProviderWrite | Move | ConsumerRead | ProviderRead


@dataclasses.dataclass(frozen=True)
class Event:
    """One request and its answer. ``status`` is None when the connection was lost after the request went out.

    ``start`` and ``end`` are seconds of one monotonic clock. ``body`` is the decoded JSON of the answer.
    """

    number: int
    caller: int
    action: Action
    start: float
    end: float
    status: int | None
    body: Any = None
    retry_after: str | None = None

    @property
    def outcome(self) -> Outcome:
        """A 5xx is unknown: the database may have committed before the error."""
        if self.status is None or self.status >= 500:
            return Outcome.UNKNOWN
        return Outcome.ACCEPTED if self.status < 300 else Outcome.REJECTED

    @property
    def latest(self) -> float:
        """The latest moment at which the request can have taken effect."""
        return math.inf if self.outcome is Outcome.UNKNOWN else self.end

    @property
    def code(self) -> str:
        """The error code of a rejection, else an empty string."""
        return str(self._error.get('code', ''))

    @property
    def detail(self) -> str:
        """The error detail of a rejection, else an empty string."""
        return str(self._error.get('detail', ''))

    @property
    def _error(self) -> Mapping[str, Any]:
        return client.Reply(self.status, self.body, self.start, self.end).error


@dataclasses.dataclass(frozen=True)
class ConsumerState:
    """A consumer as a GET shows it; generation 0 means that it does not exist. ``type`` is None if it has none."""

    generation: int
    allocations: Allocations
    type: str | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> ConsumerState:
        """From the answer to GET /allocations/{consumer} at 1.28 or above."""
        allocations = {provider: dict(entry['resources']) for provider, entry in body['allocations'].items()}
        shown = body.get('consumer_type', 'unknown')
        return cls(body.get('consumer_generation', 0), allocations, None if shown == 'unknown' else shown)


@dataclasses.dataclass(frozen=True)
class ProviderState:
    """A provider as GETs of itself, its inventories, usages and allocations show it."""

    generation: int
    capacities: Mapping[str, float]
    usages: Mapping[str, int]
    #: Consumer uuid -> resource class -> amount.
    allocations: Allocations
    parent: str | None = None
    #: None also for a root.
    root: str | None = None


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Everything that the checker reads from the service while no requests run."""

    time: float
    providers: Mapping[str, ProviderState]
    consumers: Mapping[str, ConsumerState]


@dataclasses.dataclass(frozen=True)
class History:
    """All events between two snapshots. There is a pause between the last event and the second snapshot."""

    before: Snapshot
    events: tuple[Event, ...]
    after: Snapshot


def provider_writes(events: Iterable[Event]) -> list[tuple[Event, ProviderWrite]]:
    """The changes of providers, those of reshapes included, each with its event."""
    return [
        (event, write)
        for event in events
        for write in (event.action.inventories if isinstance(event.action, Reshape) else (event.action,))
        if isinstance(write, ProviderWrite)
    ]


def of_type(events: Iterable[Event], kind: type[_Action]) -> list[tuple[Event, _Action]]:
    """The events whose action is of ``kind``, each with its action."""
    return [(event, event.action) for event in events if isinstance(event.action, kind)]
