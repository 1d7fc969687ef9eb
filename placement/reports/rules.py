"""The rules of a request for candidates: the parts that can be left out one at a time."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.candidates.request import CandidateRequest, RequestGroup


class Kind(enum.Enum):
    """The kinds of rules; the value is the name of the query parameter, if there is one."""

    RESOURCES = 'resources'
    REQUIRED = 'required'
    FORBIDDEN = 'forbidden'
    MEMBER_OF = 'member_of'
    IN_TREE = 'in_tree'
    ROOT_REQUIRED = 'root_required'
    SAME_SUBTREE = 'same_subtree'
    GROUP = 'group'
    GROUP_POLICY = 'group_policy'
    MICROVERSION = 'microversion'


@dataclass(frozen=True)
class Rule:
    """One part of a request.

    ``suffixes`` are those of the groups that it belongs to; groups that ask for exactly the same have their rules in
    common. ``subject`` is the class with its amount, the trait (or ``in:`` and several), the aggregates, the uuid of
    ``in_tree``, or the suffixes of ``same_subtree``. A ``ROOT_REQUIRED`` is one trait, and a ``MEMBER_OF`` that forbids
    is one aggregate; what is forbidden begins with ``!`` there. A ``GROUP`` stands for one group out of ``suffixes``,
    and its subject says if the group has no resources; a ``MICROVERSION`` stands for the rule below 1.29 that a
    candidate uses at most one provider of a tree.
    """

    kind: Kind
    suffixes: tuple[str, ...] = ()
    subject: str = ''

    @property
    def suffix(self) -> str:
        """The suffix of the first group; empty for a rule of no group."""
        return self.suffixes[0] if self.suffixes else ''

    @property
    def about_one_provider(self) -> bool:
        """Whether it is a condition on a single provider."""
        return self.kind in _ABOUT_ONE_PROVIDER

    @property
    def forbids(self) -> bool:
        """Whether it names a trait or an aggregate that a provider must not have, or not be in."""
        return self.kind is Kind.FORBIDDEN or self.subject.startswith('!')

    @property
    def names(self) -> list[str]:
        """The traits or aggregates in ``subject``."""
        return self.subject.removeprefix('!').removeprefix('in:').split(',')

    def __str__(self) -> str:
        if self.kind is Kind.GROUP:
            suffixes = in_short(self.suffixes)
            name = f'group {suffixes} {self.subject}' if self.subject else f'resources{suffixes}'
            return f'one of {name}' if len(self.suffixes) > 1 else name
        if self.kind is Kind.GROUP_POLICY:
            return 'group_policy=isolate'
        if self.kind is Kind.MICROVERSION:
            return 'the rule of one provider per tree (below 1.29)'
        return f'{self.kind.value}{in_short(self.suffixes)} {self.subject}'

    def as_data(self) -> dict[str, Any]:
        """The rule in JSON types; ``groups`` are suffixes, of which that of the unnumbered group is empty."""
        return {'rule': self.kind.value, 'groups': list(self.suffixes), 'subject': self.subject, 'text': str(self)}


_ABOUT_ONE_PROVIDER = frozenset(
    {Kind.RESOURCES, Kind.REQUIRED, Kind.FORBIDDEN, Kind.MEMBER_OF, Kind.IN_TREE, Kind.ROOT_REQUIRED}
)


def in_short(suffixes: Sequence[str]) -> str:
    """Join the suffixes of groups, with ``...`` for the middle of a long list."""
    return ','.join(suffixes if len(suffixes) <= 4 else (*suffixes[:2], '...', suffixes[-1]))


def rules(request: CandidateRequest) -> Iterator[Rule]:
    """Split a request into its rules, in the order in which ``account.stages`` applies them."""
    for name in [*sorted(request.root_required), *(f'!{name}' for name in sorted(request.root_forbidden))]:
        yield Rule(Kind.ROOT_REQUIRED, (), name)
    equal: dict[tuple[object, ...], list[RequestGroup]] = {}
    for group in request.groups:
        traits = group.required, group.forbidden, group.required_any
        places = group.member_of, group.forbidden_aggregates, group.in_tree
        subtrees = tuple(group.suffix in suffixes for suffixes in request.same_subtree)
        asked = group.use_same_provider, frozenset(group.resources.items()), *traits, *places, subtrees
        equal.setdefault(asked, []).append(group)
    for some in equal.values():
        yield from _of_group(some[0], tuple(group.suffix for group in some))
    for named in same_subtrees(request):
        yield Rule(Kind.SAME_SUBTREE, (), ','.join(sorted(named)))
    if len(request.groups) > 1:
        for some in equal.values():
            if some[0].use_same_provider:
                suffixes = tuple(group.suffix for group in some)
                yield Rule(Kind.GROUP, suffixes, '' if some[0].resources else 'without resources')
    if request.isolate and sum(group.use_same_provider for group in request.groups) > 1:
        yield Rule(Kind.GROUP_POLICY)
    if not request.nested_aware:
        yield Rule(Kind.MICROVERSION)


def _of_group(group: RequestGroup, suffixes: tuple[str, ...]) -> Iterator[Rule]:
    for name, amount in group.resources.items():
        yield Rule(Kind.RESOURCES, suffixes, f'{name}:{amount}')
    for any_of in group.required_sets:
        yield Rule(Kind.REQUIRED, suffixes, trait_subject(any_of))
    for name in sorted(group.forbidden):
        yield Rule(Kind.FORBIDDEN, suffixes, name)
    for any_of in dict.fromkeys(group.member_of):
        yield Rule(Kind.MEMBER_OF, suffixes, ','.join(sorted(any_of)))
    for uuid in sorted(group.forbidden_aggregates):
        yield Rule(Kind.MEMBER_OF, suffixes, f'!{uuid}')
    if group.in_tree is not None:
        yield Rule(Kind.IN_TREE, suffixes, group.in_tree)


def trait_subject(any_of: Collection[str]) -> str:
    """The traits of which one is required, as they are written in ``required``."""
    return ','.join(sorted(any_of)) if len(any_of) == 1 else f'in:{",".join(sorted(any_of))}'


def same_subtrees(request: CandidateRequest) -> list[frozenset[str]]:
    """Return those occurrences of ``same_subtree`` that name a group which the request still has."""
    suffixes = {group.suffix for group in request.groups}
    return [one for one in request.same_subtree if not suffixes.isdisjoint(one)]


def without(request: CandidateRequest, rule: Rule) -> CandidateRequest | None:
    """Return the request without one rule; None when no group with resources would be left.

    A group that loses all its resources is removed with all its rules. A ``same_subtree`` that names a removed group is
    a condition on its other groups. Without a ``same_subtree``, its groups without resources remain.
    """
    if rule.kind is Kind.ROOT_REQUIRED:
        gone = set(rule.names)
        if rule.forbids:
            return replace(request, root_forbidden=request.root_forbidden - gone)
        return replace(request, root_required=request.root_required - gone)
    if rule.kind is Kind.SAME_SUBTREE:
        left = tuple(one for one in request.same_subtree if ','.join(sorted(one)) != rule.subject)
        return replace(request, same_subtree=left)
    if rule.kind is Kind.GROUP_POLICY:
        return replace(request, group_policy='none')
    if rule.kind is Kind.MICROVERSION:
        return replace(request, nested_aware=True)
    if rule.kind is Kind.GROUP:
        groups = [group for group in request.groups if group.suffix != rule.suffixes[-1]]
    else:
        groups = [_reduced(group, rule) if group.suffix in rule.suffixes else group for group in request.groups]
    without_resources = {group.suffix for group in request.groups if not group.resources}
    groups = [group for group in groups if group.resources or group.suffix in without_resources]
    return replace(request, groups=tuple(groups)) if any(group.resources for group in groups) else None


def _reduced(group: RequestGroup, rule: Rule) -> RequestGroup:
    subject = rule.subject
    if rule.kind is Kind.RESOURCES:
        name, _ = resource_of(rule)
        return replace(group, resources={key: amount for key, amount in group.resources.items() if key != name})
    if rule.kind is Kind.IN_TREE:
        return replace(group, in_tree=None)
    if rule.kind is Kind.REQUIRED:
        any_of = frozenset(rule.names)
        required = group.required - any_of if len(any_of) == 1 else group.required
        return replace(group, required=required, required_any=group.required_any - {any_of})
    if rule.kind is Kind.FORBIDDEN:
        return replace(group, forbidden=group.forbidden - {subject})
    if rule.forbids:
        return replace(group, forbidden_aggregates=group.forbidden_aggregates.difference(rule.names))
    return replace(group, member_of=tuple(one for one in group.member_of if ','.join(sorted(one)) != subject))


def resource_of(rule: Rule) -> tuple[str, int]:
    """Return the class and the amount of a rule of the kind ``RESOURCES``."""
    name, _, amount = rule.subject.rpartition(':')
    return name, int(amount)
