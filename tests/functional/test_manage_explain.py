"""``placement-manage explain``: how it explains a search, as text and as JSON."""

from __future__ import annotations

import io
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from placement.capacity import InventoryRecord
from placement.cmd import manage
from placement.db import tables
from placement.db.api import Database
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.functional.terminal import shown_by
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.fixtures import Counter, Printed
from tests.support.objects import claim, create_provider, set_inventories, set_traits


@pytest.fixture(autouse=True)
def _hosts(context: RequestContext, url: str) -> None:
    """Three hosts: full with 8 VCPU of which 6 are used, small with 4 and a trait, stepped with a step of 2."""
    full = make(context, 'full', {'total': 8})
    small = make(context, 'small', {'total': 4})
    make(context, 'stepped', {'total': 8, 'step_size': 2})
    set_traits(small, ['HW_CPU_X86_VMX'])
    claim(context, {full.uuid: {'VCPU': 6}})


def make(context: RequestContext, name: str, vcpu: dict[str, Any]) -> ResourceProvider:
    provider = create_provider(context, name)
    set_inventories(provider, ('VCPU', InventoryRecord(**vcpu)))
    return provider


def explained(printed: Printed, query: str, *options: str) -> Any:
    return json.loads(printed('explain', query, '--format', 'json', *options))


def test_usage_mismatches_are_reported(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """A search uses the recorded usages."""
    assert manage.main(['explain', 'resources=VCPU:3']) == 0
    assert capsys.readouterr().err == ''
    with db.engine.begin() as connection:
        connection.execute(tables.allocations.update().values(used=5))
    for options in ([], ['--format', 'json']):
        assert manage.main(['explain', 'resources=VCPU:3', *options]) == 0
        assert capsys.readouterr().err.startswith('Warning: the recorded usage of 1 inventory is not the sum of')


def test_a_step_size_of_0(db: Database, printed: Printed) -> None:
    with db.engine.begin() as connection:
        connection.execute(tables.inventories.update().values(step_size=0))
    assert printed('explain', 'resources=VCPU:3').startswith('No host has VCPU:3: step_size is 0')


def test_json_has_the_facts(printed: Printed) -> None:
    result = explained(printed, 'resources=VCPU:5&required=HW_CPU_X86_VMX&limit=7')
    assert (result['limit'], result['candidates']) == (7, 0)
    assert (result['trees'], result['examined'], result['suitable'], result['placeable']) == (3, 3, 0, 0)
    amount = {'rule': 'resources', 'groups': [''], 'subject': 'VCPU:5', 'text': 'resources VCPU:5'}
    assert result['stages'][0] == {'rule': amount, 'trees': 0, 'excluded': {'too_small': 2, 'full': 1}}
    [small] = [fact for fact in result['blocked'] if fact['examples'][0]['name'] == 'small']
    assert small['checks'] == [{'rule': amount, 'fault': 'too_small'}]
    assert (small['trees'], small['closest']['free'], small['closest']['limit']) == (1, 4, 'capacity')
    # Freeing capacity does not help if the total capacity is too small, or the step size is another one.
    [state] = explained(printed, 'resources=VCPU:5')['states']
    assert (state['closest']['provider']['name'], state['closest']['free'], state['trees']) == ('full', 2, 1)
    explanation = explained(printed, 'resources=VCPU:3&limit=1')
    assert explanation['sentences'] == ['Found 1 candidate, as many as the limit allows.']


def test_text_output_is_sentences_and_tables(printed: Printed) -> None:
    text = printed('explain', '?resources=VCPU:5')
    assert text.startswith('1 host has VCPU:5. 1 lacks VCPU:5 (closest: full, 2 free).\n')
    for words in ('resources VCPU:5', '2 too small, 1 full', 'lacks VCPU:5 (closest: full, 2 free)'):
        assert words in text
    assert 'Candidates: 0\n' in text
    isolated = printed('explain', 'resources1=VCPU:2&resources2=VCPU:2&group_policy=isolate')
    assert re.search(
        r'Conflict: small \(.*one of 2 trees where the tree has too few providers for isolated groups 1,2\n', isolated
    )


def test_without_providers_there_is_no_empty_table(db: Database, printed: Printed) -> None:
    with db.engine.begin() as connection:
        for table in (tables.allocations, tables.inventories, tables.resource_provider_traits):
            connection.execute(table.delete())
        connection.execute(tables.resource_providers.delete())
    assert printed('explain', 'resources=VCPU:5') == 'No resource providers are stored.\nCandidates: 0\n'


def test_aggregates_have_the_names_of_the_file(printed: Printed, tmp_path: Path) -> None:
    aggregate = str(uuid.uuid4())
    (tmp_path / 'names.json').write_text(json.dumps({aggregate: 'az2'}))
    query, names = f'resources=VCPU:2&member_of={aggregate}', ('--names', str(tmp_path / 'names.json'))
    assert printed('explain', query, *names).startswith(f'No provider is in az2 (aggregate {aggregate}). ')
    assert explained(printed, query, *names)['stages'][1]['rule']['text'] == f'member_of az2 ({aggregate})'


def test_a_terminal_of_80_columns_cuts_no_uuid() -> None:
    aggregates = [str(uuid.uuid4()) for _ in range(2)]
    lines = shown_by('explain', f'resources=VCPU:200&member_of=in:{",".join(aggregates)}')
    assert max(map(len, lines)) <= 80
    assert '…' not in ''.join(lines)
    for aggregate in aggregates:
        # In two sentences and in both tables.
        assert sum(aggregate in line for line in lines) == 4


@pytest.mark.parametrize(
    ('query', 'message'),
    [
        ('resources=CUSTOM_NOTHING:1', 'No such resource class CUSTOM_NOTHING'),
        ('resources=VCPU', 'Badly formed resources parameter'),
        ('limit=5', 'At least one request group'),
        ('resources=VCPU:1&in_tree=x', 'in_tree requires microversion 1.31, and this service supports up to 1.29.'),
    ],
)
def test_queries_that_the_api_rejects(query: str, message: str, failed: Printed) -> None:
    assert message in failed('explain', query)


def test_settings_of_the_service_limit_what_is_explained(
    monkeypatch: pytest.MonkeyPatch, printed: Printed, failed: Printed
) -> None:
    assert '1.10 to 1.29' in failed('explain', 'resources=VCPU:1', '--microversion', '1.9')
    assert explained(printed, 'resources=VCPU:1', '--microversion', '1.10')['candidates'] == 2
    monkeypatch.setenv('OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES', '1')
    assert explained(printed, 'resources=VCPU:2')['limits_reached'] == ['candidates']
    assert 'Limit reached: [placement] max_allocation_candidates = 1\n' in printed('explain', 'resources=VCPU:2')
    query = (
        'resources_A=VCPU:2&required_B=in:HW_CPU_X86_VMX,HW_CPU_X86_AVX2&same_subtree=_A,_B&group_policy=none'
        f'&root_required=!COMPUTE_STATUS_DISABLED&member_of_A=!{uuid.uuid4()}'
    )
    assert 'requires microversion 1.33, and this service supports up to 1.29.' in failed('explain', query)
    monkeypatch.setenv('OS_PLACEMENT__MAX_MICROVERSION', NEWEST_MICROVERSION)
    earlier = failed('explain', query, '--microversion', '1.35')
    assert 'in: in required_B requires microversion 1.39, and the request has 1.35.' in earlier
    result = explained(printed, query)
    assert (result['microversion'], result['candidates']) == (NEWEST_MICROVERSION, 1)
    assert 'required_B in:HW_CPU_X86_AVX2,HW_CPU_X86_VMX' in printed('explain', query)


LINE = 'req-1 caf\xe9 "GET /allocation_candidates?resources=VCPU%3A5" status: 200 microversion: 1.17\n'


@pytest.mark.parametrize('arguments', [[], ['-'], [LINE]])
def test_the_query_is_read_from_a_line_of_the_log_given_as_argument_or_on_standard_input(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not UTF-8.
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(LINE.encode('latin-1'))))
    assert manage.main(['explain', '--format', 'json', *arguments]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out).items() >= {'query': 'resources=VCPU%3A5', 'microversion': '1.17'}.items()
    assert captured.err == ''


def test_statements_do_not_grow_with_the_providers(context: RequestContext, queries: Counter, printed: Printed) -> None:
    with queries(at_most=25) as few:
        explained(printed, 'resources=VCPU:7')
    for number in range(40):
        make(context, f'host{number}', {'total': 6})
    with queries(at_most=len(few)):
        explained(printed, 'resources=VCPU:7')
