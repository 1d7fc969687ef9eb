"""Warnings about the configuration, logged once even if a process builds several applications from it."""

from __future__ import annotations

import functools
import logging


@functools.cache
def warn(logger: logging.LoggerAdapter[logging.Logger], text: str) -> None:
    """Log ``text`` at WARNING unless this process, or the one that it was forked from, has done so already."""
    logger.warning(text)
