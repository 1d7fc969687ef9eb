"""Calls a function at each event of an engine, as long as a block runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa


@contextlib.contextmanager
def listening(engine: sa.Engine | type[sa.Engine], event: str, act: Callable[..., Any]) -> Iterator[None]:
    """Let ``act`` be called at every ``event`` of an engine, named as SQLAlchemy names it."""
    sa.event.listen(engine, event, act)
    try:
        yield
    finally:
        sa.event.remove(engine, event, act)
