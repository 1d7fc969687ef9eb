"""``placement-manage explain``: the account it gives of a search, for people and for programs."""

from __future__ import annotations

import json
import pathlib
import uuid
from typing import Any

import pytest
from oslo_config import cfg

from placement.claims import claim
from placement.claims.request import ConsumerClaim
from placement.cmd import manage
from placement.db.api import Database
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support.fixtures import Counter


@pytest.fixture
def hosts(
    context: RequestContext, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Three hosts: oak with 8 VCPU of which 6 are used, elm with 4 and a trait, fir with a step of 2."""
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', conf.placement_database.connection)
    oak = make(context, 'oak', {'total': 8})
    elm = make(context, 'elm', {'total': 4})
    make(context, 'fir', {'total': 8, 'step_size': 2})
    elm.set_traits(['HW_CPU_X86_VMX'])
    consumer = ConsumerClaim(str(uuid.uuid4()), 'project', 'user', {oak.uuid: {'VCPU': 6}})
    claim.replace_allocations(context, [consumer])


def make(context: RequestContext, name: str, vcpu: dict[str, Any]) -> ResourceProvider:
    provider = ResourceProvider.create(context, name=name, uuid=str(uuid.uuid4()))
    provider.set_inventories([Inventory.from_request('VCPU', vcpu)])
    return provider


def account(capsys: pytest.CaptureFixture[str], query: str, *options: str) -> Any:
    assert manage.main(['explain', query, '--format', 'json', *options]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], query: str, *options: str) -> str:
    assert manage.main(['explain', query, *options]) == 127
    printed = capsys.readouterr()
    assert printed.out == ''
    return printed.err


@pytest.mark.usefixtures('hosts')
def test_the_funnel_counts_what_each_part_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    told = account(capsys, 'resources=VCPU:3&required=HW_CPU_X86_VMX')
    room, trait = told['stages']
    assert (room['rule'], room['subject'], room['providers'], room['trees']) == ('resources', 'VCPU:3', 1, 1)
    assert room['refused'] == {'wrong_step': 1, 'no_capacity': 1}
    assert (trait['rule'], trait['subject'], trait['trees']) == ('required', 'HW_CPU_X86_VMX', 1)
    assert (told['candidates'], told['nearest_misses']) == (1, [])


@pytest.mark.usefixtures('hosts')
def test_the_nearest_miss_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    told = account(capsys, 'resources=VCPU:5')
    assert told['candidates'] == 0
    nearest = told['nearest_misses'][0]
    assert (nearest['name'], nearest['wanted'], nearest['left']) == ('elm', 5, 4)


@pytest.mark.usefixtures('hosts')
def test_groups_that_fit_alone_but_not_together(capsys: pytest.CaptureFixture[str]) -> None:
    told = account(capsys, 'resources1=VCPU:2&resources2=VCPU:2&group_policy=isolate')
    # Groups that ask for the same are accounted for once.
    assert [stage['trees'] for stage in told['stages']] == [3]
    assert told['candidates'] == 0
    assert {each['reason'] for each in told['grouping']} == {'too_few_providers', 'too_little_in_all'}


@pytest.mark.usefixtures('hosts')
def test_the_limit_is_the_last_part(capsys: pytest.CaptureFixture[str]) -> None:
    told = account(capsys, 'resources=VCPU:2&limit=2')
    assert (told['limit'], told['candidates'], told['stages'][-1]['trees']) == (2, 2, 3)


@pytest.mark.usefixtures('hosts')
def test_a_bound_that_was_met_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert account(capsys, 'resources=VCPU:2')['stopped_at'] == []
    monkeypatch.setenv('OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES', '1')
    assert account(capsys, 'resources=VCPU:2')['stopped_at'] == ['candidates']
    assert manage.main(['explain', 'resources=VCPU:2']) == 0
    assert 'Stopped at [placement] max_allocation_candidates = 1\n' in capsys.readouterr().out


@pytest.mark.usefixtures('hosts')
def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(['explain', '?resources=VCPU:5']) == 0
    printed = capsys.readouterr().out
    assert 'resources VCPU:5' in printed
    assert '2: has not enough left' in printed
    assert '1: hands out multiples of another step_size' in printed
    assert 'Candidates: 0\n' in printed
    assert 'has 4 of VCPU left, 1 less than the 5 asked for.' in printed


@pytest.mark.usefixtures('hosts')
@pytest.mark.parametrize(
    ('query', 'told'),
    [
        ('resources=CUSTOM_NOTHING:1', 'No such resource class CUSTOM_NOTHING'),
        ('resources=VCPU:1&required=CUSTOM_NOTHING', 'No such trait(s): CUSTOM_NOTHING.'),
        ('resources=VCPU', 'Badly formed resources parameter'),
        ('limit=5', 'At least one request group'),
        ('banana=1', 'does not match any of the regexes'),
    ],
)
def test_what_the_api_refuses(capsys: pytest.CaptureFixture[str], query: str, told: str) -> None:
    error = refusal(capsys, query)
    assert told in error
    assert error.count('\n') == 1


@pytest.mark.usefixtures('hosts')
def test_the_microversion_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert 'was unexpected' in refusal(capsys, 'resources=VCPU:1&limit=1', '--microversion', '1.15')
    assert '1.10 to 1.29' in refusal(capsys, 'resources=VCPU:1', '--microversion', '1.9')
    assert account(capsys, 'resources=VCPU:1', '--microversion', '1.10')['candidates'] == 2


@pytest.mark.usefixtures('hosts')
def test_statements_do_not_grow_with_the_providers(
    capsys: pytest.CaptureFixture[str], context: RequestContext, db: Database, queries: Counter
) -> None:
    from placement.candidates.request import CandidateRequest, RequestGroup
    from placement.objects import allocation_candidate

    group = RequestGroup(
        suffix='',
        use_same_provider=False,
        resources={'VCPU': 7},
        required=frozenset(),
        forbidden=frozenset(),
        member_of=(),
    )
    request = CandidateRequest((group,), None, None, nested_aware=True, with_traits=True)
    with queries(at_most=20) as few:
        allocation_candidate.explain(context, request)
    for number in range(40):
        make(context, f'host{number}', {'total': 6})
    with queries(at_most=len(few)):
        allocation_candidate.explain(context, request)
