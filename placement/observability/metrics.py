"""What the service counts. The class here counts nothing: it is what an application has while metrics are off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from placement import exception

# Why a claim was refused, as the value of a label. Order matters: the first class that fits names the reason.
REFUSALS: tuple[tuple[type[exception.PlacementError], str], ...] = (
    (exception.AllocationCapacityExceeded, 'capacity'),
    (exception.AllocationConstraintsViolated, 'units'),
    (exception.InvalidAllocationInventory, 'no_inventory'),
    (exception.AllocationProviderNotFound, 'no_provider'),
    (exception.ResourceClassNotFound, 'no_resource_class'),
    (exception.ConsumerGenerationConflict, 'consumer_generation'),
    (exception.ConcurrentUpdate, 'concurrent_update'),
)


#: The kinds of conflict that begin a transaction again, as far as they are known beforehand.
RETRIES = ('DBDeadlock', 'DBReferenceError', 'TryAgain')

_NOTHING = contextlib.nullcontext()


class Metrics:
    """The events worth counting, one method each. ``PrometheusMetrics`` keeps the counts."""

    def expect(self, operations: Iterable[tuple[str, str]], bounds: Iterable[str]) -> None:
        """Let counts begin at 0 that would else begin with the first event.

        :param operations: declared path and method of each.
        :param bounds: those of ``search_bounded``.
        """

    def request_begun(self) -> None:
        """This thread has a request to answer."""

    def request_answered(self, route: str, method: str, microversion: str, status: int, seconds: float) -> None:
        """One request was answered. ``route`` is the declared path, never the path that was asked for."""

    def threads(self, count: int) -> None:
        """This process answers at most ``count`` requests at once."""

    def requests_waiting(self, count: int) -> None:
        """So many requests wait for a thread of this process."""

    def watch(self, pool: str, engine: sa.Engine, limit: int) -> None:
        """Let the connections of ``engine``, at most ``limit`` at once, and the time of its statements be seen."""

    def connecting(self, pool: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """In the block a connection of ``pool``, which is watched, is waited for."""
        return _NOTHING

    def spending(self, part: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """The time of the block is spent on ``part``, one of ``spending.PARTS``."""
        return _NOTHING

    def claim_accepted(self) -> None:
        """One request for allocations was granted."""

    def claim_refused(self, reason: str) -> None:
        """One request for allocations was refused. ``reason`` is a word of ``REFUSALS``."""

    def retried(self, reason: str) -> None:
        """One transaction was begun again. ``reason`` is the kind of conflict, such as ``deadlock``."""

    def candidates(self, count: int, seconds: float) -> None:
        """One search for allocation candidates returned ``count`` of them and took ``seconds``."""

    def search_bounded(self, bound: str) -> None:
        """One search for allocation candidates was cut short. ``bound`` is the value of a ``Bound``."""

    def mirror_checked(self) -> None:
        """This process asked the database whether its mirror is up to date."""

    def mirrored(self, providers: int, changes: int, seconds: float, rebuilt: bool) -> None:
        """The mirror of this process was brought forward by ``changes`` providers, or built, in ``seconds``.

        ``providers`` is how many it holds now.
        """

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Count the claim made in the block: accepted when it ends, refused when it raises a reason to refuse."""
        try:
            yield
        except exception.PlacementError as error:
            reason = why_refused(error)
            if reason is not None:
                self.claim_refused(reason)
            raise
        self.claim_accepted()


def why_refused(error: exception.PlacementError) -> str | None:
    """The word for why a claim was refused, None when ``error`` says nothing about the claim."""
    return next((reason for kind, reason in REFUSALS if isinstance(error, kind)), None)
