"""GET /allocation_candidates as a service: forms and headers, failures, settings, what is logged, and what it costs."""

from __future__ import annotations

import logging
import tracemalloc
import uuid
from typing import Any
from urllib.parse import parse_qsl

import pytest
from oslo_config import cfg

from placement.candidates.budget import Bound, Budget
from placement.candidates.reasons import Reason
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.handlers import candidate_query
from placement.objects.allocation_candidate import AllocationCandidates
from placement.reports import empty_searches, pasted_query
from placement.reports.explanation import Explanation, Options, explain
from placement.web.context import RequestContext
from tests.support.candidates import hard
from tests.support.candidates.examples import WORLDS
from tests.support.candidates.oracle import RP, Group, Query, record, rp
from tests.support.candidates.store import Stored, query_string, uuid_of
from tests.support.fixtures import Counter

HOST1, HOST2 = uuid_of('host1'), uuid_of('host2')
AVX2 = 'HW_CPU_X86_AVX2'
FOUR = 'resources=VCPU:4,MEMORY_MB:1024'


def flat(count: int) -> list[RP]:
    return [rp(f'flat{n}', traits=[AVX2], aggregates='all', VCPU=8, MEMORY_MB=8192) for n in range(count)]


def numa(count: int) -> list[RP]:
    world = []
    for number in range(count):
        host = f'host{number}'
        world += [
            rp(host, aggregates='all', MEMORY_MB=8192),
            rp(f'{host}-a', host, VCPU=4),
            rp(f'{host}-b', host, VCPU=4),
        ]
    return [*world, rp('nfs', aggregates='all', shares=True, DISK_GB=10000)]


@pytest.mark.parametrize('minor', [10, 11])
def test_list_form(app: Any, minor: int) -> None:
    answer = Stored(app, WORLDS['X1']).candidates(FOUR, minor)
    amounts = {'VCPU': 4, 'MEMORY_MB': 1024}
    expected = [{'allocations': [{'resource_provider': {'uuid': key}, 'resources': amounts}]} for key in (HOST1, HOST2)]
    assert sorted(answer['allocation_requests'], key=str) == sorted(expected, key=str)
    assert answer['provider_summaries'] == {
        HOST1: {'resources': {'VCPU': {'capacity': 24, 'used': 20}, 'MEMORY_MB': {'capacity': 8000, 'used': 0}}},
        HOST2: {'resources': {'VCPU': {'capacity': 18, 'used': 0}, 'MEMORY_MB': {'capacity': 6144, 'used': 0}}},
    }


def test_object_form_and_what_later_versions_add(app: Any) -> None:
    stored = Stored(app, WORLDS['X1'])
    summaries = {}
    for minor in (12, 17, 27, 29):
        answer = stored.candidates(FOUR, minor)
        assert {'allocations': {HOST2: {'resources': {'VCPU': 4, 'MEMORY_MB': 1024}}}} in answer['allocation_requests']
        summaries[minor] = answer['provider_summaries'][HOST1]
    assert summaries[17] == {**summaries[12], 'traits': [AVX2]}
    disk = {'DISK_GB': {'capacity': 120, 'used': 0}}
    assert summaries[27] == {**summaries[17], 'resources': {**summaries[12]['resources'], **disk}}
    assert summaries[29] == {**summaries[27], 'parent_provider_uuid': None, 'root_provider_uuid': HOST1}


def test_headers_and_windows(app: Any) -> None:
    stored = Stored(app, WORLDS['X1'])
    assert stored.ask(f'/allocation_candidates?{FOUR}', 9).status_code == 404
    assert 'last-modified' not in stored.ask(f'/allocation_candidates?{FOUR}', 14).headers
    response = stored.ask(f'/allocation_candidates?{FOUR}', 15)
    assert response.headers['cache-control'] == 'no-cache'
    assert response.last_modified is not None


@pytest.mark.parametrize(
    ('query', 'phrases'),
    [
        ('', ['At least one request group (`resources` or `resources{N}`) is required.']),
        (
            'resources=VCPU:1&resources1=CUSTOM_NONE:1',
            ['Invalid resource class in resources parameter:', 'No such resource class CUSTOM_NONE'],
        ),
        (
            'resources=VCPU:99999&required=CUSTOM_B&resources1=VCPU:1&required1=!CUSTOM_A',
            ['No such trait(s): CUSTOM_A, CUSTOM_B.'],
        ),
        ('resources=VCPU:1&resources1=NO:1&required=CUSTOM_A', ['No such resource class NO']),
        ('resources=VCPU:1&required=%00', ['No such trait(s): \0.']),
        ('resources=VCPU:1&required=%F0%9F%8C%8D', ['No such trait(s): \N{EARTH GLOBE EUROPE-AFRICA}.']),
    ],
)
def test_refusals(app: Any, query: str, phrases: list[str]) -> None:
    response = Stored(app, WORLDS['X1']).ask(f'/allocation_candidates?{query}', 29)
    assert response.status_code == 400
    [error] = response.json['errors']
    assert error['code'] == 'placement.undefined_code'
    for phrase in phrases:
        assert phrase in error['detail']


@pytest.mark.parametrize('amount', ['2147483648', '9' * 19, '9' * 400, '9' * 30000])
def test_amounts_of_any_size_find_nothing(app: Any, amount: str) -> None:
    answer = Stored(app, WORLDS['X1']).candidates(f'resources=VCPU:{amount}')
    assert answer == {'allocation_requests': [], 'provider_summaries': {}}


def test_amounts_that_come_from_elsewhere_never_reach_sql(app: Any, context: RequestContext) -> None:
    Stored(app, WORLDS['X1'])
    request = CandidateRequest((RequestGroup('', False, {'VCPU': 10**30}),))
    assert AllocationCandidates.get_by_request(context, request).candidates == []


def test_capacity_beyond_64_bits(app: Any) -> None:
    stored = Stored(app, [rp('big', VCPU={'total': 2147483647, 'allocation_ratio': 1e30})])
    summary = stored.candidates('resources=VCPU:1')['provider_summaries'][uuid_of('big')]
    assert summary['resources']['VCPU']['capacity'] == int(2147483647 * 1e30)


def test_as_many_groups_and_classes_as_the_settings_allow(app: Any) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1500)]
    inventory = {name: record(5) for name in names} | {'VCPU': record(1000)}
    stored = Stored(app, [RP('host', inventory=inventory)])
    groups = '&'.join(f'resources{number}=VCPU:1' for number in range(1, 257))
    answer = stored.candidates(f'{groups}&group_policy=none')
    assert answer['allocation_requests'] == [{'allocations': {uuid_of('host'): {'resources': {'VCPU': 256}}}}]
    wide = ','.join(f'{name}:1' for name in names)
    for parameter in ('resources', 'resources1'):
        [one] = stored.candidates(f'{parameter}={wide}')['allocation_requests']
        assert one['allocations'][uuid_of('host')]['resources'] == dict.fromkeys(names, 1)


def test_lists_as_long_as_the_settings_allow(app: Any) -> None:
    classes, traits = [f'CUSTOM_C{n}' for n in range(40)], [f'CUSTOM_T{n}' for n in range(1500)]
    aggregates = [f'a{n}' for n in range(600)]
    world = [
        RP('host', inventory={name: record(5) for name in classes}, aggregates={'a7'}),
        RP('traits', traits=set(traits), aggregates=set(aggregates)),
    ]
    stored = Stored(app, world)
    wide = 'resources=' + ','.join(f'{name}:1' for name in classes)
    forbidden = 'required=' + ','.join(f'!{name}' for name in traits)
    member_of = 'member_of=in:' + ','.join(aggregates)
    for minor in (28, 29):
        for query in (f'{wide}&{forbidden}', f'{wide}&{member_of}&member_of=a7'):
            assert len(stored.candidates(query, minor)['allocation_requests']) == 1


def test_more_aggregates_than_a_statement_should_list(app: Any) -> None:
    shared = [
        rp(f'disk{n}', aggregates=f'a{n} a{n + 1}', shares=True, DISK_GB=10, IPV4_ADDRESS=10) for n in range(0, 300, 2)
    ]
    stored = Stored(app, [*shared, *(rp(f'host{n}', aggregates=f'a{n}', VCPU=4) for n in range(10))])
    assert len(stored.candidates('resources=VCPU:1,DISK_GB:1,IPV4_ADDRESS:1')['allocation_requests']) == 10
    assert len(stored.candidates('resources=DISK_GB:1,IPV4_ADDRESS:1')['allocation_requests']) == 150


def test_most_candidates_is_a_setting_and_reaching_it_is_logged_once(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(app, flat(10))
    conf.set_override('max_allocation_candidates', 10, 'placement')
    assert len(stored.candidates('resources=VCPU:1')['allocation_requests']) == 10
    assert not _logged(caplog, 'max_allocation_candidates')
    conf.set_override('max_allocation_candidates', 4, 'placement')
    for query in ('resources=VCPU:1', 'resources=VCPU:1&limit=5'):
        caplog.clear()
        assert len(stored.candidates(query)['allocation_requests']) == 4
        assert len(_logged(caplog, 'max_allocation_candidates')) == 1
    assert 'resources=VCPU%3A1&limit=5' in caplog.text
    caplog.clear()
    assert len(stored.candidates('resources=VCPU:1&limit=3')['allocation_requests']) == 3
    assert not _logged(caplog, 'max_allocation_candidates')


def test_most_that_an_answer_holds_is_a_setting_and_reaching_it_is_logged_once(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(app, flat(600))
    conf.set_override('max_allocation_candidates_size', 1000, 'placement')
    for random_order in (False, True):
        conf.set_override('randomize_allocation_candidates', random_order, 'placement')
        caplog.clear()
        answer = stored.candidates('resources=VCPU:1')
        assert len(answer['allocation_requests']) == len(answer['provider_summaries']) == 500
        assert len(_logged(caplog, 'max_allocation_candidates_size = 1000 for resources=VCPU')) == 1
        caplog.clear()
        assert len(stored.candidates('resources=VCPU:1&limit=500')['allocation_requests']) == 500
        assert not _logged(caplog, 'Stopped at')


def test_a_search_that_is_given_up_on_is_logged_once_with_a_shortened_query(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    world, query = hard.packing(0, classes=3)
    stored = Stored(app, world)
    conf.set_override('max_search_steps_per_tree', 1000, 'placement')
    caplog.set_level(logging.INFO)
    assert stored.candidates(query)['allocation_requests'] == []
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert 'Stopped at [placement] max_search_steps_per_tree = 1000 for resources1=' in line.getMessage()
    [empty] = _logged(caplog, 'No allocation candidates')
    assert 'stopped at a bound: tree_steps' in empty
    assert all(len(one) < 2300 for one in _logged(caplog, 'Stopped at'))
    caplog.clear()
    conf.set_override('max_search_steps', 3000, 'placement')
    stored.candidates(query)
    assert len(_logged(caplog, 'Stopped at [placement] max_search_steps = 3000 for')) == 1


def test_a_full_answer_is_not_said_to_be_cut_short(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    world, query = hard.clouds(lambda _seed: hard.packing(0, classes=3), 4, easy=[3])
    conf.set_override('max_search_steps_per_tree', 5000, 'placement')
    stored = Stored(app, world)
    assert len(stored.candidates(query)['allocation_requests']) == 1
    assert not _logged(caplog, 'Stopped at')


def test_random_order_and_random_samples(app: Any, conf: cfg.ConfigOpts) -> None:
    stored = Stored(app, [*flat(40), *WORLDS['X4']])
    everything = stored.bodies(stored.candidates('resources=VCPU:1'))
    conf.set_override('randomize_allocation_candidates', True, 'placement')
    orders = [stored.bodies(stored.candidates('resources=VCPU:1')) for _ in range(3)]
    assert all(set(order) == set(everything) and len(order) == len(everything) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    samples = [frozenset(stored.bodies(stored.candidates('resources=VCPU:1&limit=5'))) for _ in range(5)]
    assert all(len(sample) == 5 and sample <= set(everything) for sample in samples)
    assert len(set(samples)) > 1


# Why there is nothing ---------------------------------------------------------------------------------------


def _logged(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if word in record.getMessage()]


def test_empty_answer_is_explained_in_one_line(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(app, WORLDS['X1'])
    caplog.set_level(logging.INFO)
    stored.candidates('resources=VCPU:5,MEMORY_MB:5000')
    [line] = _logged(caplog, 'No allocation candidates')
    assert 'resources VCPU:5: 1 trees, 1 providers, 2 no_capacity' in line
    assert 'resources MEMORY_MB:5000: 0 trees' in line
    caplog.clear()
    stored.candidates('resources=VCPU:1')
    assert not _logged(caplog, 'No allocation candidates')


def test_groups_that_do_not_go_together_are_explained_with_a_tree(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(app, WORLDS['X5'])
    caplog.set_level(logging.INFO)
    stored.candidates('resources1=VCPU:1&resources2=MEMORY_MB:512&group_policy=isolate')
    [line] = _logged(caplog, 'No allocation candidates')
    assert 'not together in 2 trees: the tree has too few providers for isolated groups (' in line


def test_the_same_empty_search_is_explained_once_in_a_while(
    app: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(app, WORLDS['X1'])
    caplog.set_level(logging.INFO)
    for _ in range(3):
        stored.candidates('resources=VCPU:100')
    stored.candidates('resources=VCPU:101')
    first, other = _logged(caplog, 'No allocation candidates')
    assert 'VCPU%3A100' in first
    assert 'VCPU%3A101' in other
    assert 'more since' not in first + other
    monkeypatch.setattr(empty_searches, 'PERIOD', 0)
    caplog.clear()
    stored.candidates('resources=VCPU:100')
    [line] = _logged(caplog, 'No allocation candidates')
    assert line.endswith(' (2 more since the last such line)')


def test_queries_of_empty_searches_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_searches, '_MOST', 2)
    searches = empty_searches.EmptySearches()
    assert [searches.unsaid(query) for query in ('a', 'b', 'c', 'b', 'a')] == [0, 0, 0, None, 0]


def test_lines_of_the_log_are_what_explain_takes(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(app, WORLDS['X1'])
    caplog.set_level(logging.INFO)
    stored.candidates('resources=VCPU:100&member_of=in:x,y&limit=5')
    found = {pasted_query.read(record.getMessage()) for record in caplog.records}
    [query] = {one.query for one in found}
    assert parse_qsl(query)[0] == ('resources', 'VCPU:100')
    assert {one.version for one in found} == {None, '1.29'}


def test_a_long_query_is_shortened_in_the_log(app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(app, flat(3))
    caplog.set_level(logging.INFO)
    others = ','.join(f'other{number}' for number in range(1000))
    stored.candidates(f'resources=VCPU:1&member_of=in:{others}')
    conf.set_override('max_allocation_candidates', 1, 'placement')
    stored.candidates(f'resources=VCPU:1&member_of=in:{others},all')
    lines = [*_logged(caplog, 'No allocation candidates'), *_logged(caplog, 'max_allocation_candidates')]
    assert len(lines) == 2
    assert all('resources=VCPU%3A1&member_of=' in line and len(line) < 4096 for line in lines), list(map(len, lines))


@pytest.mark.parametrize('asked', ['resources=VCPU:1', 'resources=VCPU:100', 'resources=VCPU:1&limit=3'])
def test_the_log_does_not_grow_with_the_providers(
    app: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    caplog.set_level(logging.INFO)
    lengths = []
    for count in (2, 60):
        stored = Stored(app, [rp(f'host{count}-{n}', VCPU=8) for n in range(count)])
        monkeypatch.setattr(empty_searches, 'PERIOD', 0)
        caplog.clear()
        stored.candidates(asked)
        # Numbers in a line may get longer, lines may not get more.
        lengths.append(len(caplog.records))
    assert lengths[0] == lengths[1] <= 2


def _explained(context: RequestContext, *groups: RequestGroup, policy: str | None = None) -> Explanation:
    return explain(context.mirror.current(), CandidateRequest(groups, policy), Options())


def test_stages_count_what_each_rule_leaves(app: Any, context: RequestContext) -> None:
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


def test_groups_that_do_not_go_together(app: Any, context: RequestContext) -> None:
    Stored(app, WORLDS['X5'])
    groups = (RequestGroup('1', True, {'VCPU': 1}), RequestGroup('2', True, {'MEMORY_MB': 512}))
    told = _explained(context, *groups, policy='isolate')
    assert [one.trees for one in told.stages] == [2, 2]
    assert [(one.reason, one.trees) for one in told.together] == [(Reason.TOO_FEW_PROVIDERS, 2)]
    assert [str(one) for one in told.blamed] == ['group_policy=isolate']
    assert 'resources1, resources2 need 2 different providers, and only 1 provider does' in told.sentence
    assert _explained(context, *groups, policy='none').candidates == 2


def test_what_trees_below_1_29_lack(app: Any, context: RequestContext) -> None:
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


# Why, in words ------------------------------------------------------------------------------------------------


def _asked(context: RequestContext, query: str, minor: int = 29) -> Explanation:
    request = candidate_query.parse(query, (1, minor), context.conf)
    return explain(context.mirror.current(), request, Options())


def test_a_unit_that_no_host_hands_out(app: Any, context: RequestContext) -> None:
    hosts = [rp(f'host{n}', VCPU={'total': 64, 'max_unit': 32, 'used': n % 30}) for n in range(96)]
    Stored(app, [*hosts, rp('large', VCPU={'total': 256, 'max_unit': 256, 'used': 100})])
    told = _asked(context, 'resources=VCPU:200')
    assert told.sentence == (
        'No provider has room for VCPU:200: max_unit is 32, asked 200: 96 providers; full now (156 left at most,'
        ' asked 200): 1 provider.'
    )
    assert [one.name for one in told.nearest] == ['large']


def test_an_amount_and_a_trait_that_nobody_has(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU={'total': 8, 'max_unit': 4})])
    assert _asked(context, f'resources1=VCPU:6&required1={AVX2}').sentence == (
        f'No provider has the trait {AVX2}; and no provider has room for VCPU:6: max_unit is 4, asked 6: 1 provider.'
    )
    assert _asked(context, f'resources1=VCPU:4&required1={AVX2}').sentence == f'No provider has the trait {AVX2}.'


def test_a_class_that_nobody_has(app: Any, context: RequestContext) -> None:
    Stored(app, [rp('host', VCPU=8)])
    assert _asked(context, 'resources=VCPU:1,VGPU:1').sentence == 'No provider has inventory of VGPU.'


def test_a_disk_that_is_not_shared_and_one_that_reaches_nobody(app: Any, context: RequestContext) -> None:
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


def test_a_search_that_is_given_up_on_claims_nothing(app: Any, context: RequestContext) -> None:
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


# What it costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('world', 'query'),
    [
        (flat, 'resources=VCPU:1&limit=10'),
        (flat, 'resources=VCPU:1'),
        (flat, f'resources=VCPU:1&required={AVX2}&member_of=all&limit=10'),
        (numa, 'resources=VCPU:1,MEMORY_MB:64,DISK_GB:1&limit=10'),
        (numa, 'resources=MEMORY_MB:64&resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate&limit=10'),
        (flat, 'resources=VCPU:9'),
    ],
)
def test_a_search_asks_the_database_once_whether_anything_changed(
    app: Any, queries: Counter, caplog: pytest.LogCaptureFixture, world: Any, query: str
) -> None:
    caplog.set_level(logging.INFO)
    stored = Stored(app, world(500))
    stored.candidates(query)
    with queries(at_most=1):
        stored.candidates(query)


def test_memory_of_a_symmetric_case_follows_the_limit(app: Any) -> None:
    world = [
        one
        for tree in ('east', 'west')
        for one in [rp(tree, VCPU=64), *(rp(f'{tree}{n}', tree, SRIOV_NET_VF=8) for n in range(16))]
    ]
    stored = Stored(app, world)
    query = Query([Group(str(n), {'SRIOV_NET_VF': 1}) for n in range(1, 9)], 'none', 1000)
    path = f'/allocation_candidates?{query_string(query)}'
    assert stored.ask(path, 29).status_code == 200
    tracemalloc.start()
    response = stored.ask(path, 29)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(response.json['allocation_requests']) == 1000
    assert peak < 50_000_000


def test_consumers_of_a_lease_use_it_up(app: Any) -> None:
    """Example X9, with claims."""
    stored = Stored(app, WORLDS['X9'])
    query = 'resources=VCPU:2,MEMORY_MB:1024,CUSTOM_LEASE_7F:1'
    [candidate] = stored.candidates(query)['allocation_requests']
    body = {**candidate, 'project_id': 'p', 'user_id': 'u', 'consumer_generation': None}
    for status in (204, 204, 204, 409):
        assert stored.ask(f'/allocations/{uuid.uuid4()}', 29, 'PUT', body).status_code == status
    assert stored.candidates(query)['allocation_requests'] == []
