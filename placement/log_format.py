"""The format of the log: no name in a request or in the database can look like another line."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg
from oslo_log import formatters


def printable(text: str) -> str:
    """Escape newlines and all other characters that could forge a line or control a terminal."""
    return text if text.isprintable() else ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class LineFormatter(formatters.ContextFormatter):
    """Writes each record as one line. The lines of a traceback follow, each with the prefix of oslo.log."""

    def formatMessage(self, record: Any) -> str:  # noqa: N802
        record.message = printable(record.message)
        # oslo.log has set it: the text of an exception, which may have several lines.
        record.error_summary = printable(record.error_summary)
        return super().formatMessage(record)

    def formatException(self, *args: Any, **options: Any) -> str:  # noqa: N802
        return '\n'.join(map(printable, super().formatException(*args, **options).split('\n')))


def escape_lines(conf: cfg.ConfigOpts) -> None:
    """Let the handlers of the root logger use ``LineFormatter``, unless they write JSON or have another format."""
    for handler in logging.root.handlers:
        if isinstance(handler.formatter, formatters.ContextFormatter):
            handler.setFormatter(LineFormatter(datefmt=handler.formatter.datefmt, project='placement', config=conf))
