"""The time in the ``Last-Modified`` header of a response (api-ref/rules.md#cache-headers)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

from oslo_utils import timeutils


class Dated(Protocol):
    """A stored record; ``modified`` is the time of its last write, timezone-aware and in UTC."""

    @property
    def modified(self) -> dt.datetime: ...


def now() -> dt.datetime:
    """Return the present time, timezone-aware and in UTC."""
    return timeutils.utcnow(with_timezone=True)


def newest(records: Iterable[Dated]) -> dt.datetime:
    """Return the time of the record that was written last; the present time when there are no records."""
    return max((record.modified for record in records), default=now())
