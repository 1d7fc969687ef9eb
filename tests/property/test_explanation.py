"""Explanations of searches are right: their numbers against the brute-force oracle, over random topologies."""

from __future__ import annotations

import copy
from dataclasses import replace

import orjson
from hypothesis import event, given

from placement.ops.explain.explanation import Explanation, explain
from placement.ops.explain.rules import Kind, Rule
from placement.ops.explain.sentences import explanation_document, rule_text, what_if_text
from placement.search.budget import SearchBudget
from tests.support.search.cached import snapshot_of
from tests.support.search.oracle import RP, Group, Oracle, Query, record
from tests.support.search.random_queries import queries
from tests.support.search.topologies import TRAITS, request_of, thorough, tight_topologies, topologies


def explained(topology: list[RP], query: Query) -> Explanation:
    return explain(snapshot_of(topology, 3), request_of(query), SearchBudget())


def without(query: Query, rules: list[Rule]) -> Query | None:
    """The query without some of its rules, removed as a person would edit it."""
    groups = copy.deepcopy(query.groups)
    policy, minor, removed = query.policy, query.minor, set()
    root_required, root_forbidden = set(query.root_required), set(query.root_forbidden)
    subtrees = list(query.same_subtree)
    for rule in rules:
        if rule.kind is Kind.GROUP_POLICY:
            policy = 'none'
        elif rule.kind is Kind.ROOT_REQUIRED:
            (root_forbidden if rule.subject[0] == '!' else root_required).discard(rule.subject.removeprefix('!'))
        elif rule.kind is Kind.SAME_SUBTREE:
            subtrees = [subtree for subtree in subtrees if subtree != set(rule.subject.split(','))]
        elif rule.kind is Kind.MICROVERSION:
            minor = 29
        elif rule.kind is Kind.GROUP:
            removed.add([suffix for suffix in rule.suffixes if suffix not in removed][-1])
        else:
            for group in groups:
                if group.number in rule.suffixes:
                    _edit(group, rule)
    bare = {group.number for group in query.groups if not group.resources}
    remaining = [group for group in groups if (group.resources or group.number in bare) and group.number not in removed]
    if not any(group.resources for group in remaining):
        return None
    suffixes = {group.number for group in remaining}
    return replace(
        query,
        groups=remaining,
        policy=policy,
        minor=minor,
        root_required=root_required,
        root_forbidden=root_forbidden,
        same_subtree=[subtree & suffixes for subtree in subtrees if subtree & suffixes],
    )


def _edit(group: Group, rule: Rule) -> None:
    if rule.kind is Kind.RESOURCES:
        group.resources.pop(rule.subject.split(':')[0], None)
    elif rule.kind is Kind.REQUIRED:
        traits = set(rule.subject.removeprefix('in:').split(','))
        group.required = group.required - traits if len(traits) == 1 else group.required
        group.any_of = [any_of for any_of in group.any_of if any_of != traits]
    elif rule.kind is Kind.FORBIDDEN:
        group.forbidden = group.forbidden - {rule.subject}
    elif rule.kind is Kind.IN_TREE:
        group.in_tree = None
    elif rule.subject[0] == '!':
        group.not_member_of = group.not_member_of - {rule.subject[1:]}
    else:
        group.member_of = [any_of for any_of in group.member_of if ','.join(sorted(any_of)) != rule.subject]


def check(topology: list[RP], query: Query) -> Explanation:
    result = explained(topology, query)
    oracle = Oracle(topology)
    candidates = len(oracle.entries(query))
    assert result.candidates == (candidates if query.limit is None else min(candidates, query.limit))
    assert not candidates or all(stage.trees for stage in result.stages)
    document = explanation_document(result)
    assert document['sentence'].endswith('.')
    assert '\n' not in document['sentence']
    orjson.dumps(document)
    for what_if in result.what_ifs:
        rest = without(query, list(what_if.left_out))
        possible = None if rest is None else len(oracle.entries(rest))
        if what_if.lower_bound:
            assert possible is not None
            assert what_if.candidates is not None
            assert 100 <= what_if.candidates < possible, what_if
        else:
            assert what_if.candidates == possible, what_if
    if not result.candidates:
        check_blocking_rules(topology, query, result)
        check_near_misses(topology, query, result)
    return result


def check_blocking_rules(topology: list[RP], query: Query, result: Explanation) -> None:
    assert result.blocking_rules
    event(f'{len(result.blocking_rules)} blocking: {result.blocking_rules[0].kind.value}')
    rest = without(query, list(result.blocking_rules))
    assert rest is None or Oracle(topology).candidates(rest)
    if len(result.blocking_rules) > 1 and rest is not None:
        for rule in result.blocking_rules:
            fewer = without(query, [other for other in result.blocking_rules if other is not rule])
            assert fewer is not None
            assert not Oracle(topology).candidates(fewer), rule


def check_near_misses(topology: list[RP], query: Query, result: Explanation) -> None:
    oracle = Oracle(topology)
    for near in result.near_misses:
        if near.resource_class is not None:
            event('near_misses: full')
            assert near.requested is not None
            assert near.free is not None
            changed = copy.deepcopy(topology)
            record = next(rp for rp in changed if rp.name == near.provider.display_name).inventory[near.resource_class]
            assert (
                near.free
                == int(oracle.capacity(near.provider.display_name, near.resource_class)) - record['used']
                < near.requested
            )
            record['used'] -= near.requested - near.free
            assert record['used'] >= 0
            assert Oracle(changed).candidates(query), near
        else:
            event('near_misses: tree')
            rest = without(query, list(near.without))
            assert rest is not None, near
            reached = {oracle.root(name) for body in oracle.candidates(rest) for name, _, _ in body}
            assert near.provider.display_name in reached


@thorough(1400)
@given(topologies(6), queries())
def test_numbers_and_names_are_true(topology: list[RP], query: Query) -> None:
    result = check(topology, query)
    event(f'found: {min(result.candidates, 1)}')


@thorough(100)
@given(tight_topologies())
def test_groups_that_compete(case: tuple[list[RP], Query]) -> None:
    topology, query = case
    result = check(topology, query)
    if not result.candidates and result.stages[-1].trees:
        event('together')
        assert result.combination_failures
        root, _ = result.combination_failures[0].examples[0]
        assert root.display_name == 'root'


@thorough(200)
@given(topologies(), queries((21, 24, 29)))
def test_each_condition_is_counted_like_the_oracle(topology: list[RP], query: Query) -> None:
    """The providers that pass the conditions of a group up to each one; ``member_of`` by aggregates of the root too."""
    result = explained(topology, query)
    oracle = Oracle(topology)
    for group in query.groups:
        stages = [stage for stage in result.stages if stage.rule.suffixes == (group.number,)]
        passing = set(oracle.rps)
        member_of: list[set[str]] = []
        for stage in stages:
            kind, subject = stage.rule.kind, stage.rule.subject
            if kind is Kind.RESOURCES:
                rc, amount = subject.split(':')
                passing = passing if group.number else set(oracle.rps)
                member_of = member_of if group.number else []
                passing = {name for name in passing if oracle.can_allocate(name, rc, int(amount))}
            elif kind is Kind.REQUIRED and not group.number:
                assert stage.providers == sum(subject in rp.traits for rp in topology)
                continue
            elif kind is Kind.REQUIRED:
                passing = {name for name in passing if subject in oracle.rps[name].traits}
            elif kind is Kind.FORBIDDEN:
                passing = {name for name in passing if subject not in oracle.rps[name].traits}
            else:
                member_of.append(set(subject.split(',')))
                judged = {name: [name] if group.number else [name, oracle.root(name)] for name in passing}
                passing = {n for n in passing if any(oracle.inside(member, member_of) for member in judged[n])}
            assert stage.providers == len(passing), stage


def test_a_bound_that_was_reached_is_reported() -> None:
    topology = [RP(f'host{n}', inventory={'VCPU': record(4)}) for n in range(1001)]
    query = Query([Group('', {'VCPU': 1}, {TRAITS[0]})])
    result = explain(snapshot_of(topology, 3), request_of(query), SearchBudget())
    assert [
        (rule_text(*what_if.left_out), what_if_text(what_if.candidates, what_if.lower_bound))
        for what_if in result.what_ifs
    ] == [
        ('resources VCPU:1', 'nothing else is requested'),
        (f'required {TRAITS[0]}', 'at least 1,000'),
    ]
