"""What an adoption is going to do, and what speaks against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import sqlalchemy as sa

from placement.db import company


@dataclasses.dataclass(frozen=True)
class Step:
    """One change, told in a sentence. Done again after it was cut short it ends in the same state."""

    sentence: str
    run: Callable[[sa.Connection], None]


#: What to tell about a step that is about to be made.
Reporter = Callable[[Step], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """``steps`` in the order in which they are made; none is when there are ``doubts``.

    ``notes`` are what a person should know before.
    """

    steps: list[Step]
    doubts: list[str]
    notes: list[str] = dataclasses.field(default_factory=list)


def make(connection: sa.Connection, steps: Iterable[Step], report: Reporter) -> None:
    """Make steps, each after it was told."""
    for step in steps:
        report(step)
        step.run(connection)


def shown(connection: sa.Connection, plan: Plan) -> Plan:
    """The plan for somebody to look at: who else is connected is in its notes."""
    return dataclasses.replace(plan, notes=[*plan.notes, *map(_told, company.others(connection))])


def alone(connection: sa.Connection, plan: Plan, others_are_stopped: bool) -> Plan:
    """The plan to carry out, unless others stay connected, one of which may be the service that must not write.

    :param others_are_stopped: none of them is.
    """
    if plan.doubts or others_are_stopped:
        return plan
    return dataclasses.replace(plan, doubts=[_told(one) for one in company.staying(connection)])


def _told(other: company.Other) -> str:
    return f'There is a connection of the account {other}: stop what it belongs to.'


def count(number: int, noun: str, plural: str = '') -> str:
    """``1 row``, ``2 rows``."""
    return f'{number} {noun}' if number == 1 else f'{number} {plural or noun + "s"}'
