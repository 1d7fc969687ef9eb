"""The rules of a request for candidates: the parts that can be left out one at a time."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.candidates.request import CandidateRequest, RequestGroup


class Kind(enum.Enum):
    """The kinds of rules; the value is the name of the query parameter, if there is one."""

    RESOURCES = 'resources'
    REQUIRED = 'required'
    FORBIDDEN = 'forbidden'
    MEMBER_OF = 'member_of'
    GROUP = 'group'
    GROUP_POLICY = 'group_policy'
    MICROVERSION = 'microversion'


@dataclass(frozen=True)
class Rule:
    """One part of a request.

    ``suffixes`` are those of the groups that it belongs to; groups that ask for exactly the same have their rules in
    common. ``subject`` is the class with its amount, the trait, or the aggregates. A ``GROUP`` stands for one group out
    of ``suffixes``, a ``MICROVERSION`` for the rule below 1.29 that a candidate uses at most one provider of a tree.
    """

    kind: Kind
    suffixes: tuple[str, ...] = ()
    subject: str = ''

    @property
    def suffix(self) -> str:
        """The suffix of the first group."""
        return self.suffixes[0]

    @property
    def about_one_provider(self) -> bool:
        """Whether it is a condition on a single provider."""
        return self.kind in (Kind.RESOURCES, Kind.REQUIRED, Kind.FORBIDDEN, Kind.MEMBER_OF)

    def __str__(self) -> str:
        if self.kind is Kind.GROUP:
            return f'{"one of " if len(self.suffixes) > 1 else ""}resources{in_short(self.suffixes)}'
        if self.kind is Kind.GROUP_POLICY:
            return 'group_policy=isolate'
        if self.kind is Kind.MICROVERSION:
            return 'the rule of one provider per tree (below 1.29)'
        return f'{self.kind.value}{in_short(self.suffixes)} {self.subject}'

    def as_data(self) -> dict[str, Any]:
        """The rule in JSON types; ``groups`` are suffixes, of which that of the unnumbered group is empty."""
        return {'rule': self.kind.value, 'groups': list(self.suffixes), 'subject': self.subject, 'text': str(self)}


def in_short(suffixes: Sequence[str]) -> str:
    """Join the suffixes of groups, with ``...`` for the middle of a long list."""
    return ','.join(suffixes if len(suffixes) <= 4 else (*suffixes[:2], '...', suffixes[-1]))


def rules(request: CandidateRequest) -> Iterator[Rule]:
    """Split a request into its rules, in the order in which ``account.stages`` applies them."""
    equal: dict[tuple[object, ...], list[RequestGroup]] = {}
    for group in request.groups:
        asked = frozenset(group.resources.items()), group.required, group.forbidden, group.member_of
        equal.setdefault((group.use_same_provider, *asked), []).append(group)
    for some in equal.values():
        yield from _of_group(some[0], tuple(group.suffix for group in some))
    if len(request.groups) > 1:
        for some in equal.values():
            if some[0].use_same_provider:
                yield Rule(Kind.GROUP, tuple(group.suffix for group in some))
    if request.isolate and sum(group.use_same_provider for group in request.groups) > 1:
        yield Rule(Kind.GROUP_POLICY)
    if not request.nested_aware:
        yield Rule(Kind.MICROVERSION)


def _of_group(group: RequestGroup, suffixes: tuple[str, ...]) -> Iterator[Rule]:
    for name, amount in group.resources.items():
        yield Rule(Kind.RESOURCES, suffixes, f'{name}:{amount}')
    for name in sorted(group.required):
        yield Rule(Kind.REQUIRED, suffixes, name)
    for name in sorted(group.forbidden):
        yield Rule(Kind.FORBIDDEN, suffixes, name)
    for any_of in dict.fromkeys(group.member_of):
        yield Rule(Kind.MEMBER_OF, suffixes, ','.join(sorted(any_of)))


def without(request: CandidateRequest, rule: Rule) -> CandidateRequest | None:
    """Return the request without one rule; None when no group would be left.

    A group without resources is removed with all its rules.
    """
    if rule.kind is Kind.GROUP_POLICY:
        return replace(request, group_policy='none')
    if rule.kind is Kind.MICROVERSION:
        return replace(request, nested_aware=True)
    if rule.kind is Kind.GROUP:
        groups = [group for group in request.groups if group.suffix != rule.suffixes[-1]]
    else:
        groups = [_reduced(group, rule) if group.suffix in rule.suffixes else group for group in request.groups]
    left = tuple(group for group in groups if group.resources)
    return replace(request, groups=left) if left else None


def _reduced(group: RequestGroup, rule: Rule) -> RequestGroup:
    subject = rule.subject
    if rule.kind is Kind.RESOURCES:
        name, _ = resource_of(rule)
        return replace(group, resources={key: amount for key, amount in group.resources.items() if key != name})
    if rule.kind is Kind.REQUIRED:
        return replace(group, required=group.required - {subject})
    if rule.kind is Kind.FORBIDDEN:
        return replace(group, forbidden=group.forbidden - {subject})
    return replace(group, member_of=tuple(one for one in group.member_of if ','.join(sorted(one)) != subject))


def resource_of(rule: Rule) -> tuple[str, int]:
    """Return the class and the amount of a rule of the kind ``RESOURCES``."""
    name, _, amount = rule.subject.rpartition(':')
    return name, int(amount)
