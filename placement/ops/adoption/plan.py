"""The plan of an adoption: its steps, or the problems that prevent it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import sqlalchemy as sa

from placement.db import health


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


def run_steps(connection: sa.Connection, steps: Iterable[Step], report: Reporter) -> None:
    """Run ``steps``. Before each, call ``report`` with it."""
    for step in steps:
        report(step)
        step.run(connection)


def with_notes(connection: sa.Connection, plan: Plan) -> Plan:
    """Return the plan with a note for each other connection to the database."""
    return dataclasses.replace(plan, notes=[*plan.notes, *map(_describe, health.list_sessions(connection))])


def require_no_connections(connection: sa.Connection, plan: Plan, ignore_connections: bool) -> Plan:
    """Return the plan with a problem for each other connection: the service that uses it may have to be stopped.

    :param ignore_connections: do not look for other connections.
    """
    if plan.problems or ignore_connections:
        return plan
    return dataclasses.replace(plan, problems=[*map(_describe, health.wait_for_disconnects(connection))])


def _describe(other: health.Session) -> str:
    return f'There is a connection of the account {other}: stop the program.'
