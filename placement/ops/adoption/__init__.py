"""Adopts the database of another Placement service, or returns it, by a plan of steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import sqlalchemy as sa


@dataclasses.dataclass(frozen=True)
class Step:
    """One change, with a sentence for the operator. It can be run again after it was interrupted."""

    sentence: str
    run: Callable[[sa.Connection], object]


#: Called with a step before it is run.
Reporter = Callable[[Step], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The ``steps`` in the order of execution, or the ``problems`` that prevent them.

    ``problems`` are sentences about what an operator has to decide or change first. ``notes`` are sentences for the
    operator; they prevent nothing.
    """

    steps: list[Step]
    problems: list[str]
    notes: list[str] = dataclasses.field(default_factory=list)
