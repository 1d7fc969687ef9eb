"""What an adoption is going to do, and what speaks against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import sqlalchemy as sa


@dataclasses.dataclass(frozen=True)
class Step:
    """One change, told in a sentence. Done again after it was cut short it ends in the same state."""

    sentence: str
    run: Callable[[sa.Connection], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """``steps`` in the order in which they are made; none is when there are ``doubts``."""

    steps: list[Step]
    doubts: list[str]


def count(number: int, noun: str, plural: str = '') -> str:
    """``1 row``, ``2 rows``."""
    return f'{number} {noun}' if number == 1 else f'{number} {plural or noun + "s"}'
