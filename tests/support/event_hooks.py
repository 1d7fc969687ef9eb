"""Calls a function at each event of an engine or of all pools, as long as a block runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa


@contextlib.contextmanager
def listening(
    target: sa.Engine | type[sa.Engine] | type[sa.Pool], event: str, act: Callable[..., Any]
) -> Iterator[None]:
    """Let ``act`` be called at every ``event`` of an engine or a pool, named as SQLAlchemy names it."""
    sa.event.listen(target, event, act)
    try:
        yield
    finally:
        sa.event.remove(target, event, act)
