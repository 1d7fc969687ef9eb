"""ABSENT: the value of a member that the request does not have, where null (None) has a meaning of its own."""

from __future__ import annotations

import enum


class Absent(enum.Enum):
    """The type of ``ABSENT``."""

    ABSENT = 'absent'


ABSENT = Absent.ABSENT
