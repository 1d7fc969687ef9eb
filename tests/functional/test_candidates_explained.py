"""Why a search for candidates finds nothing: what each rule leaves, what would be needed, and the sentence about it."""

from __future__ import annotations

from typing import Any

import pytest

from placement.ops.explain import explanation
from placement.ops.explain.blockers import CauseKind
from placement.ops.explain.explanation import Explanation, explain
from placement.ops.explain.sentences import (
    cause_text,
    causes_text,
    explanation_sentence,
    near_miss_text,
    rule_text,
    what_if_text,
)
from placement.search import parsing
from placement.search.assignments import search
from placement.search.budget import Limit, SearchBudget
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.requirements import CompiledRequest
from placement.search.solver.variables import Reason
from placement.web.context import RequestContext
from tests.support.fixtures import Counter
from tests.support.http_client import demand
from tests.support.search import hard
from tests.support.search.examples import TOPOLOGIES
from tests.support.search.oracle import RP, record, rp
from tests.support.search.query_strings import uuid_of, with_uuids
from tests.support.search.store import Stored, query_string

AVX2 = 'HW_CPU_X86_AVX2'


def _explained(context: RequestContext, *groups: RequestGroup, policy: str | None = None) -> Explanation:
    return explain(context.provider_cache.up_to_date(), CandidateRequest(groups, policy), SearchBudget())


def test_an_explanation_counts_the_providers_that_each_rule_leaves(app: Any, context: RequestContext) -> None:
    Stored(app, TOPOLOGIES['X1'])
    group = RequestGroup(
        '1', True, {'VCPU': 4, 'MEMORY_MB': 1000}, frozenset({AVX2}), frozenset({'CUSTOM_GREEN'}), (frozenset({'x'}),)
    )
    result = _explained(context, group)
    assert _rows(result) == [
        ('resources', 'VCPU:4', 2, 2),
        ('resources', 'MEMORY_MB:1000', 1, 1),
        ('required', AVX2, 1, 1),
        ('forbidden', 'CUSTOM_GREEN', 0, 0),
        ('member_of', 'x', 0, 0),
    ]
    assert result.stages[0].rejected == {'total_capacity': 1}
    assert result.stages[1].rejected == {'step_size': 1}
    assert result.candidates == 0
    assert [(near_miss.name, near_miss_text(near_miss)) for near_miss in result.near_misses] == [
        ('host2', 'would be a candidate without forbidden1 CUSTOM_GREEN and without member_of1 x')
    ]
    assert list(map(rule_text, result.blocking_rules)) == ['forbidden1 CUSTOM_GREEN', 'member_of1 x']


def test_groups_that_do_not_fit_together(app: Any, context: RequestContext) -> None:
    Stored(app, TOPOLOGIES['X5'])
    groups = (RequestGroup('1', True, {'VCPU': 1}), RequestGroup('2', True, {'MEMORY_MB': 512}))
    result = _explained(context, *groups, policy='isolate')
    assert [stage.trees for stage in result.stages] == [2, 2]
    assert [(failure.reason, failure.trees) for failure in result.combination_failures] == [
        (Reason.TOO_FEW_PROVIDERS, 2)
    ]
    assert [rule_text(rule) for rule in result.blocking_rules] == ['group_policy=isolate']
    assert 'groups 1, 2 need 2 different providers, but only 1 can serve them' in explanation_sentence(result)
    assert _explained(context, *groups, policy='none').candidates == 2


def test_below_1_29_the_explanation_names_the_rule_about_trees(app: Any, context: RequestContext) -> None:
    Stored(app, TOPOLOGIES['X4'])
    request = CandidateRequest((RequestGroup('', False, {'VCPU': 4, 'MEMORY_MB': 1024}),), nested_aware=False)
    result = explain(context.provider_cache.up_to_date(), request, SearchBudget())
    assert [(rule_text(stage.rule), stage.trees) for stage in result.stages] == [
        ('resources VCPU:4', 1),
        ('resources MEMORY_MB:1024', 1),
        ('the rule of one provider per tree (below 1.29)', 0),
    ]
    assert result.candidates == 0
    assert 'several providers of one tree' in explanation_sentence(result)


def test_a_request_of_thousands_of_rules_is_limited(app: Any, context: RequestContext, queries: Counter) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1000)]
    Stored(app, [RP('host', inventory={name: record(5) for name in names})])
    groups = tuple(RequestGroup(str(n), True, dict.fromkeys(names[n::250], 6)) for n in range(1, 200))
    with queries(at_most=220):
        result = _explained(context, *groups, policy='isolate')
    assert result.candidates == 0
    assert (len(result.stages), len(result.what_ifs)) == (50, 50)
    assert result.rules_not_tried > 900
    assert len(explanation_sentence(result)) < 1000


def test_searches_without_a_rule_share_the_steps_of_one_search(
    app: Any, context: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, query = hard.packing(0, classes=3)
    Stored(app, topology)
    request = parsing.parse(query_string(query), (1, 29))
    trials: list[SearchBudget] = []

    def recording(sites: Any, compiled: CompiledRequest, budget: SearchBudget) -> Any:
        trials.append(budget)
        return search(sites, compiled, budget)

    monkeypatch.setattr(explanation, 'search', recording)
    whole = SearchBudget(max_steps=2000)
    result = explain(context.provider_cache.up_to_date(), request, whole)
    assert len(trials) >= len(result.what_ifs) > 3
    assert max(trial.max_steps for trial in trials) <= 200
    # A search notices only between two candidates that its steps are spent.
    assert sum(trial.steps_taken for trial in trials) < 2 * 2000


def test_searches_without_a_rule_count_fewer_candidates_when_there_are_many_rules(
    app: Any, context: RequestContext
) -> None:
    Stored(app, [rp(f'host{number}', VCPU={'total': 8}) for number in range(120)])
    forbidden = [f'CUSTOM_T{number}' for number in range(49)]
    for name in forbidden:
        demand(app, 'PUT', f'/traits/{name}')
    result = _explain_query(context, f'resources=VCPU:1&required={",".join("!" + name for name in forbidden)}')
    assert result.candidates == 120
    assert {what_if_text(what_if.candidates, what_if.lower_bound) for what_if in result.what_ifs} == {
        'nothing else is requested',
        'at least 100',
    }


def test_groups_are_compared_only_when_every_rule_was_counted(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU={'total': 8})])
    traits = [f'CUSTOM_T{number}' for number in range(50)]
    for name in traits:
        demand(app, 'PUT', f'/traits/{name}')

    def isolated(*forbidden: str) -> Explanation:
        first = RequestGroup('1', True, {'VCPU': 1}, forbidden=frozenset(forbidden))
        return _explained(context, first, RequestGroup('2', True, {'VCPU': 1}), policy='isolate')

    assert [failure.reason for failure in isolated(*traits[:5]).combination_failures] == [Reason.TOO_FEW_PROVIDERS]
    result = isolated(*traits)
    assert result.rules_not_tried > 0
    assert result.combination_failures == ()


def test_rules_without_which_most_is_found_come_first(app: Any, context: RequestContext) -> None:
    amounts = {'AB': 2, 'AC': 3, 'BC': 1}
    Stored(
        app,
        [
            rp(f'{traits}{number}', traits=[f'CUSTOM_{trait}' for trait in traits], VCPU={'total': 8})
            for traits, amount in amounts.items()
            for number in range(amount)
        ],
    )
    result = _explain_query(context, 'resources1=VCPU:1&required1=CUSTOM_A,CUSTOM_B,CUSTOM_C')
    # The first leaves nothing when the rules are applied in their order.
    assert [rule_text(blocker.rule) for blocker in result.blockers] == [
        'required1 CUSTOM_C',
        'required1 CUSTOM_B',
        'required1 CUSTOM_A',
    ]


def test_sharing_providers_and_collective_traits(app: Any, context: RequestContext) -> None:
    Stored(app, TOPOLOGIES['X2'])
    group = RequestGroup('', False, {'VCPU': 2, 'DISK_GB': 50}, frozenset({'STORAGE_DISK_SSD'}))
    result = _explained(context, group)
    assert [(stage.rule.subject, stage.trees) for stage in result.stages] == [
        ('VCPU:2', 4),
        ('DISK_GB:50', 3),
        ('STORAGE_DISK_SSD', 2),
    ]
    assert result.candidates == 2


# The explanation as a sentence --------------------------------------------------------------------------------


def _explain_query(context: RequestContext, query: str, minor: int = 29) -> Explanation:
    request = parsing.parse(query, (1, minor))
    return explain(context.provider_cache.up_to_date(), request, SearchBudget())


def test_an_amount_that_breaks_the_units_of_every_host(app: Any, context: RequestContext) -> None:
    hosts = [rp(f'host{n}', VCPU={'total': 64, 'max_unit': 32, 'used': n % 30}) for n in range(96)]
    Stored(app, [*hosts, rp('large', VCPU={'total': 256, 'max_unit': 256, 'used': 100})])
    result = _explain_query(context, 'resources=VCPU:200')
    assert explanation_sentence(result) == (
        'No provider can allocate VCPU:200: max_unit is 32, requested 200: 96 providers; free capacity below'
        ' 200 (max 156): 1 provider.'
    )
    assert [near_miss.name for near_miss in result.near_misses] == ['large']


def test_an_amount_and_a_trait_that_no_provider_has(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU={'total': 8, 'max_unit': 4})])
    assert explanation_sentence(_explain_query(context, f'resources1=VCPU:6&required1={AVX2}')) == (
        f'No provider has the trait {AVX2}; and no provider can allocate VCPU:6: max_unit is 4, requested 6:'
        ' 1 provider.'
    )
    assert (
        explanation_sentence(_explain_query(context, f'resources1=VCPU:4&required1={AVX2}'))
        == f'No provider has the trait {AVX2}.'
    )


def test_an_amount_that_a_provider_of_another_tree_can_allocate(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('small', VCPU={'total': 8, 'max_unit': 4}, DISK_GB=8), rp('large', VCPU=8)])
    query = f'resources1=VCPU:6&required1={AVX2}&resources2=DISK_GB:1&group_policy=none'
    assert explanation_sentence(_explain_query(context, query)) == f'No provider has the trait {AVX2}.'


def test_a_trait_of_a_group_that_equals_another_one_without_it(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU=8), rp('other', traits=[AVX2], DISK_GB=8)])
    query = f'resources1=VCPU:1&resources2=VCPU:1&required2={AVX2}&group_policy=none'
    assert explanation_sentence(_explain_query(context, query)) == (
        f'Each provider that satisfies the other rules of group 2 lacks the trait {AVX2}: 1 provider.'
    )


def test_a_class_that_no_provider_has(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU=8)])
    assert (
        explanation_sentence(_explain_query(context, 'resources=VCPU:1,VGPU:1')) == 'No provider has inventory of VGPU.'
    )


def test_a_disk_that_is_not_shared_and_one_in_no_aggregate(app: Any, context: RequestContext) -> None:
    hosts = [rp(f'host{n}', aggregates='rack', traits=[AVX2][: n < 2], VCPU=8) for n in range(5)]
    plain = rp('plain', aggregates='rack', DISK_GB=1000)
    far = rp('far', aggregates='elsewhere', shares=True, DISK_GB=1000)
    small = rp('small', aggregates='rack', shares=True, DISK_GB=10)
    Stored(app, [*hosts, plain, far])
    query = f'resources1=VCPU:1&required1={AVX2}&resources=DISK_GB:100'
    result = _explain_query(context, query)
    assert explanation_sentence(result) == (
        '2 trees can satisfy the other rules, but cannot supply DISK_GB, because no own or shared provider of it'
        ' satisfies them.'
    )
    [cause] = result.blockers[0].causes
    assert (cause.kind, cause.providers) == (CauseKind.NOT_IN_TREES, 2)
    without_trait, without_aggregate = map(cause_text, result.blockers[0].notes)
    common = 'an aggregate in common with the trees that satisfy the other rules'
    assert without_trait == 'plain could provide DISK_GB:100 with the trait MISC_SHARES_VIA_AGGREGATE'
    assert without_aggregate == f'far could provide DISK_GB:100 with {common}'
    assert result.near_misses == []
    Stored(app, [*hosts, small])
    assert explanation_sentence(_explain_query(context, query)) == (
        'No provider that satisfies the other rules can allocate DISK_GB:100: total capacity below 100 GiB (max 10'
        ' GiB): 1 provider.'
    )


def test_only_hosts_with_the_trait_are_named(app: Any, context: RequestContext) -> None:
    full = {'total': 8, 'used': 8}
    Stored(app, [rp('with', traits=[AVX2], VCPU=full), rp('without', VCPU={'total': 8, 'used': 7})])
    result = _explain_query(context, f'resources1=VCPU:2&required1={AVX2}')
    assert [near_miss.name for near_miss in result.near_misses] == ['with']
    assert explanation_sentence(result).endswith('free capacity below 2 (max 0): 1 provider.')


def test_an_explanation_of_a_search_that_exceeds_its_steps_says_so(app: Any, context: RequestContext) -> None:
    topology, query = hard.packing(0, classes=3)
    Stored(app, topology)
    request = parsing.parse(query_string(query), (1, 29))
    result = explain(context.provider_cache.up_to_date(), request, SearchBudget(max_tree_steps=1000))
    assert result.candidates == 0
    assert result.limits_reached == {Limit.TREE_STEPS}
    assert explanation_sentence(result).startswith('The search reached a limit before it found a candidate')
    assert {what_if_text(what_if.candidates, what_if.lower_bound) for what_if in result.what_ifs} == {
        'unknown: the search reached a limit'
    }
    assert result.blocking_rules == []


def test_nothing_is_stored(app: Any, context: RequestContext) -> None:
    Stored(app, [])
    assert explanation_sentence(_explain_query(context, 'resources=VCPU:1')) == 'No resource providers are stored.'


# The parameters of 1.31 and later ------------------------------------------------------------------------------


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


def _explain_ports(app: Any, context: RequestContext, query: str) -> Explanation:
    Stored(app, _ports())
    demand(app, 'PUT', '/traits/CUSTOM_NET3')
    return _explain_query(context, with_uuids(query), 39)


def _rows(result: Explanation) -> list[tuple[str, str, int, int]]:
    return [(stage.rule.kind.value, stage.rule.subject, stage.providers, stage.trees) for stage in result.stages]


def test_each_trait_of_the_root_is_a_rule(app: Any, context: RequestContext) -> None:
    result = _explain_ports(app, context, f'resources=VCPU:8&root_required=!COMPUTE_STATUS_DISABLED,{AVX2}')
    assert _rows(result) == [
        ('root_required', AVX2, 0, 0),
        ('root_required', '!COMPUTE_STATUS_DISABLED', 0, 0),
        ('resources', 'VCPU:8', 2, 0),
    ]
    assert [(rule_text(what_if.rule), what_if.candidates) for what_if in result.what_ifs] == [
        (f'root_required {AVX2}', 1),
        ('root_required !COMPUTE_STATUS_DISABLED', 0),
        ('resources VCPU:8', None),
    ]
    assert explanation_sentence(result) == f'No provider has the trait {AVX2}.'
    assert [(near_miss.name, near_miss_text(near_miss)) for near_miss in result.near_misses] == [
        ('host1', f'would be a candidate without root_required {AVX2}')
    ]


def test_roots_without_or_with_a_trait_of_root_required(app: Any, context: RequestContext) -> None:
    result = _explain_ports(app, context, 'resources=VCPU:8&root_required=CUSTOM_NET1')
    assert (
        explanation_sentence(result)
        == 'The root of each tree that satisfies the other rules lacks the trait CUSTOM_NET1: 2 trees.'
    )
    Stored(app, [provider for provider in _ports() if provider.name.startswith('host2')])
    result = _explain_query(context, 'resources=VCPU:8&root_required=CUSTOM_NET1', 39)
    assert (
        explanation_sentence(result)
        == 'The root of each tree that satisfies the other rules lacks the trait CUSTOM_NET1: 1 tree.'
    )
    result = _explain_query(context, 'resources=VCPU:8&root_required=!COMPUTE_STATUS_DISABLED', 39)
    assert explanation_sentence(result) == (
        'The root of each tree that satisfies the other rules has the forbidden trait COMPUTE_STATUS_DISABLED: 1 tree.'
    )


def test_in_tree_is_a_rule(app: Any, context: RequestContext) -> None:
    query = 'resources_P=SRIOV_NET_VF:1&required_P=!CUSTOM_NET3&in_tree_P='
    result = _explain_ports(app, context, f'{query}host1-card1')
    assert result.candidates == 2
    assert [(rule_text(what_if.rule), what_if.candidates) for what_if in result.what_ifs][-1] == (
        f'in_tree_P {uuid_of("host1-card1")}',
        4,
    )
    result = _explain_ports(app, context, f'{query}nobody')
    assert _rows(result)[-1] == ('in_tree', uuid_of('nobody'), 0, 0)
    assert explanation_sentence(result) == f'No provider has the uuid {uuid_of("nobody")} of in_tree.'
    result = _explain_ports(app, context, 'resources=VCPU:8&required=COMPUTE_STATUS_DISABLED&in_tree=host1')
    assert [rule_text(rule) for rule in result.blocking_rules] == ['required COMPUTE_STATUS_DISABLED']
    result = _explain_ports(app, context, 'resources1=VCPU:8&required1=COMPUTE_STATUS_DISABLED&in_tree1=host1')
    assert causes_text(result.blockers[0].causes) == (
        f'each provider that satisfies the other rules of group 1 is not in the tree of {uuid_of("host1")}: 1 provider'
    )


def test_each_forbidden_aggregate_is_a_rule(app: Any, context: RequestContext) -> None:
    result = _explain_ports(app, context, 'resources1=VCPU:8&member_of1=!in:az-host1,az-host2')
    first, second = (f'!{uuid}' for uuid in sorted((uuid_of('az-host1'), uuid_of('az-host2'))))
    assert _rows(result) == [
        ('resources', 'VCPU:8', 2, 2),
        ('member_of', first, 1, 1),
        ('member_of', second, 0, 0),
    ]
    assert [what_if.candidates for what_if in result.what_ifs] == [None, 1, 1]
    assert explanation_sentence(result) == (
        'Each provider that satisfies the other rules of group 1 is in the forbidden aggregate'
        f' {second[1:]}: 1 provider.'
    )


def test_a_forbidden_aggregate_of_the_unsuffixed_group_excludes_trees(app: Any, context: RequestContext) -> None:
    result = _explain_ports(app, context, 'resources=SRIOV_NET_VF:1&in_tree=host1&member_of=!az-host1')
    forbidden = f'!{uuid_of("az-host1")}'
    assert [
        (stage.rule.kind.value, stage.rule.subject, stage.serving, stage.providers, stage.trees)
        for stage in result.stages
    ] == [
        ('member_of', forbidden, 'the root', 1, 1),
        ('resources', 'SRIOV_NET_VF:1', '', 4, 1),
        ('member_of', forbidden, 'SRIOV_NET_VF', 4, 1),
        ('in_tree', uuid_of('host1'), 'SRIOV_NET_VF', 2, 0),
    ]
    assert [(rule_text(what_if.rule), what_if.candidates) for what_if in result.what_ifs] == [
        (f'member_of {forbidden}', 2),
        ('resources SRIOV_NET_VF:1', None),
        (f'in_tree {uuid_of("host1")}', 2),
    ]
    result = _explain_ports(app, context, 'resources=SRIOV_NET_VF:1&required=CUSTOM_NET1&member_of=!az-host1')
    assert [rule_text(rule) for rule in result.blocking_rules] == ['required CUSTOM_NET1']
    result = _explain_ports(app, context, 'resources=VCPU:8&required=!COMPUTE_STATUS_DISABLED&member_of=!az-host1')
    assert [causes_text(blocker.causes) for blocker in result.blockers] == [
        (
            'each provider that satisfies the other rules of the request has the forbidden trait'
            ' COMPUTE_STATUS_DISABLED: 1 provider'
        ),
        (
            'each provider that satisfies the other rules of the request is in the forbidden aggregate'
            f' {forbidden[1:]}, or its root is: 1 provider'
        ),
    ]


def test_each_set_of_traits_of_which_one_is_required_is_a_rule(app: Any, context: RequestContext) -> None:
    query = 'resources1=SRIOV_NET_VF:1&required1=in:CUSTOM_NET1,CUSTOM_NET3&required1=!CUSTOM_NET2'
    result = _explain_ports(app, context, query)
    assert _rows(result) == [
        ('resources', 'SRIOV_NET_VF:1', 4, 2),
        ('required', 'in:CUSTOM_NET1,CUSTOM_NET3', 0, 0),
        ('forbidden', 'CUSTOM_NET2', 0, 0),
    ]
    assert explanation_sentence(result) == (
        'Each provider that satisfies the other rules of group 1 has none of the traits CUSTOM_NET1, CUSTOM_NET3:'
        ' 4 providers.'
    )
    result = _explain_ports(app, context, f'resources=VCPU:1&required=in:CUSTOM_NET3,{AVX2}')
    assert explanation_sentence(result) == f'No provider has any of the traits CUSTOM_NET3, {AVX2}.'


def test_each_same_subtree_and_groups_without_resources_are_rules(app: Any, context: RequestContext) -> None:
    port = 'resources_P=SRIOV_NET_VF:1&required_C=CUSTOM_NET1&group_policy=none'
    result = _explain_ports(app, context, f'{port}&same_subtree=_P,_C')
    assert result.candidates == 2
    assert _rows(result) == [
        ('resources', 'SRIOV_NET_VF:1', 4, 2),
        ('required', 'CUSTOM_NET1', 2, 2),
        ('same_subtree', '_C,_P', 2, 2),
    ]
    assert [(rule_text(what_if.rule), what_if.candidates) for what_if in result.what_ifs] == [
        ('resources_P SRIOV_NET_VF:1', None),
        # Any provider that is above a port, or is one, twice for that of the host.
        ('required_C CUSTOM_NET1', 12),
        ('same_subtree _C,_P', 4),
        ('resources_P', None),
        ('group _C without resources', 4),
    ]


def test_providers_that_are_in_no_common_subtree(app: Any, context: RequestContext) -> None:
    query = (
        'resources_P=SRIOV_NET_VF:1&required_C=CUSTOM_NET1&required_D=CUSTOM_NET2&group_policy=none'
        '&same_subtree=_P,_C&same_subtree=_C,_D'
    )
    result = _explain_ports(app, context, query)
    assert [(rule_text(stage.rule), stage.trees) for stage in result.stages][-2:] == [
        ('same_subtree _C,_P', 2),
        ('same_subtree _C,_D', 0),
    ]
    assert list(map(rule_text, result.blocking_rules)) == ['same_subtree _C,_D']
    assert explanation_sentence(result) == (
        'No tree has a provider for one of the groups _C,_D at or above providers for the others; there would be'
        ' candidates without same_subtree _C,_D.'
    )
    assert [
        near_miss.name
        for near_miss in result.near_misses
        if near_miss_text(near_miss) == 'would be a candidate without same_subtree _C,_D'
    ] == [
        'host1',
        'host2',
    ]


def test_same_subtrees_that_can_be_met_alone_but_not_together(app: Any, context: RequestContext) -> None:
    query = (
        'resources_P=SRIOV_NET_VF:1&required_C=CUSTOM_NET1&required_D=CUSTOM_NET2&group_policy=none'
        '&same_subtree=_P,_C&same_subtree=_P,_D'
    )
    result = _explain_ports(app, context, query)
    assert [stage.trees for stage in result.stages] == [2] * 5
    assert explanation_sentence(result) == (
        'Each part of the request can be satisfied, but not all parts together: in the tree of host1 (and 1 more) a'
        ' provider is not in one subtree with the providers of other groups; there would be candidates without'
        ' same_subtree _C,_P.'
    )


def test_groups_without_resources_that_need_different_providers(app: Any, context: RequestContext) -> None:
    query = 'resources_P=SRIOV_NET_VF:1&required_C=CUSTOM_NET1&required_D=CUSTOM_NET1&same_subtree=_P,_C,_D'
    result = _explain_ports(app, context, f'{query}&group_policy=isolate')
    assert [rule_text(rule) for rule in result.blocking_rules] == ['group_policy=isolate']
    assert 'groups _C, _D need 2 different providers, but only 1 can serve them' in explanation_sentence(result)
