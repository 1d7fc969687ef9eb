"""The events that the service counts. The class here counts nothing; an application has it while metrics are off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from placement import exception

# The reasons for which claims are refused, as values of a label. The first class that matches an exception counts.
REFUSALS: tuple[tuple[type[exception.PlacementError], str], ...] = (
    (exception.AllocationCapacityExceeded, 'capacity'),
    (exception.AllocationConstraintsViolated, 'units'),
    (exception.InvalidAllocationInventory, 'no_inventory'),
    (exception.AllocationProviderNotFound, 'no_provider'),
    (exception.ResourceClassNotFound, 'no_resource_class'),
    (exception.ConsumerGenerationConflict, 'consumer_generation'),
    (exception.ReshapeGenerationConflict, 'provider_generation'),
    (exception.InventoryInUse, 'inventory_in_use'),
    (exception.ConcurrentUpdate, 'concurrent_update'),
)


#: The exceptions after which a transaction is retried, as values of a label, as far as they are known beforehand.
RETRIES = ('DBDeadlock', 'DBReferenceError', 'RetryTransaction')

_NOTHING = contextlib.nullcontext()


class Metrics:
    """One method for each event that is counted. ``PrometheusMetrics`` implements them."""

    def expect(self, operations: Iterable[tuple[str, str]], bounds: Iterable[str]) -> None:
        """Create counters with the value 0, which would otherwise not exist before the first event.

        :param operations: declared path and method of each.
        :param bounds: the possible arguments of ``search_bounded``.
        """

    def request_begun(self) -> None:
        """This thread begins to process a request."""

    def request_answered(self, route: str, method: str, microversion: str, status: int, seconds: float) -> None:
        """This thread has finished a request. ``route`` is the declared path, not the path in the URL."""

    def threads(self, count: int) -> None:
        """This process has ``count`` threads that process requests."""

    def requests_waiting(self, count: int) -> None:
        """At the moment ``count`` requests wait for a thread of this process."""

    def watch(self, pool: str, engine: sa.Engine, limit: int) -> None:
        """Measure the connections of ``engine``, and the time that its statements take, from now on.

        :param pool: the label of its connection pool.
        :param limit: most connections that it opens.
        """

    def connecting(self, pool: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Make a context manager for a block that waits for a connection of ``pool``, a pool given to ``watch``."""
        return _NOTHING

    def spending(self, part: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Make a context manager for a block whose time is spent on ``part``, one of ``spending.PARTS``."""
        return _NOTHING

    def claim_accepted(self) -> None:
        """One request for allocations was granted."""

    def claim_refused(self, reason: str) -> None:
        """One request for allocations was refused. ``reason`` is a word of ``REFUSALS``."""

    def retried(self, reason: str) -> None:
        """One transaction is retried. ``reason`` is the name of the exception, such as ``DBDeadlock``."""

    def candidates(self, count: int, seconds: float) -> None:
        """One search for allocation candidates returned ``count`` of them and took ``seconds``."""

    def search_bounded(self, bound: str) -> None:
        """One search for allocation candidates was stopped at a limit. ``bound`` is the value of a ``Limit``."""

    def mirror_checked(self) -> None:
        """This process compared its mirror with the change log in the database."""

    def mirrored(self, providers: int, changes: int, seconds: float, rebuilt: bool) -> None:
        """The mirror of this process was updated or built.

        :param providers: how many providers it has now.
        :param changes: how many of them were read for an update.
        :param seconds: how long that took.
        :param rebuilt: whether it was built from all tables.
        """

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Count the claim made in the block: as accepted, or as refused if it raises an exception of ``REFUSALS``."""
        try:
            yield
        except exception.PlacementError as error:
            reason = why_refused(error)
            if reason is not None:
                self.claim_refused(reason)
            raise
        self.claim_accepted()


def why_refused(error: exception.PlacementError) -> str | None:
    """Return the label for why a claim was refused, None when ``error`` is not a refusal."""
    return next((reason for kind, reason in REFUSALS if isinstance(error, kind)), None)
