"""Explanations of searches are right: their facts against brute force, over random topologies.

The model here evaluates the checks of one provider at a time and tries every choice of providers. It shares only the
names of rules with the service.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Set
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import event, given

from placement.ops.explain.checks import HOST_CLASSES, Check, Rule
from placement.ops.explain.explanation import BlockedTrees, ClosestProvider, Explanation, explain
from placement.ops.explain.sentences import Writer
from placement.search.budget import SearchBudget
from placement.search.conditions import Fault
from tests.support.search.cached import snapshot_of
from tests.support.search.oracle import RP, SHARES, Group, Oracle, Query, rp
from tests.support.search.random_queries import queries
from tests.support.search.topologies import request_of, thorough, tight_topologies, topologies

#: A check in the model: the parameter, the groups, the subject and the fault.
Key = tuple[str, tuple[str, ...], str, Fault]


def explained(topology: list[RP], query: Query) -> Explanation:
    return explain(snapshot_of(topology, 3), request_of(query), SearchBudget())


def key_of(check: Check) -> Key:
    parameter, subject = check.rule.in_output
    return parameter, check.rule.suffixes, subject, check.fault


def is_state(check: Check) -> bool:
    about_traits = check.rule.parameter in {'required', 'root_required'}
    return check.fault is Fault.FULL or (about_traits and check.rule.subject == 'COMPUTE_STATUS_DISABLED')


class Model:
    """Which trees can serve each part of a query alone if some checks are waived."""

    def __init__(self, topology: list[RP], query: Query, stages: Iterable[Rule]) -> None:
        self.oracle = Oracle(topology)
        self.query = query
        #: The groups with equal requirements, by group.
        self.suffixes = {suffix: rule.suffixes for rule in stages for suffix in rule.suffixes}

    def roots(self) -> list[str]:
        return [rp.name for rp in self.oracle.rps.values() if rp.parent is None]

    def serves(self, root: str, waived: Set[Key]) -> bool:
        """Each group alone has providers in a tree, or shared with it, that fail only checks in ``waived``."""
        return self.failed_by_root(root) <= waived and all(
            any(self.options(group, root, waived)) for group in self.query.groups
        )

    def options(self, group: Group, root: str, waived: Set[Key]) -> Iterable[bool]:
        if group.suffix:
            yield from (
                failed <= waived
                for name in {*self.oracle.tree(root), *self.oracle.reaching(root)}
                for failed in self.failed(name, group, group.resources, root)
            )
            return
        pools = [
            {
                name
                for name in {*self.oracle.tree(root), *self.oracle.reaching(root)}
                for failed in self.failed(name, group, [rc], root)
                if failed <= waived
            }
            for rc in group.resources
        ]
        for names in itertools.product(*pools):
            traits = set().union(*(self.oracle.rps[name].traits for name in names))
            yield self.lacking(traits, group) <= waived

    def suffixes_of(self, group: Group) -> tuple[str, ...]:
        return self.suffixes.get(group.suffix, (group.suffix,))

    def lacking(self, traits: set[str], group: Group) -> set[Key]:
        sets = [*({name} for name in group.required), *group.any_of]
        subjects = [('in:' if len(names) > 1 else '') + ','.join(sorted(names)) for names in sets if not names & traits]
        return {('required', self.suffixes_of(group), subject, Fault.VIOLATED) for subject in subjects}

    def failed(self, name: str, group: Group, classes: Iterable[str], root: str) -> Iterable[set[Key]]:
        """The checks that a provider fails, with each way to satisfy ``member_of``; none if it is no choice."""
        suffixes, rp, own = self.suffixes_of(group), self.oracle.rps[name], self.oracle.root(name) == root
        in_tree = self.oracle.in_requested_tree(name, group) and (own or group.suffix or group.in_tree is None)
        # Each fault, and whether it is final for a pool: nobody would add inventory of the class to it, stop its
        # sharing, or move it to the tree.
        faults = [
            *(
                ('resources', f'{rc}:{group.resources[rc]}', fault, fault is Fault.ABSENT)
                for rc in classes
                for fault in self.faults(name, rc, group.resources[rc])
            ),
            *(('forbidden', trait, Fault.VIOLATED, trait == SHARES) for trait in group.forbidden & rp.traits),
            *(('member_of', f'!{name}', Fault.VIOLATED, False) for name in group.not_member_of & rp.aggregates),
        ]
        if not in_tree:
            faults.append(('in_tree', f'uuid of {group.in_tree}', Fault.VIOLATED, group.in_tree in self.oracle.rps))
        if not own and any(final for *_, final in faults):
            return
        failed = {(parameter, suffixes, subject, fault) for parameter, subject, fault, _ in faults}
        if group.suffix:
            failed |= self.lacking(rp.traits, group)
        members = [name, root] if own and not group.suffix else [name]
        for member in members:
            outside = [names for names in group.member_of if not names & self.oracle.rps[member].aggregates]
            yield failed | {('member_of', suffixes, ','.join(sorted(names)), Fault.VIOLATED) for names in outside}

    def faults(self, name: str, rc: str, amount: int) -> set[Fault]:
        record = self.oracle.rps[name].inventory.get(rc)
        if record is None:
            return {Fault.ABSENT, Fault.TOO_SMALL, Fault.FULL}
        if self.oracle.can_allocate(name, rc, amount):
            return set()
        empty = RP(name, inventory={rc: {**record, 'used': 0}})
        return {Fault.FULL} if Oracle([empty]).can_allocate(name, rc, amount) else {Fault.TOO_SMALL, Fault.FULL}

    def failed_by_root(self, root: str) -> set[Key]:
        traits, aggregates, query = self.oracle.rps[root].traits, self.oracle.rps[root].aggregates, self.query
        failed: set[Key] = {('root_required', (), name, Fault.VIOLATED) for name in query.root_required - traits}
        failed |= {('root_required', (), f'!{name}', Fault.VIOLATED) for name in query.root_forbidden & traits}
        for group in query.groups:
            if not group.suffix:
                forbidden = group.not_member_of & aggregates
                failed |= {('member_of', ('',), f'!{name}', Fault.VIOLATED) for name in forbidden}
        return failed


def waivers(checks: Iterable[Check]) -> set[Key]:
    """The checks with the better faults of each amount, which a worse one includes."""
    better = {Fault.ABSENT: [Fault.TOO_SMALL, Fault.FULL], Fault.TOO_SMALL: [Fault.FULL]}
    return {
        key_of(replace(check, fault=fault)) for check in checks for fault in [check.fault, *better.get(check.fault, [])]
    }


def smaller(checks: Iterable[Check]) -> Iterable[set[Key]]:
    """The sets without one check, or with a better fault in its place."""
    whole = waivers(checks)
    return [whole - {key_of(check)} for check in checks]


def check(topology: list[RP], query: Query) -> Explanation:
    result = explained(topology, query)
    candidates = len(Oracle(topology).entries(query))
    assert result.candidates == (candidates if query.limit is None else min(candidates, query.limit))
    orjson.dumps(Writer().document(result))
    model = Model(topology, query, [stage.rule for stage in result.stages])
    assert result.trees == result.examined == len(model.roots())
    assert result.placeable == sum(model.serves(root, set()) for root in model.roots())
    check_stages(model, result)
    check_sentences(topology, query, Writer().sentences(result))
    if not result.placeable:
        check_blocked(model, result)
        check_pools(topology, query, result)
    else:
        check_between(topology, query, result)
    return result


def check_sentences(topology: list[RP], query: Query, sentences: list[str]) -> None:
    """What they say of traits holds for whole trees, without pools, unless they name a scope.

    A tree is no host if neither it nor a pool has a requested class of hosts.
    """
    oracle = Oracle(topology)
    requested = {name for group in query.groups for name in group.resources} & HOST_CLASSES
    hosts = []
    for root in Model(topology, query, []).roots():
        reachable = {*oracle.tree(root), *oracle.reaching(root)}
        if requested <= set().union(*(oracle.rps[name].inventory for name in reachable)):
            hosts.append(oracle.tree(root))
    for sentence in sentences:
        if both := re.search(r'^No (?:host|tree) with (\S+) (has|lacks) (\S+?)\.$', sentence):
            assert (both[2], both[1]) != ('has', both[3]), sentence
        if plain := re.search(r'^No (?:host|tree) (has|lacks) ((?:CUSTOM|HW|MISC)_\w+)\.$', sentence):
            verb, trait = plain.groups()
            event(f'no host {verb} a trait')
            for names in hosts:
                has_trait = any(trait in oracle.rps[name].traits for name in names)
                assert has_trait == (verb == 'lacks'), sentence


def check_stages(model: Model, result: Explanation) -> None:
    """The number of trees that pass the rules up to each one."""
    rules = [stage.rule for stage in result.stages]
    for number, stage in enumerate(result.stages):
        later = {key for rule in rules[number + 1 :] for key in waivers([Check(rule, Fault.ABSENT), Check(rule)])}
        assert stage.trees == sum(model.serves(root, later) for root in model.roots()), stage
        before = result.stages[number - 1].trees if number else result.examined
        assert stage.trees == before - sum(stage.excluded.values())


def check_blocked(model: Model, result: Explanation) -> None:
    assert result.blocked
    for blocked in result.blocked:
        event(f'{len(blocked.checks)} block')
        rescued = [root for root in model.roots() if model.serves(root, waivers(blocked.checks))]
        assert blocked.trees == len(rescued) > 0, blocked
        assert {root.name for root in blocked.examples} <= set(rescued)
        for fewer in smaller(blocked.checks):
            assert not any(model.serves(root, fewer) for root in model.roots()), blocked
        check_closest(model, blocked)
    states = {
        key_of(check)
        for stage in result.stages
        for check in [Check(stage.rule), Check(stage.rule, Fault.FULL)]
        if is_state(check)
    }
    suitable = [root for root in model.roots() if model.serves(root, states)]
    assert result.suitable == len(suitable) == sum(state.trees for state in result.states)
    for state in result.states:
        assert all(map(is_state, state.checks))
        for root in state.examples:
            assert model.serves(root.name or '', waivers(state.checks))
            assert not any(model.serves(root.name or '', fewer) for fewer in smaller(state.checks))
        check_closest(model, state)


def check_closest(model: Model, blocked: BlockedTrees) -> None:
    """With the amount that is named, there is a tree that the provider serves."""
    if blocked.closest is None:
        return
    [check] = blocked.checks
    provider, free = blocked.closest.provider, blocked.closest.free
    if blocked.closest.limit:
        check_limit(check, model.oracle.rps[provider.name or ''], blocked.closest)
    if blocked.closest.limit or not free:
        return
    event('closest')
    query = copy.deepcopy(model.query)
    for group in query.groups:
        if group.suffix in check.rule.suffixes:
            group.resources[check.resource_class] = free
    changed = Model([*model.oracle.rps.values()], query, [])
    changed.suffixes = model.suffixes
    roots = [
        root for root in model.roots() if provider.name in {*model.oracle.tree(root), *model.oracle.reaching(root)}
    ]
    assert any(changed.serves(root, set()) for root in roots), blocked


def check_limit(check: Check, rp: RP, closest: ClosestProvider) -> None:
    """The provider has this limit, and the amount violates it."""
    name, _, amount = check.rule.subject.partition(':')
    record = rp.inventory[name]
    event(closest.limit)
    limits = {
        'capacity': int(amount) > int((record['total'] - record['reserved']) * record['allocation_ratio']),
        'max_unit': int(amount) > record['max_unit'],
        'min_unit': int(amount) < record['min_unit'],
        'step_size': int(amount) % record['step_size'] != 0,
    }
    assert limits[closest.limit], closest
    assert closest.limit == 'capacity' or closest.free == record[closest.limit]


def check_pools(topology: list[RP], query: Query, result: Explanation) -> None:
    """With the aggregates that are missing, or the trait, as many trees can serve each part as are counted."""
    for pool in result.pools:
        event(f'a pool that {"reaches" if pool.reaches else "does not reach"} trees, {len(pool.missing)} missing')
        changed = copy.deepcopy(topology)
        provider = next(rp for rp in changed if rp.name == pool.provider.name)
        assert not provider.inventory.keys() & {'VCPU', 'PCPU', 'MEMORY_MB'} or pool.shares
        provider.traits.add(SHARES)
        missing = {check.rule.subject.split(',')[0] for check in pool.missing}
        if any(missing & group.not_member_of for group in query.groups):
            # Another group would lose the pool.
            continue
        provider.aggregates |= missing
        if not pool.reaches:
            # An aggregate of its own, so that it reaches every tree.
            for rp in changed:
                rp.aggregates.add('everywhere')
        model = Model(changed, query, [stage.rule for stage in result.stages])
        rescued = [root for root in model.roots() if model.serves(root, set())]
        assert pool.trees <= len(rescued), pool
        common = [set(rp.aggregates) for rp in topology]
        assert not pool.aggregates or set(pool.aggregates) <= set().union(*common)


def check_between(topology: list[RP], query: Query, result: Explanation) -> None:
    """Each rule between groups without which there are candidates is named, with the number of their trees.

    A candidate of sharing providers alone counts in their own trees, not in each tree that they reach.
    """
    if result.candidates:
        return
    changes: dict[Rule, dict[str, Any]] = {}
    if query.minor < 29:
        changes[Rule('microversion', (), 'below 1.29')] = {'minor': 29}
    if query.policy == 'isolate' and sum(bool(group.suffix) for group in query.groups) > 1:
        changes[Rule('group_policy', (), 'isolate')] = {'policy': 'none'}
    for names in query.same_subtree:
        subtrees = [other for other in query.same_subtree if set(other) != set(names)]
        changes[Rule('same_subtree', (), ','.join(sorted(names)))] = {'same_subtree': subtrees}
    oracle = Oracle(topology)
    roots = [rp.name for rp in topology if rp.parent is None]

    def has_candidate(changed: Query, root: str) -> bool:
        """Whether there is a candidate with a provider of the tree."""
        entries = oracle.entries_in_tree(changed, root)
        # A group without resources has a provider, too.
        parts = (({name for name, _, _ in entry.body}, *dict(entry.mappings or ()).values()) for entry in entries)
        return any(oracle.root(name) == root for names in parts for name in set().union(*names))

    expected = {
        rule: sum(has_candidate(replace(query, **change), root) for root in roots) for rule, change in changes.items()
    }
    for fact in result.between:
        event(f'blocked by {fact.rule.parameter}')
        assert not fact.at_least
    assert {fact.rule: fact.trees for fact in result.between} == {rule: n for rule, n in expected.items() if n}


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
    if not result.candidates and result.placeable:
        event('together')
        assert result.conflicts
        assert result.conflicts[0].example.display_name == 'root'


@pytest.mark.parametrize(
    ('topology', 'group', 'sentence'),
    [
        (
            [
                *(rp(name, aggregates='a', VCPU=8) for name in ('host-1', 'host-2')),
                rp('nfs', aggregates='a', traits={'CUSTOM_A', SHARES}, DISK_GB=100),
            ],
            Group('', {'VCPU': 1, 'DISK_GB': 10}, forbidden={'CUSTOM_A'}),
            'No host lacks CUSTOM_A on the provider for DISK_GB.',
        ),
        (
            [rp('host', VCPU=8), rp('pf', parent='host', traits={'CUSTOM_A'})],
            Group('', {'VCPU': 1}, required={'CUSTOM_A'}),
            'No host has CUSTOM_A on the provider for VCPU.',
        ),
        (
            [
                rp('h1', VCPU=8),
                rp('n0', parent='h1', traits={'CUSTOM_B'}, MEMORY_MB=64),
                rp('n1', parent='h1', traits={'CUSTOM_A'}, MEMORY_MB=64),
                rp('h2', VCPU=8),
            ],
            Group('', {'VCPU': 1, 'MEMORY_MB': 1}, forbidden={'CUSTOM_A', 'CUSTOM_B'}),
            'No host without CUSTOM_B on the provider for MEMORY_MB lacks CUSTOM_A on the provider for MEMORY_MB.',
        ),
    ],
)
def test_sentences_name_the_provider_that_fails(topology: list[RP], group: Group, sentence: str) -> None:
    query = Query([group])
    sentences = Writer().sentences(explained(topology, query))
    assert sentences[0] == sentence
    check_sentences(topology, query, sentences)


def test_groups_of_one_trait_are_told_apart() -> None:
    topology = [
        rp('h1', VCPU=8),
        rp('n0', parent='h1', traits={'CUSTOM_B'}, MEMORY_MB=64),
        rp('n1', parent='h1', traits={'CUSTOM_A'}, MEMORY_MB=64),
        rp('h2', VCPU=8),
    ]
    groups = [Group('', {'VCPU': 1}, required={'CUSTOM_A'}), Group('_A', {'MEMORY_MB': 1}, required={'CUSTOM_A'})]
    [sentence, *_] = Writer().sentences(explained(topology, Query(groups)))
    assert sentence == 'No host with CUSTOM_A on the provider for group _A has CUSTOM_A on the provider for VCPU.'


def test_trees_that_fail_more_different_checks_than_a_word_has_bits() -> None:
    """Each of 70 hosts lacks another trait, so each is a near miss of its own."""
    names = [f'CUSTOM_T{number:02}' for number in range(70)]
    topology = [rp(f'host-{name}', traits=set(names) - {name}, VCPU=8) for name in names]
    result = explained(topology, Query([Group('1', {'VCPU': 4}, required=set(names))]))
    assert [stage.trees for stage in result.stages] == list(range(70, -1, -1))
    examples = {blocked.checks[0].rule.subject: [root.name for root in blocked.examples] for blocked in result.blocked}
    assert len(examples) == 20
    assert all(hosts == [f'host-{name}'] for name, hosts in examples.items())
