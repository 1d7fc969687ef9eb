"""Writes the log lines of gunicorn to the log of the service."""

from __future__ import annotations

from gunicorn import glogging
from gunicorn.config import Config


class Log(glogging.Logger):
    """gunicorn's logger without handlers of its own: its lines have the format and destination of all others."""

    def setup(self, cfg: Config) -> None:
        """Take the level from gunicorn's settings, and leave the rest to the handlers of the service."""
        super().setup(cfg)
        for logger in (self.error_log, self.access_log):
            logger.handlers.clear()
            logger.propagate = True
