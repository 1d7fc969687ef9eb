"""Summarises a history: the number of requests, the answers, and the violations."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from tests.support.history import check, database
from tests.support.history.record import History, Outcome


@dataclasses.dataclass(frozen=True)
class Report:
    """Counts of requests by outcome; ``unsent`` found no address that took a connection. Times are seconds."""

    accepted: int
    rejected: int
    unknown: int
    unsent: int
    statuses: Counter[str]
    seconds: float
    slowest: float
    retries: int | None
    violations: list[str]

    @property
    def sent(self) -> int:
        """The number of requests that were sent."""
        return self.accepted + self.rejected + self.unknown

    @property
    def server_errors(self) -> int:
        """The number of 5xx answers other than 503, which reports an outage of the database."""
        return sum(count for status, count in self.statuses.items() if status.startswith('5') and status != '503')

    def text(self) -> str:
        """The report as text: a few lines, the violations last."""
        statuses = ', '.join(f'{status}: {count}' for status, count in sorted(self.statuses.items()))
        retries = 'not counted' if self.retries is None else str(self.retries)
        lines = [
            f'requests sent {self.sent} in {self.seconds:.0f} s ({statuses})',
            f'accepted {self.accepted}, rejected {self.rejected}, unknown {self.unknown}, not sent {self.unsent}',
            f'slowest answer {self.slowest:.2f} s, transaction retries {retries}',
            f'violations {len(self.violations)}',
        ]
        return '\n'.join([*lines, *(f'  {sentence}' for sentence in self.violations)])


def of(
    history: History,
    *,
    unsent: int = 0,
    retries: int | None = None,
    strict_reads: bool = True,
    databases: Sequence[str] = (),
) -> Report:
    """Check a history, and the tables at each of ``databases`` (SQLAlchemy URLs)."""
    outcomes = Counter(event.outcome for event in history.events)
    violations = check.violations(history, strict_reads=strict_reads)
    for url in databases:
        violations.extend(database.violations(url))
    return Report(
        accepted=outcomes[Outcome.ACCEPTED],
        rejected=outcomes[Outcome.REJECTED],
        unknown=outcomes[Outcome.UNKNOWN],
        unsent=unsent,
        statuses=Counter('lost' if event.status is None else str(event.status) for event in history.events),
        seconds=history.after.time - history.before.time,
        slowest=max((event.end - event.start for event in history.events), default=0.0),
        retries=retries,
        violations=violations,
    )
