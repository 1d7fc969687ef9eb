"""The data sources of the views."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from oslo_config import cfg

from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.observability.sliding_window import SlidingWindow


@dataclass(frozen=True)
class Sources:
    """The configuration, the database and what else the views read.

    ``log`` is the log file of the service and ``recent`` its metrics of the last minutes; None where not available.
    """

    conf: cfg.ConfigOpts
    db: Database
    provider_cache: ProviderCache
    log: pathlib.Path | None = None
    recent: SlidingWindow | None = None


def log_file(conf: cfg.ConfigOpts) -> pathlib.Path | None:
    """Return the log file of the service by its configuration, None when it logs to no file."""
    return pathlib.Path(conf.log_dir or '', conf.log_file) if conf.log_file else None
