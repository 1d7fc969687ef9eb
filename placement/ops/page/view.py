"""The data sources of the views of the page, and the content of a response that a view returns."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.db.health import TimedCheck

if TYPE_CHECKING:
    # Importing the library takes time and reads PROMETHEUS_MULTIPROC_DIR; the page needs only the registry it gets.
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True)
class Sources:
    """The configuration, the database and the other sources that the views read.

    ``check`` finds out whether the database responds. ``log`` is the log file of the service and ``metrics`` are its
    metrics; both are None if not available.
    """

    conf: cfg.ConfigOpts
    db: Database
    provider_cache: ProviderCache
    check: TimedCheck
    log: pathlib.Path | None = None
    metrics: CollectorRegistry | None = None


def log_file(conf: cfg.ConfigOpts) -> pathlib.Path | None:
    """Return the log file in the configuration of the service; None if it does not log to a file."""
    return pathlib.Path(conf.log_dir or '', conf.log_file) if conf.log_file else None


@dataclass(frozen=True)
class View:
    """The content of one response: ``data`` is the JSON document, ``extra`` is for the template only."""

    template: str
    title: str
    data: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Pagination:
    """One page of a list: its number, the entries per page and in total, and the query parameter for the number."""

    number: int
    size: int
    total: int
    name: str = 'page'

    @property
    def first(self) -> int:
        """The number of entries before this page."""
        return (self.number - 1) * self.size

    @property
    def last(self) -> int:
        """The number of entries up to the end of this page."""
        return min(self.first + self.size, self.total)

    @property
    def count(self) -> int:
        """The number of pages."""
        return max(math.ceil(self.total / self.size), 1)

    def data(self) -> dict[str, int]:
        """Return the members of the JSON document."""
        return {'page': self.number, 'pages': self.count, 'total': self.total}
