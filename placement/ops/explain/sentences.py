"""Writes explanations for users: as sentences, and as a JSON document.

There is a template of a whole sentence for each kind of cause. It takes numbers, names and the text of rules.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from placement import units
from placement.cache.providers import Provider
from placement.ops.explain.blockers import Cause, CauseKind, NearMiss
from placement.ops.explain.combination_failures import CombinationFailure, Contention
from placement.ops.explain.explanation import Explanation
from placement.ops.explain.rules import Kind, Rule
from placement.ops.explain.stages import Shortfall, ShortfallKind
from placement.search.budget import Limit
from placement.search.requirements import AggregateCondition, ResourceCondition, TraitCondition, TreeCondition
from placement.search.search_units import CandidateSet
from placement.search.solver.variables import Reason

#: Maximum numbers of rules to name, and of groups to name.
_MAX_RULES, _MAX_GROUPS = 3, 4

_LIMIT_REACHED = (
    'The search reached a limit before it found a candidate, so candidates may exist. In the part that was searched: '
)
_CAUSES = {
    CauseKind.NONE_EXISTS: 'No provider {satisfies}.',
    CauseKind.NONE_LEFT: 'No provider satisfies the other rules of {group}.',
    CauseKind.REJECTED: 'Each provider that satisfies the other rules of {group} {violates}: {providers}.',
    CauseKind.ROOTS_REJECTED: 'The root of each tree that satisfies the other rules {violates}: {trees}.',
    CauseKind.NOT_TOGETHER: (
        'Providers that satisfy the other rules of {group} also satisfy {rule}, but not together with the rest of the'
        ' request: {satisfying} of {providers}.'
    ),
    CauseKind.ROOTS_NOT_TOGETHER: (
        'Roots of trees that satisfy the other rules also satisfy {rule}, but not together with the rest of the'
        ' request: {satisfying} of {trees}.'
    ),
    CauseKind.NOT_IN_TREES: (
        '{trees} can satisfy the other rules, but cannot supply {name}, because no own or shared provider of it'
        ' satisfies them.'
    ),
    CauseKind.INSUFFICIENT: 'No provider that satisfies the other rules can allocate {subject}: {shortfalls}.',
    CauseKind.INSUFFICIENT_ANYWHERE: 'No provider can allocate {subject}: {shortfalls}.',
    CauseKind.UNSHARED_WITHOUT_TRAIT: '{names} could provide {subject} with the trait MISC_SHARES_VIA_AGGREGATE.',
    CauseKind.UNSHARED_WITHOUT_AGGREGATE: (
        '{names} could provide {subject} with an aggregate in common with the trees that satisfy the other rules.'
    ),
}
_BLOCKED = {
    Kind.MICROVERSION: (
        'The resources would come from several providers of one tree, which needs microversion 1.29 or later.'
    ),
    Kind.SAME_SUBTREE: (
        'No tree has a provider for one of the groups {subject} at or above providers for the others;'
        ' there would be candidates without {rule}.'
    ),
}
_BLOCKED_OTHERWISE = 'No tree has an own or shared provider that satisfies {rule}; the other rules can be satisfied.'
_BLOCKED_TOGETHER = '{count} rules block the request together. {causes}'
_MANY_BLOCK_TOGETHER = '{count} rules block the request together. These are the causes for {shown} of them: {causes}'
_CONFLICT = (
    'Each part of the request can be satisfied, but not all parts together{conflict}; there would be candidates'
    ' without {rules}.'
)


def explanation_sentence(explanation: Explanation) -> str:
    """Return the sentence that says what a search finds, or why it finds nothing."""
    if explanation.candidates:
        note = ', as many as the limit allows' if explanation.candidates == explanation.limit else ''
        note = ', and there may be more: the search reached a limit' if explanation.limits_reached else note
        return f'Found {units.plural(explanation.candidates, "candidate")}{note}.'
    if not explanation.trees:
        return 'No resource providers are stored.'
    return (_LIMIT_REACHED if explanation.limits_reached else '') + _blocked_sentence(explanation)


def _blocked_sentence(explanation: Explanation) -> str:
    blocking, failures = explanation.blocking_rules, explanation.combination_failures
    causes = {blocker.rule: causes_text(blocker.causes) for blocker in explanation.blockers}
    if not blocking:
        return 'No candidate was found. The search reached its limits before it found the rule that blocks the request.'
    if len(blocking) > 1 and causes:
        shown = [causes.get(rule, f'The rules include {rule_text(rule)}.') for rule in blocking[:_MAX_RULES]]
        sentence = _MANY_BLOCK_TOGETHER if len(blocking) > _MAX_RULES else _BLOCKED_TOGETHER
        return sentence.format(count=len(blocking), shown=len(shown), causes=' '.join(shown))
    if explanation.satisfiable or len(blocking) > 1:
        conflict = f': {tree_conflict_text(failures[0])}' if failures else ''
        return _CONFLICT.format(conflict=conflict, rules=_rules_text(blocking))
    [rule] = blocking
    if rule in causes:
        return causes[rule]
    return _BLOCKED.get(rule.kind, _BLOCKED_OTHERWISE).format(subject=rule.subject, rule=rule_text(rule))


def rule_text(rule: Rule) -> str:
    """Return a rule as in a query, such as ``resources1 VCPU:4``."""
    long = len(rule.suffixes) > _MAX_GROUPS
    suffixes = ','.join((*rule.suffixes[:2], '...', rule.suffixes[-1]) if long else rule.suffixes)
    if rule.kind is Kind.GROUP:
        name = f'group {suffixes} {rule.subject}' if rule.subject else f'resources{suffixes}'
        return f'one of {name}' if len(rule.suffixes) > 1 else name
    if rule.kind is Kind.MICROVERSION:
        return 'the rule of one provider per tree (below 1.29)'
    return 'group_policy=isolate' if rule.kind is Kind.GROUP_POLICY else f'{rule.kind.value}{suffixes} {rule.subject}'


def _rules_text(rules: Sequence[Rule]) -> str:
    all_groups = len(rules) > 1 and all(rule.kind is Kind.GROUP for rule in rules)
    return f'{len(rules)} of the groups' if all_groups else ' and without '.join(map(rule_text, rules))


def rejection_texts(rejected: Mapping[str, int]) -> list[str]:
    """Return counts of rejected inventories, by the value of ``ShortfallKind``, in words; the largest first."""
    words = {'total_capacity': 'with too little total capacity', 'free_capacity': 'full'}
    counts = sorted(rejected.items(), key=operator.itemgetter(1), reverse=True)
    return [f'{count:,} {words.get(kind, f"limited by {kind}")}' for kind, count in counts]


def causes_text(causes: Sequence[Cause]) -> str:
    """Return the causes for which a rule blocks a request, a sentence for each."""
    return ' '.join(map(cause_text, causes))


def cause_text(cause: Cause) -> str:
    """Return one cause as a sentence."""
    rule = cause.rule
    satisfies, violates = _predicates(rule)
    return _CAUSES[cause.kind].format(
        satisfies=satisfies,
        violates=violates,
        rule=rule_text(rule),
        subject=rule.subject,
        name=rule.subject.partition(':')[0],
        group=f'group {rule.suffix}' if rule.suffix else 'the request',
        providers=units.plural(cause.providers, 'provider'),
        trees=units.plural(cause.providers, 'tree'),
        satisfying=cause.satisfying,
        shortfalls='; '.join(map(_shortfall_text, cause.shortfalls)),
        names=_listing(cause.names, cause.providers),
    )


def _predicates(rule: Rule) -> tuple[str, str]:
    """Return predicates for a provider that satisfies a rule, and for one that violates it.

    Examples are ``has the trait CUSTOM_RED`` and ``lacks the trait CUSTOM_RED``.
    """
    match rule.condition:
        case ResourceCondition(name):
            return f'has inventory of {name}', f'has no inventory of {name} itself'
        case TraitCondition((traits,), forbidden=True):
            return f'lacks the forbidden trait {min(traits)}', f'has the forbidden trait {min(traits)}'
        case TraitCondition((traits,)) if len(traits) == 1:
            return f'has the trait {min(traits)}', f'lacks the trait {min(traits)}'
        case TraitCondition((traits,)):
            names = ', '.join(sorted(traits))
            return f'has any of the traits {names}', f'has none of the traits {names}'
        case AggregateCondition((aggregates,), forbidden=True):
            name = f'the forbidden aggregate {min(aggregates)}'
            return f'is not in {name}', f'is in {name}{"" if rule.suffix else ", or its root is"}'
        case AggregateCondition((aggregates,)):
            count = len(aggregates)
            name = f'aggregate {min(aggregates)}' if count == 1 else f'any of the {count} requested aggregates'
            return f'is in {name}', f'is not in {name}'
        case TreeCondition():
            return f'has the uuid {rule.subject} of in_tree', f'is not in the tree of {rule.subject}'
    return f'satisfies {rule_text(rule)}', f'violates {rule_text(rule)}'


def _shortfall_text(shortfall: Shortfall) -> str:
    values = (shortfall.value,) if shortfall.max_value is None else (shortfall.value, shortfall.max_value)
    requested, *texts = _amounts(shortfall.resource_class, shortfall.requested, *values)
    kind, value, providers = shortfall.kind, ' to '.join(texts), units.plural(shortfall.providers, 'provider')
    if kind in {ShortfallKind.TOTAL_CAPACITY, ShortfallKind.FREE_CAPACITY}:
        return f'{kind.replace("_", " ")} below {requested} (max {value}): {providers}'
    return f'{kind} is {value}, requested {requested}: {providers}'


def near_miss_text(near_miss: NearMiss) -> str:
    """Return what a near miss lacks, as a predicate."""
    if near_miss.resource_class is None or near_miss.requested is None or near_miss.free is None:
        return f'would be a candidate without {_rules_text(near_miss.without)}'
    name, missing = near_miss.resource_class, near_miss.requested - near_miss.free
    free, lacks, requested = _amounts(name, near_miss.free, missing, near_miss.requested)
    return f'has {free} {name} free, {lacks} less than the {requested} requested'


def conflict_text(reason: Reason, contention: Contention | None) -> str:
    """Return why a tree cannot serve all groups together, as a clause."""
    if contention is None:
        return reason.value
    requested, available = _amounts(contention.resource_class, contention.requested, contention.available)
    if contention.resource_class:
        return f'{requested} {contention.resource_class} requested in total, {available} free on the eligible providers'
    groups = _listing(contention.groups[:_MAX_GROUPS], len(contention.groups))
    return f'groups {groups} need {requested} different providers, but only {available} can serve them'


def tree_conflict_text(failure: CombinationFailure) -> str:
    """Return in which trees the groups conflict, and why in the first of them, as a clause."""
    root, contention = failure.examples[0]
    tree = _listing([root.display_name], failure.trees)
    return f'in the tree of {tree} {conflict_text(failure.reason, contention)}'


def what_if_text(candidates: int | None, lower_bound: bool) -> str:
    """Return in words how many candidates a search without a rule finds, as in ``WhatIf``."""
    if candidates is None:
        return 'nothing else is requested'
    if lower_bound and not candidates:
        return 'unknown: the search reached a limit'
    return f'{"at least " if lower_bound else ""}{candidates:,}'


def _listing(names: Sequence[str], total: int) -> str:
    return ', '.join(names) + (f' (and {total - len(names):,} more)' if total > len(names) else '')


def _amounts(resource_class: str, *values: int) -> list[str]:
    """Return amounts of a class with their units, or as plain numbers if different ones would look the same."""
    positive = [max(value, 0) for value in values]
    texts = [units.amount(resource_class, value) for value in positive]
    return texts if len(set(texts)) == len(set(positive)) else [f'{value:,}' for value in positive]


# The JSON document --------------------------------------------------------------------------------------------


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation in JSON types."""
    return {
        'sentence': explanation_sentence(explanation),
        **_members(explanation, 'candidates', 'limit', 'rules_not_tried'),
        'first_candidates': list(map(_supplies, explanation.first_candidates)),
        'limits_reached': [limit.value for limit in Limit if limit in explanation.limits_reached],
        'stages': [
            {**_rule(stage.rule), **_members(stage, 'serving', 'providers', 'trees', 'rejected')}
            for stage in explanation.stages
        ],
        'what_if': [
            {**_rule(*what_if.left_out), **_members(what_if, 'candidates', 'lower_bound')}
            for what_if in explanation.what_ifs
        ],
        'blocking_rules': list(map(rule_text, explanation.blocking_rules)),
        'blockers': [
            {
                'rule': rule_text(blocker.rule),
                'cause': causes_text(blocker.causes),
                'trees': blocker.trees,
                'shortfalls': [asdict(shortfall) for cause in blocker.causes for shortfall in cause.shortfalls],
                'notes': list(map(cause_text, blocker.notes)),
            }
            for blocker in explanation.blockers
        ],
        'conflicting_groups': [
            {
                'reason': failure.reason.name.lower(),
                'trees': failure.trees,
                'examples': [
                    {**_name_and_uuid(root), 'detail': conflict_text(failure.reason, contention)}
                    for root, contention in failure.examples
                ],
            }
            for failure in explanation.combination_failures
        ],
        'near_misses': [
            {
                **_name_and_uuid(near_miss.provider),
                **_members(near_miss, 'resource_class', 'requested', 'free'),
                'missing': near_miss_text(near_miss),
            }
            for near_miss in explanation.near_misses
        ],
    }


def _supplies(candidate: CandidateSet) -> list[dict[str, Any]]:
    """Return the providers of a candidate with the amounts by class, and the uuid of the ``root`` of their tree."""
    supplies: dict[str, dict[str, Any]] = {}
    for position, name, amount in candidate.assignment.amounts:
        provider = candidate.search_unit.provider(position)
        supply = {'root': provider.root_provider_uuid or provider.uuid, 'resources': {}}
        supplies.setdefault(provider.uuid, _name_and_uuid(provider) | supply)['resources'][name] = amount
    return list(supplies.values())


def _name_and_uuid(provider: Provider) -> dict[str, Any]:
    return {'name': provider.display_name, 'uuid': provider.uuid}


def _members(fact: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in names}


def _rule(rule: Rule) -> dict[str, Any]:
    """Return a rule in JSON types; ``groups`` lists suffixes, with an empty text for the unsuffixed group."""
    text = rule_text(rule)
    return {'rule': rule.kind.value, 'groups': list(rule.suffixes), 'subject': rule.subject, 'text': text}
