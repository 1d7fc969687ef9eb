"""What one search may spend, and which of its bounds it met."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field


class Bound(enum.Enum):
    """One bound of a search; the value is a word for it."""

    CANDIDATES = 'candidates'


@dataclass
class Budget:
    """The bounds of one search. By default there are none.

    ``candidates`` is how many are looked at. ``met`` are the bounds without which the answer might hold more.
    """

    candidates: int = sys.maxsize
    met: set[Bound] = field(default_factory=set)
