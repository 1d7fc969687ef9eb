"""The events that the service counts. The class here counts nothing; an application has it while metrics are off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from placement import exception

#: The ``result`` of a claim that succeeded.
ACCEPTED = 'accepted'

#: The ``result`` of a rejected claim, by exception. The first class that matches an exception counts.
CLAIM_REJECTIONS: tuple[tuple[type[exception.PlacementError], str], ...] = (
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
RETRY_REASONS = ('DBDeadlock', 'DBReferenceError', 'RetryTransaction')

_NO_MEASUREMENT = contextlib.nullcontext()


class Metrics:
    """One method for each event that is counted. ``PrometheusMetrics`` implements them."""

    def initialize(self, operations: Iterable[tuple[str, str]], limits: Iterable[str]) -> None:
        """Create counters with the value 0, which would otherwise not exist before the first event.

        :param operations: declared path and method of each.
        :param limits: the possible arguments of ``search_truncated``.
        """

    def request_started(self) -> None:
        """This thread starts to process a request."""

    def request_finished(self, route: str, method: str, microversion: str, status: int, seconds: float) -> None:
        """This thread has finished a request. ``route`` is the declared path, not the path in the URL."""

    def set_threads(self, count: int) -> None:
        """This process has ``count`` threads that process requests."""

    def set_requests_waiting(self, count: int) -> None:
        """``count`` requests wait for a thread of this process at the moment."""

    def instrument(self, pool: str, engine: sa.Engine, limit: int) -> None:
        """Measure the connections of ``engine``, and the time that its statements take, from now on.

        :param pool: the label of its connection pool.
        :param limit: the maximum number of connections that it opens.
        """

    def connection_wait(self, pool: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Return a context manager for a block that waits for a connection of ``pool``, one given to ``instrument``."""
        return _NO_MEASUREMENT

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Return a context manager for a block whose time belongs to the phase ``name``, one of ``timing.PHASES``."""
        return _NO_MEASUREMENT

    def claim_finished(self, result: str) -> None:
        """One request for allocations has ended. ``result`` is ``ACCEPTED`` or a value of ``CLAIM_REJECTIONS``."""

    def transaction_retried(self, reason: str) -> None:
        """One transaction is retried. ``reason`` is the name of the exception, such as ``DBDeadlock``."""

    def search_finished(self, candidates: int, seconds: float) -> None:
        """One search for allocation candidates returned ``candidates`` of them and took ``seconds``."""

    def search_truncated(self, limit: str) -> None:
        """One search for allocation candidates reached a limit. ``limit`` is the value of a ``Limit``."""

    def cache_checked(self) -> None:
        """This process compared the version of its provider cache with the change log in the database."""

    def cache_refreshed(self, providers: int, changes: int, seconds: float, reloaded: bool) -> None:
        """The provider cache of this process was refreshed.

        :param providers: how many providers it has now.
        :param changes: how many of them were read because they had changed.
        :param seconds: how long the refresh took.
        :param reloaded: whether all tables were read.
        """

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Count the claim made in the block: as accepted, or as rejected by an exception of ``CLAIM_REJECTIONS``."""
        try:
            yield
        except exception.PlacementError as error:
            for kind, result in CLAIM_REJECTIONS:
                if isinstance(error, kind):
                    self.claim_finished(result)
                    break
            raise
        self.claim_finished(ACCEPTED)
