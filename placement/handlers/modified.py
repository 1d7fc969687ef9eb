"""When what is returned was last modified, for ``Last-Modified`` (contract A 1.12)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

from oslo_utils import timeutils


class Dated(Protocol):
    """Anything stored. ``modified`` is its last update, else its creation, else None when neither is known."""

    @property
    def modified(self) -> dt.datetime | None: ...


def now() -> dt.datetime:
    """Return the present time, aware and in UTC."""
    return timeutils.utcnow(with_timezone=True)


def newest(records: Iterable[Dated]) -> dt.datetime:
    """Return the newest time of ``records``; now when there are none or when one has no known time."""
    present = now()
    return max((record.modified or present for record in records), default=present)
