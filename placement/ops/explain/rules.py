"""The rules of a request for candidates: the parts of its requirements that ``explain`` counts and leaves out.

``compile_request`` divides a request into requirements, and these consist of conditions. A rule is a condition with
the query parameter that it comes from, or a condition between groups, such as ``group_policy``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from placement.search.request import CandidateRequest, NameFilter, RequestGroup
from placement.search.requirements import (
    AggregateCondition,
    CompiledRequest,
    Condition,
    NameCondition,
    Requirement,
    ResourceCondition,
    TraitCondition,
    TreeCondition,
)


class Kind(enum.Enum):
    """The kinds of rules. The value is the name in explanations, mostly the query parameter."""

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

    ``suffixes`` names the groups that the rule belongs to; groups with equal requirements have common rules.
    ``subject`` is the class with its amount, the trait (or ``in:`` and several), the aggregates, the uuid of
    ``in_tree``, or the suffixes of ``same_subtree``. A rule that forbids has one name; in ``ROOT_REQUIRED`` and
    ``MEMBER_OF`` it begins with ``!``. A ``GROUP`` rule is the existence of one of the groups, and its subject says if
    the group has no resources. The ``MICROVERSION`` rule is that below 1.29 a candidate uses at most one provider of a
    tree.

    ``condition`` applies to one provider, or for ``ROOT_REQUIRED`` to the root; None for a rule between groups.
    """

    kind: Kind
    suffixes: tuple[str, ...] = ()
    subject: str = ''
    condition: Condition | None = field(default=None, compare=False)

    @property
    def suffix(self) -> str:
        """The suffix of the first group; empty for a rule of no group."""
        return self.suffixes[0] if self.suffixes else ''


class Step(NamedTuple):
    """One rule, and what it requires together with the rules of its group before it.

    Each of ``requirements`` has to be satisfied by a provider. If there are several, these providers are in one
    subtree. With ``about_roots`` they apply to roots, and sharing providers do not count.

    In the unsuffixed group each class may come from another provider. ``serving`` is the class that the providers of
    the step would supply, if ``rule`` does not name it; or ``the root``, if the rule is about the aggregates of roots.
    """

    rule: Rule
    requirements: Sequence[Requirement]
    about_roots: bool = False
    serving: str = ''


def steps(compiled: CompiledRequest) -> Iterator[Step]:
    """Yield the rules that providers must satisfy, in the order in which ``stages.stages`` applies them."""
    for rule, up_to in _divide(compiled.root, ()):
        # The rule is about the root of the tree that uses a sharing provider, not about the root of that provider.
        serving = 'the root' if rule.suffixes else ''
        yield Step(rule, (up_to,), about_roots=True, serving=serving)
    for requirement, suffixes in compiled.distinct.items():
        for rule, up_to in _divide(requirement, suffixes):
            names_class = requirement.use_same_provider or isinstance(rule.condition, ResourceCondition)
            yield Step(rule, (up_to,), serving='' if names_class else requirement.resources[0][0])
    for any_of in compiled.collective.sets:
        condition = TraitCondition((any_of,))
        yield Step(_rule_of(condition, ('',)), (Requirement('', False, (condition,)),))
    for subtree in compiled.request.same_subtree:
        named = tuple(requirement for requirement, suffixes in compiled.distinct.items() if subtree & {*suffixes})
        if named:
            yield Step(Rule(Kind.SAME_SUBTREE, (), ','.join(sorted(subtree))), named)


def rules(compiled: CompiledRequest) -> Iterator[Rule]:
    """Yield the rules of a request that can be left out, each once: those of ``steps``, then those between groups."""
    request = compiled.request
    # That a group without any condition needs a provider cannot be left out.
    yield from dict.fromkeys(step.rule for step in steps(compiled) if step.rule.condition or not step.rule.suffixes)
    equal: dict[object, list[Requirement]] = {}
    for requirement in compiled.requirements:
        if requirement.use_same_provider and len(request.groups) > 1:
            subtrees = tuple(requirement.group in suffixes for suffixes in request.same_subtree)
            equal.setdefault((requirement, subtrees), []).append(requirement)
    for requirements in equal.values():
        suffixes = tuple(requirement.group for requirement in requirements)
        yield Rule(Kind.GROUP, suffixes, '' if requirements[0].resources else 'without resources')
    if request.isolate and sum(group.use_same_provider for group in request.groups) > 1:
        yield Rule(Kind.GROUP_POLICY)
    if not request.nested_aware:
        yield Rule(Kind.MICROVERSION)


def _divide(requirement: Requirement, suffixes: tuple[str, ...]) -> Iterator[tuple[Rule, Requirement]]:
    """Divide a requirement into rules. Yield each rule with the requirement up to and including it.

    :param suffixes: the suffixes of the groups that have this requirement; empty for the conditions on roots.
    """
    before: tuple[Condition, ...] = ()
    for condition in requirement.conditions:
        for part, up_to in _parts(condition):
            yield _rule_of(part, suffixes), replace(requirement, conditions=(*before, up_to))
        before = (*before, condition)
    if not requirement.conditions and suffixes:
        yield Rule(Kind.SAME_SUBTREE, suffixes, 'any provider'), requirement


def _parts(condition: Condition) -> Iterator[tuple[Condition, Condition]]:
    """Divide a condition by sets or forbidden names. Yield each part, and the condition up to and including it."""
    if not isinstance(condition, NameCondition):
        yield condition, condition
        return
    sets = condition.sets
    if condition.forbidden:
        sets = tuple(frozenset({name}) for name in sorted(condition.sets[0]))
    for number, names in enumerate(sets, start=1):
        up_to = (frozenset().union(*sets[:number]),) if condition.forbidden else sets[:number]
        yield replace(condition, sets=(names,)), replace(condition, sets=up_to)


def _rule_of(condition: Condition, suffixes: tuple[str, ...]) -> Rule:
    """Return the rule for a condition on one provider, or on a root if there are no ``suffixes``."""
    match condition:
        case ResourceCondition(name, amount):
            return Rule(Kind.RESOURCES, suffixes, f'{name}:{amount}', condition)
        case TraitCondition((traits,), forbidden):
            subject = ','.join(sorted(traits)) if len(traits) == 1 else f'in:{",".join(sorted(traits))}'
            if not suffixes:
                return Rule(Kind.ROOT_REQUIRED, (), f'!{subject}' if forbidden else subject, condition)
            return Rule(Kind.FORBIDDEN if forbidden else Kind.REQUIRED, suffixes, subject, condition)
        case AggregateCondition((aggregates,), forbidden):
            subject = f'{"!" if forbidden else ""}{",".join(sorted(aggregates))}'
            # If the unsuffixed group forbids an aggregate, a root may not be in it either.
            return Rule(Kind.MEMBER_OF, suffixes or ('',), subject, condition)
        case TreeCondition(uuid=uuid):
            return Rule(Kind.IN_TREE, suffixes, uuid, condition)
    raise TypeError(condition)


def without(request: CandidateRequest, *left_out: Rule) -> CandidateRequest | None:
    """Return the request without some of its rules; None when no group with resources would be left.

    A group that loses all its resources is removed with all its rules. A ``same_subtree`` that names a removed group
    still applies to the other groups. If a ``same_subtree`` is left out, its groups without resources remain.
    """
    rest: CandidateRequest | None = request
    for rule in left_out:
        rest = _without_one(rest, rule) if rest else None
    return rest


def _without_one(request: CandidateRequest, rule: Rule) -> CandidateRequest | None:
    match rule.kind, rule.condition:
        case Kind.ROOT_REQUIRED, TraitCondition() as condition:
            return replace(request, root_traits=_names_without(request.root_traits, condition))
        case Kind.SAME_SUBTREE, None:
            subtrees = tuple(subtree for subtree in request.same_subtree if ','.join(sorted(subtree)) != rule.subject)
            return replace(request, same_subtree=subtrees)
        case Kind.GROUP_POLICY, None:
            return replace(request, group_policy='none')
        case Kind.MICROVERSION, None:
            return replace(request, nested_aware=True)
        case Kind.GROUP, None:
            groups = [group for group in request.groups if group.suffix != rule.suffixes[-1]]
        case _, condition if condition is not None and rule.suffixes:
            groups = [
                _reduced(group, condition) if group.suffix in rule.suffixes else group for group in request.groups
            ]
        case _:
            raise TypeError(rule)
    without_resources = {group.suffix for group in request.groups if not group.resources}
    groups = [group for group in groups if group.resources or group.suffix in without_resources]
    return replace(request, groups=tuple(groups)) if any(group.resources for group in groups) else None


def _reduced(group: RequestGroup, condition: Condition) -> RequestGroup:
    """Return the group without a condition."""
    match condition:
        case ResourceCondition(name):
            return replace(group, resources={key: amount for key, amount in group.resources.items() if key != name})
        case TraitCondition():
            return replace(group, traits=_names_without(group.traits, condition))
        case AggregateCondition():
            return replace(group, aggregates=_names_without(group.aggregates, condition))
        case TreeCondition():
            return replace(group, in_tree=None)
    raise TypeError(condition)


def _names_without(names: NameFilter, condition: NameCondition) -> NameFilter:
    """Return the filter without a condition that requires one set of names, or forbids one name."""
    [left_out] = condition.sets
    if condition.forbidden:
        return replace(names, forbidden=names.forbidden - left_out)
    return replace(names, any_of=tuple(any_of for any_of in names.any_of if any_of != left_out))
