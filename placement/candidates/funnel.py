"""Why there are as many candidates as there are: what each rule left over, as plain data and as one line of text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from placement.candidates.budget import Bound
from placement.candidates.reasons import Reason

#: Characters of a subject in the line of text; a list of aggregates may have thousands.
_MAX_SUBJECT = 200


@dataclass(frozen=True)
class Stage:
    """What one rule left, applied after all those before it.

    ``group`` is the suffix of the request group, ``rule`` one of ``resources``, ``required``, ``forbidden``,
    ``member_of`` and ``same provider``, ``subject`` what it is about (such as ``VCPU:2``). ``providers`` counts those
    that pass the rules of this group so far, ``trees`` those that can still satisfy everything so far, by themselves or
    through sharing providers. ``refused`` says for ``resources`` how many providers have the inventory and why it does
    not do.
    """

    group: str
    rule: str
    subject: str
    providers: int
    trees: int
    refused: Mapping[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Miss:
    """A provider that came close: it has ``left`` of a class, less than ``wanted``."""

    name: str
    uuid: str
    group: str
    resource_class: str
    wanted: int
    left: int


@dataclass(frozen=True)
class Funnel:
    """The whole account of one request.

    ``stages`` are in order. ``grouping`` counts what kept groups from being placed together in the trees that passed
    them all, by group suffix. ``found`` is the number of candidates, cut off at ``limit`` or by ``bounds``.
    """

    stages: Sequence[Stage]
    grouping: Mapping[tuple[str, Reason], int]
    found: int
    limit: int | None
    misses: Sequence[Miss]
    bounds: Collection[Bound] = ()

    def __str__(self) -> str:
        """The funnel in one line, for a log."""
        parts = [_stage_text(stage) for stage in self.stages]
        parts += [f'resources{group}: {n} times {reason.value}' for (group, reason), n in self.grouping.items()]
        parts.append(f'{self.found} candidates')
        parts += [f'stopped at a bound: {bound.value}' for bound in Bound if bound in self.bounds]
        parts += [
            f'nearest: {miss.name} has {miss.left} of {miss.resource_class}:{miss.wanted}' for miss in self.misses
        ]
        return '; '.join(parts)


def _stage_text(stage: Stage) -> str:
    refused = ''.join(f', {n} {reason.name.lower()}' for reason, n in stage.refused.items())
    subject = stage.subject if len(stage.subject) <= _MAX_SUBJECT else f'{stage.subject[:_MAX_SUBJECT]}...'
    return f'{stage.rule}{stage.group} {subject}: {stage.trees} trees, {stage.providers} providers{refused}'
