"""ABSENT: what a request could have said and did not, where null says something else."""

from __future__ import annotations

import enum


class Absent(enum.Enum):
    """The type of ``ABSENT``."""

    ABSENT = 'absent'


ABSENT = Absent.ABSENT
