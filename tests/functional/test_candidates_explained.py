"""Why a search for candidates finds nothing: what each rule leaves, what would be needed, and the sentence about it."""

from __future__ import annotations

from typing import Any

from placement.candidates.budget import Bound, Budget
from placement.candidates.reasons import Reason
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.handlers import candidate_query
from placement.reports.explanation import Explanation, Options, explain
from placement.web.context import RequestContext
from tests.support.candidates import hard
from tests.support.candidates.examples import WORLDS
from tests.support.candidates.oracle import RP, record, rp
from tests.support.candidates.store import Stored, query_string
from tests.support.fixtures import Counter

AVX2 = 'HW_CPU_X86_AVX2'


def _explained(context: RequestContext, *groups: RequestGroup, policy: str | None = None) -> Explanation:
    return explain(context.mirror.current(), CandidateRequest(groups, policy), Options())


def test_an_explanation_counts_the_providers_that_each_rule_leaves(app: Any, context: RequestContext) -> None:
    Stored(app, WORLDS['X1'])
    group = RequestGroup(
        '1', True, {'VCPU': 4, 'MEMORY_MB': 1000}, frozenset({AVX2}), frozenset({'CUSTOM_GREEN'}), (frozenset({'x'}),)
    )
    told = _explained(context, group)
    assert [(one.rule, one.subject, one.providers, one.trees) for one in told.stages] == [
        ('resources', 'VCPU:4', 2, 2),
        ('resources', 'MEMORY_MB:1000', 1, 1),
        ('required', AVX2, 1, 1),
        ('forbidden', 'CUSTOM_GREEN', 0, 0),
        ('member_of', 'x', 0, 0),
    ]
    assert told.stages[0].refused == {Reason.NO_CAPACITY: 1}
    assert told.stages[1].refused == {Reason.WRONG_STEP: 1}
    assert told.candidates == 0
    assert [(one.name, one.lacks) for one in told.nearest] == [
        ('host2', 'would do without forbidden1 CUSTOM_GREEN and without member_of1 x')
    ]
    assert list(map(str, told.blamed)) == ['forbidden1 CUSTOM_GREEN', 'member_of1 x']


def test_groups_that_do_not_fit_together(app: Any, context: RequestContext) -> None:
    Stored(app, WORLDS['X5'])
    groups = (RequestGroup('1', True, {'VCPU': 1}), RequestGroup('2', True, {'MEMORY_MB': 512}))
    told = _explained(context, *groups, policy='isolate')
    assert [one.trees for one in told.stages] == [2, 2]
    assert [(one.reason, one.trees) for one in told.combination_failures] == [(Reason.TOO_FEW_PROVIDERS, 2)]
    assert [str(one) for one in told.blamed] == ['group_policy=isolate']
    assert 'resources1, resources2 need 2 different providers, and only 1 provider does' in told.sentence
    assert _explained(context, *groups, policy='none').candidates == 2


def test_below_1_29_the_explanation_names_the_rule_about_trees(app: Any, context: RequestContext) -> None:
    Stored(app, WORLDS['X4'])
    request = CandidateRequest((RequestGroup('', False, {'VCPU': 4, 'MEMORY_MB': 1024}),), nested_aware=False)
    told = explain(context.mirror.current(), request, Options())
    assert [(one.rule, one.trees) for one in told.stages] == [
        ('resources', 1),
        ('resources', 1),
        ('same provider', 0),
    ]
    assert told.candidates == 0
    assert 'several providers of one tree' in told.sentence


def test_a_request_of_thousands_of_rules_is_bounded(app: Any, context: RequestContext, queries: Counter) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1000)]
    Stored(app, [RP('host', inventory={name: record(5) for name in names})])
    groups = tuple(RequestGroup(str(n), True, dict.fromkeys(names[n::250], 6)) for n in range(1, 200))
    with queries(at_most=220):
        told = _explained(context, *groups, policy='isolate')
    assert told.candidates == 0
    assert (len(told.stages), len(told.what_ifs)) == (50, 50)
    assert told.left_out > 900
    assert len(told.sentence) < 1000


def test_sharing_providers_and_collective_traits(app: Any, context: RequestContext) -> None:
    Stored(app, WORLDS['X2'])
    group = RequestGroup('', False, {'VCPU': 2, 'DISK_GB': 50}, frozenset({'STORAGE_DISK_SSD'}))
    told = _explained(context, group)
    assert [(one.subject, one.trees) for one in told.stages] == [
        ('VCPU:2', 4),
        ('DISK_GB:50', 3),
        ('STORAGE_DISK_SSD', 2),
    ]
    assert told.candidates == 2


# The explanation as a sentence --------------------------------------------------------------------------------


def _asked(context: RequestContext, query: str, minor: int = 29) -> Explanation:
    request = candidate_query.parse(query, (1, minor), context.conf)
    return explain(context.mirror.current(), request, Options())


def test_an_amount_that_breaks_the_units_of_every_host(app: Any, context: RequestContext) -> None:
    hosts = [rp(f'host{n}', VCPU={'total': 64, 'max_unit': 32, 'used': n % 30}) for n in range(96)]
    Stored(app, [*hosts, rp('large', VCPU={'total': 256, 'max_unit': 256, 'used': 100})])
    told = _asked(context, 'resources=VCPU:200')
    assert told.sentence == (
        'No provider has room for VCPU:200: max_unit is 32, asked 200: 96 providers; full now (156 left at most,'
        ' asked 200): 1 provider.'
    )
    assert [one.name for one in told.nearest] == ['large']


def test_an_amount_and_a_trait_that_no_provider_has(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU={'total': 8, 'max_unit': 4})])
    assert _asked(context, f'resources1=VCPU:6&required1={AVX2}').sentence == (
        f'No provider has the trait {AVX2}; and no provider has room for VCPU:6: max_unit is 4, asked 6: 1 provider.'
    )
    assert _asked(context, f'resources1=VCPU:4&required1={AVX2}').sentence == f'No provider has the trait {AVX2}.'


def test_a_class_that_no_provider_has(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU=8)])
    assert _asked(context, 'resources=VCPU:1,VGPU:1').sentence == 'No provider has inventory of VGPU.'


def test_a_disk_that_is_not_shared_and_one_in_no_aggregate(app: Any, context: RequestContext) -> None:
    hosts = [rp(f'host{n}', aggregates='rack', traits=[AVX2][: n < 2], VCPU=8) for n in range(5)]
    plain = rp('plain', aggregates='rack', DISK_GB=1000)
    far = rp('far', aggregates='elsewhere', shares=True, DISK_GB=1000)
    small = rp('small', aggregates='rack', shares=True, DISK_GB=10)
    Stored(app, [*hosts, plain, far])
    query = f'resources1=VCPU:1&required1={AVX2}&resources=DISK_GB:100'
    told = _asked(context, query)
    assert told.sentence == (
        'No tree that meets the rest (2 do) has DISK_GB, or is reached by a provider that shares it.'
    )
    unmarked, stranded = told.obstacles[0].notes
    assert unmarked == (
        'plain has room for DISK_GB:100 and an aggregate in common with the trees that meet the rest, but not the'
        ' trait MISC_SHARES_VIA_AGGREGATE: nothing is shared without it'
    )
    assert stranded == (
        'far has room for DISK_GB:100 and the trait MISC_SHARES_VIA_AGGREGATE, but no aggregate in common with the'
        ' trees that meet the rest'
    )
    assert told.nearest == []
    Stored(app, [*hosts, small])
    assert _asked(context, query).sentence == (
        'No provider that meets the rest has room for DISK_GB:100: too small ever (10 at most, asked 100): 1 provider.'
    )


def test_only_hosts_with_the_trait_are_named(app: Any, context: RequestContext) -> None:
    full = {'total': 8, 'used': 8}
    Stored(app, [rp('with', traits=[AVX2], VCPU=full), rp('without', VCPU={'total': 8, 'used': 7})])
    told = _asked(context, f'resources1=VCPU:2&required1={AVX2}')
    assert [one.name for one in told.nearest] == ['with']
    assert told.sentence.endswith('full now (0 left at most, asked 2): 1 provider.')


def test_an_explanation_of_a_search_that_exceeds_its_steps_says_so(app: Any, context: RequestContext) -> None:
    world, query = hard.packing(0, classes=3)
    Stored(app, world)
    request = candidate_query.parse(query_string(query), (1, 29), context.conf)
    told = explain(context.mirror.current(), request, Options(Budget(tree_steps=1000)))
    assert told.candidates == 0
    assert told.bounds == {Bound.TREE_STEPS}
    assert told.sentence.startswith('The search stopped at a bound before it found anything')
    assert {str(one) for one in told.what_ifs} == {'not known: the search was given up'}
    assert told.blamed == []


def test_nothing_is_stored(app: Any, context: RequestContext) -> None:
    Stored(app, [])
    assert _asked(context, 'resources=VCPU:1').sentence == 'No resource providers are stored.'
