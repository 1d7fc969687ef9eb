"""Why a search for candidates finds nothing: the sentence, what each rule leaves, and the limits of the work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import os_traits
import pytest

from placement.ops.explain import explanation
from placement.ops.explain.blockers import Cause, CauseKind
from placement.ops.explain.explanation import Explanation, explain
from placement.ops.explain.rules import Kind, Rule
from placement.ops.explain.sentences import (
    cause_text,
    causes_text,
    explanation_sentence,
    near_miss_text,
    rule_text,
    what_if_text,
)
from placement.search import parsing
from placement.search.assignments import find_candidate_sets
from placement.search.budget import Limit, SearchBudget
from placement.search.requirements import CompiledRequest, TraitCondition
from placement.search.solver.variables import Reason
from placement.web.context import RequestContext
from tests.support.fixtures import Counter
from tests.support.search import hard
from tests.support.search.cached import snapshot_of
from tests.support.search.examples import TOPOLOGIES
from tests.support.search.oracle import RP, record, rp
from tests.support.search.query_strings import uuid_of, with_uuids
from tests.support.search.store import store
from tests.support.search.topologies import request_of

AVX2 = 'HW_CPU_X86_AVX2'


def _explained(context: RequestContext, topology: list[RP], query: str, minor: int = 39) -> Explanation:
    """Store a topology, and explain a query, in which aggregates and providers are given by name."""
    store(context.db, topology)
    request = parsing.parse(with_uuids(query), (1, minor))
    return explain(context.provider_cache.up_to_date(), request, SearchBudget())


# The sentence -----------------------------------------------------------------------------------------------------


def _ports() -> list[RP]:
    """Two hosts, each with two network cards of one port each; host2 is disabled, and card1 of host1 is on net1."""
    topology = []
    for host in ('host1', 'host2'):
        disabled = ['COMPUTE_STATUS_DISABLED'] if host == 'host2' else []
        topology.append(rp(host, aggregates=f'az-{host}', traits=disabled, VCPU=8))
        for card in ('card1', 'card2'):
            topology.append(rp(f'{host}-{card}', host, traits=['CUSTOM_NET1'] if card == 'card1' else ['CUSTOM_NET2']))
            topology.append(rp(f'{host}-{card}-port', f'{host}-{card}', SRIOV_NET_VF=4, VCPU=2))
    return topology


HOSTS = [rp(f'host{n}', aggregates='rack', traits=[AVX2][: n < 2], VCPU=8) for n in range(5)]
FULL = {'total': 8, 'used': 8}
HOST_AND_DISK = f'resources1=VCPU:1&required1={AVX2}&resources=DISK_GB:100'
PORT = 'resources_P=SRIOV_NET_VF:1&required_C=CUSTOM_NET1'
NET2 = '&required_D=CUSTOM_NET2&group_policy=none'

#: By what is asked: the providers, the query, and the sentence, or a part of it after an ellipsis.
SENTENCES: dict[str, tuple[list[RP], str, str]] = {
    'nothing is stored': ([], 'resources=VCPU:1', 'No resource providers are stored.'),
    'a class that no provider has': (
        [rp('host', VCPU=8)],
        'resources=VCPU:1,VGPU:1',
        'No provider has inventory of VGPU.',
    ),
    'an amount that breaks the units of every host': (
        [
            rp('small', MEMORY_MB={'total': 8192, 'max_unit': 2048}),
            *(rp(f'large{used}', MEMORY_MB={'total': 8192, 'used': used}) for used in (4096, 5120)),
        ],
        'resources=MEMORY_MB:8192',
        (
            'No provider can allocate MEMORY_MB:8192: max_unit is 2 GiB, requested 8 GiB: 1 provider; free capacity'
            ' below 8 GiB (max 4 GiB): 2 providers.'
        ),
    ),
    'a trait that no provider has, and too few providers': (
        [rp('host', VCPU=8)],
        f'resources1=VCPU:1&required1={AVX2}&resources2=VCPU:1&required2={AVX2}&group_policy=isolate',
        (
            f'2 rules block the request together. No provider has the trait {AVX2}. The rules include'
            ' group_policy=isolate.'
        ),
    ),
    'more traits that no provider has than are named': (
        [rp('host', VCPU=8)],
        f'resources=VCPU:1&required={AVX2},HW_CPU_X86_AVX,HW_CPU_X86_SSE,HW_CPU_X86_MMX',
        '... 4 rules block the request together. These are the causes for 3 of them: No provider has the trait ',
    ),
    'a trait of a group that equals another one without it': (
        [rp('host', VCPU=8), rp('other', traits=[AVX2], DISK_GB=8)],
        f'resources1=VCPU:1&resources2=VCPU:1&required2={AVX2}&group_policy=none',
        f'Each provider that satisfies the other rules of group 2 lacks the trait {AVX2}: 1 provider.',
    ),
    'a disk that is shared and too small': (
        [*HOSTS, rp('small', aggregates='rack', shares=True, DISK_GB=10)],
        HOST_AND_DISK,
        (
            'No provider that satisfies the other rules can allocate DISK_GB:100: total capacity below 100 GiB (max 10'
            ' GiB): 1 provider.'
        ),
    ),
    'groups that need different providers': (
        TOPOLOGIES['X5'],
        'resources1=VCPU:1&resources2=MEMORY_MB:512&group_policy=isolate',
        '... groups 1, 2 need 2 different providers, but only 1 can serve them',
    ),
    'a trait that the roots lack': (
        _ports(),
        'resources=VCPU:8&root_required=CUSTOM_NET1',
        'The root of each tree that satisfies the other rules lacks the trait CUSTOM_NET1: 2 trees.',
    ),
    'a forbidden trait of the root, which all providers have': (
        [rp('host', traits=['COMPUTE_STATUS_DISABLED'], VCPU=8)],
        'resources=VCPU:8&root_required=!COMPUTE_STATUS_DISABLED',
        'The root of each tree that satisfies the other rules has the forbidden trait COMPUTE_STATUS_DISABLED: 1 tree.',
    ),
    'in_tree of an unknown provider': (
        _ports(),
        'resources_P=SRIOV_NET_VF:1&in_tree_P=nobody',
        f'No provider has the uuid {uuid_of("nobody")} of in_tree.',
    ),
    'forbidden aggregates': (
        _ports(),
        'resources1=VCPU:8&member_of1=!in:az-host1,az-host2',
        (
            'Each provider that satisfies the other rules of group 1 is in the forbidden aggregate'
            f' {max(uuid_of("az-host1"), uuid_of("az-host2"))}: 1 provider.'
        ),
    ),
    'none of several traits': (
        _ports(),
        'resources1=SRIOV_NET_VF:1&required1=in:CUSTOM_NET1,HW_CPU_X86_AVX&required1=!CUSTOM_NET2',
        (
            'Each provider that satisfies the other rules of group 1 has none of the traits CUSTOM_NET1, HW_CPU_X86_AVX'
            ': 4 providers.'
        ),
    ),
    'no common subtree': (
        _ports(),
        f'{PORT}{NET2}&same_subtree=_P,_C&same_subtree=_C,_D',
        (
            'No tree has a provider for one of the groups _C,_D at or above providers for the others; there would be'
            ' candidates without same_subtree _C,_D.'
        ),
    ),
    'subtrees that exist alone but not together': (
        _ports(),
        f'{PORT}{NET2}&same_subtree=_P,_C&same_subtree=_P,_D',
        (
            'Each part of the request can be satisfied, but not all parts together: in the tree of host1 (and 1 more) a'
            ' provider is not in one subtree with the providers of other groups; there would be candidates without'
            ' same_subtree _C,_P.'
        ),
    ),
}


RED = Rule(Kind.REQUIRED, ('1', '2'), 'CUSTOM_RED', TraitCondition((frozenset({'CUSTOM_RED'}),)))


@pytest.mark.parametrize('asked', SENTENCES)
def test_the_sentence_names_what_has_to_change(context: RequestContext, asked: str) -> None:
    topology, query, sentence = SENTENCES[asked]
    shown = explanation_sentence(_explained(context, topology, query))
    assert sentence.removeprefix('... ') in shown if sentence.startswith('... ') else shown == sentence


@pytest.mark.parametrize(
    ('cause', 'text'),
    [
        (Cause(CauseKind.NONE_LEFT, RED), 'No provider satisfies the other rules of group 1.'),
        (
            Cause(CauseKind.NOT_TOGETHER, RED, 3, 1),
            (
                'Providers that satisfy the other rules of group 1 also satisfy required1,2 CUSTOM_RED, but not'
                ' together with the rest of the request: 1 of 3 providers.'
            ),
        ),
        (
            Cause(CauseKind.ROOTS_NOT_TOGETHER, replace(RED, kind=Kind.ROOT_REQUIRED, suffixes=()), 3, 2),
            (
                'Roots of trees that satisfy the other rules also satisfy root_required CUSTOM_RED, but not together'
                ' with the rest of the request: 2 of 3 trees.'
            ),
        ),
    ],
)
def test_causes_that_no_example_above_has(cause: Cause, text: str) -> None:
    assert cause_text(cause) == text


def test_below_1_29_the_sentence_names_the_rule_about_trees(context: RequestContext) -> None:
    result = _explained(context, TOPOLOGIES['X4'], 'resources=VCPU:4,MEMORY_MB:1024', 28)
    assert rule_text(result.stages[-1].rule) == 'the rule of one provider per tree (below 1.29)'
    assert 'several providers of one tree' in explanation_sentence(result)


# The numbers and names --------------------------------------------------------------------------------------------


def _rows(result: Explanation) -> list[tuple[str, str, int, int]]:
    return [(stage.rule.kind.value, stage.rule.subject, stage.providers, stage.trees) for stage in result.stages]


def _what_ifs(result: Explanation) -> list[tuple[str, int | None]]:
    return [(rule_text(*what_if.left_out), what_if.candidates) for what_if in result.what_ifs]


def test_an_explanation_counts_the_providers_that_each_rule_leaves(context: RequestContext) -> None:
    query = f'resources1=VCPU:4,MEMORY_MB:1000&required1={AVX2},!CUSTOM_GREEN&member_of1=x'
    result = _explained(context, TOPOLOGIES['X1'], query)
    assert _rows(result) == [
        ('resources', 'VCPU:4', 2, 2),
        ('resources', 'MEMORY_MB:1000', 1, 1),
        ('required', AVX2, 1, 1),
        ('forbidden', 'CUSTOM_GREEN', 0, 0),
        ('member_of', uuid_of('x'), 0, 0),
    ]
    assert [stage.rejected for stage in result.stages[:2]] == [{'total_capacity': 1}, {'step_size': 1}]
    [near_miss] = result.near_misses
    without = f'without forbidden1 CUSTOM_GREEN and without member_of1 {uuid_of("x")}'
    assert (near_miss.provider.name, near_miss_text(near_miss)) == ('host2', f'would be a candidate {without}')


def test_the_rules_of_1_39_are_counted(context: RequestContext) -> None:
    result = _explained(context, _ports(), f'resources=VCPU:8&root_required=!COMPUTE_STATUS_DISABLED,{AVX2}')
    assert _rows(result) == [
        ('root_required', AVX2, 0, 0),
        ('root_required', '!COMPUTE_STATUS_DISABLED', 0, 0),
        ('resources', 'VCPU:8', 2, 0),
    ]
    assert _what_ifs(result) == [
        (f'root_required {AVX2}', 1),
        ('root_required !COMPUTE_STATUS_DISABLED', 0),
        ('resources VCPU:8', None),
    ]
    result = _explained(context, _ports(), f'{PORT}&group_policy=none&same_subtree=_P,_C')
    assert _what_ifs(result) == [
        ('resources_P SRIOV_NET_VF:1', None),
        # Any provider that is above a port, or is one, twice for that of the host.
        ('required_C CUSTOM_NET1', 12),
        ('same_subtree _C,_P', 4),
        ('resources_P', None),
        ('group _C without resources', 4),
    ]


def test_a_trait_stays_required_without_a_set_that_also_has_it(context: RequestContext) -> None:
    query = f'resources1=VCPU:1&required1=HW_CPU_X86_AVX&required1=in:HW_CPU_X86_AVX,{AVX2}'
    assert _what_ifs(_explained(context, HOSTS, query)) == [
        ('resources1 VCPU:1', None),
        ('required1 HW_CPU_X86_AVX', 2),
        (f'required1 in:HW_CPU_X86_AVX,{AVX2}', 0),
    ]


def test_isolation_is_a_rule_only_between_suffixed_groups(context: RequestContext) -> None:
    result = _explained(context, _ports(), 'resources=VCPU:8&resources1=SRIOV_NET_VF:1&group_policy=isolate')
    assert [rule for rule, _ in _what_ifs(result)] == ['resources VCPU:8', 'resources1 SRIOV_NET_VF:1', 'resources1']


def test_a_forbidden_aggregate_of_the_unsuffixed_group_excludes_trees(context: RequestContext) -> None:
    result = _explained(context, _ports(), 'resources=SRIOV_NET_VF:1&in_tree=host1&member_of=!az-host1')
    forbidden = uuid_of('az-host1')
    assert [(stage.rule.subject, stage.serving, stage.providers, stage.trees) for stage in result.stages] == [
        (f'!{forbidden}', 'the root', 1, 1),
        ('SRIOV_NET_VF:1', '', 4, 1),
        (f'!{forbidden}', 'SRIOV_NET_VF', 4, 1),
        (uuid_of('host1'), 'SRIOV_NET_VF', 2, 0),
    ]
    query = 'resources=VCPU:8&required=!COMPUTE_STATUS_DISABLED&member_of=!az-host1'
    each = 'Each provider that satisfies the other rules of the request'
    assert [causes_text(blocker.causes) for blocker in _explained(context, _ports(), query).blockers] == [
        f'{each} has the forbidden trait COMPUTE_STATUS_DISABLED: 1 provider.',
        f'{each} is in the forbidden aggregate {forbidden}, or its root is: 1 provider.',
    ]
    # The trees that a blocker counts satisfy the rules about roots, also if nothing else is requested.
    [blocker] = _explained(context, _ports(), 'resources=VGPU:1&member_of=!az-host1').blockers
    assert (blocker.trees, causes_text(blocker.causes)) == (1, 'No provider has inventory of VGPU.')


def test_providers_that_could_share_their_disk_are_named(context: RequestContext) -> None:
    plain = rp('plain', aggregates='rack', DISK_GB=1000)
    far = rp('far', aggregates='elsewhere', shares=True, DISK_GB=1000)
    result = _explained(context, [*HOSTS, plain, far], HOST_AND_DISK)
    assert explanation_sentence(result) == (
        '2 trees can satisfy the other rules, but cannot supply DISK_GB, because no own or shared provider of it'
        ' satisfies them.'
    )
    assert list(map(cause_text, result.blockers[0].notes)) == [
        'plain could provide DISK_GB:100 with the trait MISC_SHARES_VIA_AGGREGATE.',
        'far could provide DISK_GB:100 with an aggregate in common with the trees that satisfy the other rules.',
    ]
    assert result.near_misses == []


# The limits of the work -------------------------------------------------------------------------------------------


def test_a_request_of_thousands_of_rules_is_limited(context: RequestContext, queries: Counter) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1000)]
    groups = [f'resources{number}=' + ','.join(f'{name}:6' for name in names[number::250]) for number in range(1, 200)]
    host = RP('host', inventory={name: record(5) for name in names})
    with queries(at_most=220):
        result = _explained(context, [host], '&'.join([*groups, 'group_policy=isolate']))
    assert result.candidates == 0
    assert (len(result.stages), len(result.what_ifs)) == (50, 50)
    assert result.rules_not_tried > 900
    assert len(explanation_sentence(result)) < 1000


def test_searches_without_a_rule_share_the_steps_of_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, query = hard.packing(0, classes=3)
    trials: list[SearchBudget] = []

    def recording(sites: Any, compiled: CompiledRequest, budget: SearchBudget) -> Any:
        trials.append(budget)
        return find_candidate_sets(sites, compiled, budget)

    monkeypatch.setattr(explanation, 'find_candidate_sets', recording)
    result = explain(snapshot_of(topology), request_of(query), SearchBudget(max_steps=2000))
    assert len(trials) >= len(result.what_ifs) > 3
    assert max(trial.max_steps for trial in trials) <= 200
    # A search notices only between two candidates that its steps are spent.
    assert sum(trial.steps_taken for trial in trials) < 2 * 2000


def test_with_many_rules_fewer_candidates_are_counted_and_groups_are_not_compared(context: RequestContext) -> None:
    hosts = [rp(f'host{number}', VCPU=8) for number in range(120)]
    traits = ','.join(f'!{name}' for name in os_traits.get_traits('HW_CPU_')[:50])
    result = _explained(context, hosts, f'resources=VCPU:1&required={traits}')
    assert result.candidates == 120
    assert {what_if_text(what_if.candidates, what_if.lower_bound) for what_if in result.what_ifs} == {
        'nothing else is requested',
        'at least 100',
    }
    isolated = 'resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate'
    for required, reasons in ((f'!{AVX2}', [Reason.TOO_FEW_PROVIDERS]), (traits, [])):
        result = _explained(context, hosts[:1], f'{isolated}&required1={required}')
        assert [failure.reason for failure in result.combination_failures] == reasons


def test_an_explanation_of_a_search_that_exceeds_its_steps_says_so() -> None:
    topology, query = hard.packing(0, classes=3)
    result = explain(snapshot_of(topology), request_of(query), SearchBudget(max_tree_steps=1000))
    assert result.candidates == 0
    assert result.limits_reached == {Limit.TREE_STEPS}
    assert not result.blocking_rules
    assert explanation_sentence(result).startswith('The search reached a limit before it found a candidate')
    assert {what_if_text(what_if.candidates, what_if.lower_bound) for what_if in result.what_ifs} == {
        'unknown: the search reached a limit'
    }
