"""When what is returned was last modified, for ``Last-Modified`` (api-ref/rules.md#cache-headers)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

from oslo_utils import timeutils


class Dated(Protocol):
    """Anything stored; ``modified`` is when it was last written, aware and in UTC."""

    @property
    def modified(self) -> dt.datetime: ...


def now() -> dt.datetime:
    """Return the present time, aware and in UTC."""
    return timeutils.utcnow(with_timezone=True)


def newest(records: Iterable[Dated]) -> dt.datetime:
    """Return the newest time of ``records``; now when there are none."""
    return max((record.modified for record in records), default=now())
