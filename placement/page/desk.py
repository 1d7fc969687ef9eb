"""What the views look at."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from oslo_config import cfg

from placement.db.api import Database
from placement.mirror.keeper import Mirror
from placement.observability.recent import Recent


@dataclass(frozen=True)
class Desk:
    """Where all figures come from.

    ``log`` is the log file of the service, ``recent`` what it counted lately; None where that is not at hand.
    """

    conf: cfg.ConfigOpts
    db: Database
    mirror: Mirror
    log: pathlib.Path | None = None
    recent: Recent | None = None


def log_file(conf: cfg.ConfigOpts) -> pathlib.Path | None:
    """The file that the configuration has the service log to, None when it names none."""
    return pathlib.Path(conf.log_dir or '', conf.log_file) if conf.log_file else None
