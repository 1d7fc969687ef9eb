"""Finds the orders that agree with every consumer's answers, with one outcome of each unknown write for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tests.support.history import chains
from tests.support.history.record import ClaimWrite, ConsumerState, Event, History, Outcome, of_type


@dataclasses.dataclass
class Explained:
    """For each consumer its possible orders, none when no order agrees with the answers, and the violations."""

    possible: dict[str, list[chains.Explanation]]
    violations: list[str]

    @property
    def undecided(self) -> frozenset[int]:
        """Events of unknown outcome that some possible order applies and another one does not."""
        undecided: set[int] = set()
        for possible in self.possible.values():
            guesses = [explanation.guessed for explanation in possible]
            if guesses:
                undecided |= frozenset.union(*guesses) - frozenset.intersection(*guesses)
        return frozenset(undecided)


def explain(history: History, *, strict_reads: bool) -> Explained:
    """Find the possible orders of each consumer's writes, and keep those in which the consumers of each POST agree."""
    explained = Explained({}, [])
    for consumer, final in history.after.consumers.items():
        steps = chains.steps_of(consumer, history.events, final, strict_reads=strict_reads)
        try:
            explained.possible[consumer] = chains.explanations(steps)
        except chains.UndecidedError:
            explained.violations.append(f'consumer {consumer}: too many possible orders to decide')
            continue
        if not explained.possible[consumer]:
            explained.violations.append(f'consumer {consumer}: {_unexplained(steps, final)}')
    unknown = [
        (event, write)
        for event, write in of_type(history.events, ClaimWrite)
        if event.outcome is Outcome.UNKNOWN and len(write.claims) > 1
    ]
    # A decided POST may decide another one that shares a consumer. Each round decides at least one, or is the last.
    for _ in unknown:
        for event, write in unknown:
            _settle(event, write, explained)
    explained.violations = list(dict.fromkeys(explained.violations))
    return explained


def _settle(event: Event, write: ClaimWrite, explained: Explained) -> None:
    """When the orders of one consumer decide what a POST did, drop the orders of other consumers that contradict it."""
    possible = explained.possible
    concerned = [
        consumer for consumer in write.claims if possible.get(consumer) and not _changes_nothing(write, consumer)
    ]
    for applied in (True, False):
        telling = [
            consumer
            for consumer in concerned
            if all((event.number in order.guessed) == applied for order in possible[consumer])
        ]
        for consumer in concerned if telling else ():
            agreeing = [order for order in possible[consumer] if (event.number in order.guessed) == applied]
            if agreeing:
                possible[consumer] = agreeing
            elif applied:
                explained.violations.append(
                    f'request {event.number}: a POST took effect for consumer {telling[0]} but not for {consumer}'
                )


def _changes_nothing(write: ClaimWrite, consumer: str) -> bool:
    """Whether the write clears a consumer that does not exist according to its generation, which changes nothing."""
    claim = write.claims[consumer]
    return claim.expected is None and not claim.allocations


def _unexplained(steps: Sequence[chains.Step], final: ConsumerState) -> str:
    texts = [_words(step) for step in steps if not step.changes_nothing]
    allocations: Mapping[str, object] = {provider: dict(resources) for provider, resources in final.allocations.items()}
    return (
        'no order of its accepted writes explains the answers and its end,'
        f' generation {final.generation} with {allocations}; writes: {", ".join(texts) or "none"}'
    )


def _words(step: chains.Step) -> str:
    named = f' naming generation {step.claim.expected}' if step.claim else ''
    return f'{step.kind.name.lower()} {step.number}{named}{"" if step.certain else " (outcome unknown)"}'
