"""Logs when a database becomes unavailable or read-only, and when this ends."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from oslo_log import log

from placement import exception, units

LOG = log.getLogger(__name__)

#: An outage ends with a success if no operation has failed for this time.
_QUIET_SECONDS = 1.0
#: The interval at which the number of failures is logged during an outage.
_REPORT_INTERVAL_SECONDS = 60.0


@dataclasses.dataclass
class _Outage:
    """A period in which operations failed."""

    began_at: float
    reported_at: float
    failed_at: float = 0.0
    failures: int = 0


class Availability:
    """The outages of one database, as the operations of this process see them.

    The first failure is logged with its reason; then the number of failures, every minute and at the end.

    :param report_read_only: called with True when a change is rejected because the database is read-only, and with
        False when this has ended.
    """

    def __init__(self, report_read_only: Callable[[bool], object]) -> None:
        self._report_read_only = report_read_only
        self._lock = threading.Lock()
        #: The outages that have not ended, by the exception of their operations.
        self.outages: dict[type[exception.DatabaseUnavailable], _Outage] = {}

    @property
    def is_read_only(self) -> bool:
        """Whether the database has rejected changes because it is read-only, and this outage has not ended."""
        return exception.DatabaseReadOnly in self.outages

    def failed(self, error: exception.DatabaseUnavailable) -> None:
        """Note that an operation failed."""
        if isinstance(error, exception.TransactionInterrupted):
            _log_error(error.for_operators)
            return
        is_read_only = isinstance(error, exception.DatabaseReadOnly)
        kind = exception.DatabaseReadOnly if is_read_only else exception.DatabaseUnavailable
        now = time.monotonic()
        with self._lock:
            outage = self.outages.setdefault(kind, _Outage(now, now))
            outage.failures, outage.failed_at = outage.failures + 1, now
            if is_read_only:
                self._report_read_only(True)
            if outage.failures == 1:
                _log_error(error.for_operators)
            elif now - outage.reported_at >= _REPORT_INTERVAL_SECONDS:
                outage.reported_at = now
                seconds = now - outage.began_at
                failures = units.plural(outage.failures, 'failed operation')
                _log_error(f'{failures} in {seconds:.0f} s. {error.for_operators}')

    def succeeded(self, *, writes: bool) -> None:
        """Note that an operation succeeded, which may end an outage.

        :param writes: whether it changed something. If not, this says nothing about a read-only database.
        """
        now = time.monotonic()
        with self._lock:
            for kind, outage in list(self.outages.items()):
                if now - outage.failed_at < _QUIET_SECONDS or (kind is exception.DatabaseReadOnly and not writes):
                    continue
                del self.outages[kind]
                if kind is exception.DatabaseReadOnly:
                    self._report_read_only(False)
                news = 'accepts changes' if kind is exception.DatabaseReadOnly else 'is available'
                # The log of a command has no lines of level INFO.
                LOG.warning(
                    'The database %s again after %s in %.0f s.',
                    news,
                    units.plural(outage.failures, 'failed operation'),
                    outage.failed_at - outage.began_at,
                )


def _log_error(message: str) -> None:
    """Log ``message`` without the exception that is being handled, because the message has the reason.

    oslo.log appends the exception to the line, unless it is of a common built-in class such as KeyError.
    """
    try:
        raise KeyError  # noqa: TRY301
    except KeyError:
        LOG.error('%s', message)
