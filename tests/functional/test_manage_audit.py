"""``placement-manage audit`` on SQLite: output and exit codes; ``tests/integration`` has every finding and repair."""

from __future__ import annotations

import itertools
import json
import os
import re
from typing import Any

import pytest
from oslo_config import cfg

from placement import exception
from placement.cmd import manage, manage_audit
from placement.db import change_log, tables
from placement.db.api import Database
from placement.ops.audit import audit, reference_checks
from placement.ops.audit.check import Finding
from placement.ops.audit.kinds import KINDS, Outcome
from tests.support import corruption, preforked
from tests.support.fixtures import Printed
from tests.support.http_client import send_request

INVALID_INVENTORIES = [name for name, damage in corruption.ALL.items() if damage.kind == 'invalid_inventory']


@pytest.fixture
def url(url: str) -> str:
    """The URL of a sound database, which commands that the test runs use."""
    corruption.plant(url, *corruption.SOUND)
    return url


def test_each_kind_has_a_check() -> None:
    assert list(audit.CHECKS) == list(KINDS)


def test_sound_database_has_no_findings(url: str, printed: Printed) -> None:
    assert printed('audit') == 'No problems found.\n'
    assert json.loads(printed('audit', '--format', 'json')) == {'findings': []}


def test_all_findings_are_repaired_at_once(url: str, printed: Printed) -> None:
    for name in ('usage too high', 'no root', 'idle consumer', 'missing consumers', 'empty aggregate', 'out of step'):
        corruption.plant(url, *corruption.ALL[name].statements)
    findings = json.loads(printed('audit', '--repair', '--format', 'json', code=manage_audit.REPAIRED))['findings']
    for state in ('repairable', 'repaired'):
        assert {finding['kind'] for finding in findings if not finding[state]} == {'unit_violation'}
    assert manage.main(['audit']) == manage_audit.CLEAN
    assert corruption.column(url, 'SELECT updated_at FROM placement_resource_providers') == [None, None, None]
    assert corruption.column(url, 'SELECT updated_at FROM placement_inventories') == [None, None]


@pytest.mark.parametrize(
    ('damage', 'kinds', 'code'),
    [
        ('used = 9', ['usage_mismatch'], manage_audit.REPAIRED),
        ('used = 0, total = 1', ['usage_mismatch', 'over_committed'], manage_audit.UNREPAIRED),
    ],
)
def test_findings_do_not_depend_on_the_repairs_before_them(
    url: str, printed: Printed, damage: str, kinds: list[str], code: int
) -> None:
    """The usage that is recorded would exceed the capacity, or hides that the allocations do."""
    corruption.plant(url, f'UPDATE placement_inventories SET {damage} WHERE id = 1')
    for options, expected in (([], manage_audit.UNREPAIRED), (['--repair'], code)):
        findings = json.loads(printed('audit', '--format', 'json', *options, code=expected))['findings']
        assert [finding['kind'] for finding in findings] == kinds


def _related_damages() -> list[tuple[str, str]]:
    """Pairs of damages, in the order of kinds, where the repair of the first may change what the second check reads.

    Both use the same table, or one that refers to the other. To check all pairs would take three times as long.
    """
    tables_of = {
        name: set(re.findall(r'placement_\w+', ' '.join((*damage.statements, *(damage.after or ())[:1]))))
        for name, damage in corruption.ALL.items()
    }
    references = {frozenset((column.table.name, table.name)) for column, table in tables.REFERENCES}
    return [
        pair
        for pair in itertools.combinations(corruption.ALL, 2)
        if corruption.ALL[pair[0]].after
        and any(
            used == other or frozenset((used, other)) in references
            for used, other in itertools.product(*(tables_of[name] for name in pair))
        )
    ]


RELATED_DAMAGES = _related_damages()


@pytest.mark.parametrize('first', sorted({corruption.ALL[pair[0]].kind for pair in RELATED_DAMAGES}))
def test_dry_run_announces_what_is_repaired_after_two_damages(
    url: str, conf: cfg.ConfigOpts, db: Database, first: str
) -> None:
    """Nothing is repaired before the first of the two kinds."""
    kinds = list(KINDS)[list(KINDS).index(first) :]
    for pair in RELATED_DAMAGES:
        if corruption.ALL[pair[0]].kind != first:
            continue
        _plant_pair(url, pair)
        announced = [finding for kind in kinds for finding in audit.find(db, conf, kind)]
        repaired: list[Finding] = []
        for kind in kinds:
            repaired += [audit.repair(db, conf, finding) for finding in audit.find(db, conf, kind)]
        _assert_repaired_as_announced(pair, announced, repaired)
        left = [finding for kind in KINDS for finding in audit.find(db, conf, kind)]
        assert not any(finding.changes for finding in left), pair


def test_dry_run_announces_what_is_repaired_if_an_earlier_kind_is_excluded(
    url: str, conf: cfg.ConfigOpts, db: Database
) -> None:
    for pair in RELATED_DAMAGES:
        excluded, kind = (corruption.ALL[name].kind for name in pair)
        # While its parent is missing, the database rejects a change of the root of a provider.
        if excluded != kind and (excluded, kind) != ('missing_reference', 'invalid_tree'):
            _plant_pair(url, pair)
            announced = audit.find(db, conf, kind, {excluded})
            _assert_repaired_as_announced(pair, announced, [audit.repair(db, conf, finding) for finding in announced])


def _plant_pair(url: str, pair: tuple[str, str]) -> None:
    statements = (statement for name in pair for statement in corruption.ALL[name].statements)
    corruption.plant(url, *corruption.CLEAR, *corruption.SOUND, *statements)


def _assert_repaired_as_announced(pair: tuple[str, str], announced: list[Finding], repaired: list[Finding]) -> None:
    assert list(map(_as_data, repaired)) == list(map(_as_data, announced, repaired)), pair
    is_repaired = [finding.outcome is Outcome.REPAIRED for finding in repaired]
    assert is_repaired == [bool(finding.changes) for finding in announced], pair


def _as_data(finding: Finding, repaired: Finding | None = None) -> tuple[Any, ...]:
    changes = [change.as_data() for change in finding.changes]
    if repaired:
        changes = corruption.with_new_ids(changes, [change.as_data() for change in repaired.changes])
    return finding.kind, finding.subject, finding.detail, changes


def test_finding_that_vanishes_before_its_repair_is_not_called_repaired(url: str, printed: Printed) -> None:
    corruption.plant(
        url,
        f"INSERT INTO placement_aggregates (id, uuid) VALUES (502, '{corruption.EMPTY}'), (503, '{corruption.CHILD}')",
        # Deletes the second aggregate when the first is repaired, as another program could.
        'CREATE TRIGGER another AFTER DELETE ON placement_aggregates WHEN OLD.id % 2 = 0'
        ' BEGIN DELETE FROM placement_aggregates WHERE id = OLD.id + 1; END',
    )
    options = ('--repair', '--format', 'json')
    findings = json.loads(printed('audit', *options, code=manage_audit.REPAIRED))['findings']
    states = [tuple(finding[name] for name in ('repaired', 'needs_action', 'changes')) for finding in findings]
    change = {'table': 'placement_aggregates', 'key': {'id': 502}, 'old': {'uuid': corruption.EMPTY}, 'new': None}
    assert states == [(True, True, [change]), (False, False, [])]
    corruption.plant(
        url,
        f"INSERT INTO placement_aggregates (id, uuid) VALUES (602, '{corruption.EMPTY}'), (603, '{corruption.CHILD}')",
    )
    summary = '2 findings: 1 repaired, 1 no longer found when it was to be repaired\n'
    assert printed('audit', '--repair', code=manage_audit.REPAIRED).endswith(summary)


def test_changes_have_the_ids_of_inserted_rows(url: str, printed: Printed) -> None:
    corruption.plant(url, *corruption.ALL['missing consumers'].statements)
    findings = json.loads(printed('audit', '--repair', '--format', 'json', code=manage_audit.REPAIRED))['findings']
    consumers = [change['new'] for finding in findings for change in finding['changes'] if 'uuid' in change['new']]
    for column in ('project_id', 'user_id'):
        query = f"SELECT {column} FROM placement_consumers WHERE uuid != '{corruption.HOLDER}' ORDER BY uuid"
        assert [consumer[column] for consumer in consumers] == corruption.column(url, query)


def test_null_is_null_in_json(url: str, printed: Printed) -> None:
    corruption.plant(url, *corruption.ALL['missing parent'].statements)
    (finding,) = json.loads(printed('audit', '--format', 'json', code=manage_audit.UNREPAIRED))['findings']
    assert finding['changes'][0]['new'] == {'parent_provider_id': None}


def test_requests_cause_the_kinds_that_they_can_cause(app: Any, conf: cfg.ConfigOpts, db: Database) -> None:
    corruption.cause_findings(app)
    kinds = {kind for kind in KINDS if audit.find(db, conf, kind)}
    assert kinds == {name for name, kind in KINDS.items() if kind.requests_can_cause}


def test_searches_of_a_running_service_see_the_repair(url: str, app: Any, db: Database, printed: Printed) -> None:
    def providers_found() -> list[str]:
        path = '/allocation_candidates?resources=VCPU:5'
        return list(send_request(app, 'GET', path, version='1.12').json['provider_summaries'])

    # The change log has no planted rows.
    db.write(change_log.record_reload)
    assert providers_found() == [corruption.ROOT]
    # The inventory gets an id that no provider has.
    corruption.plant(url, 'UPDATE placement_inventories SET id = 7, used = 8 WHERE id = 1')
    db.write(change_log.record_reload)
    assert providers_found() == []
    printed('audit', '--repair', code=manage_audit.REPAIRED)
    assert providers_found() == [corruption.ROOT]


@pytest.mark.parametrize('name', [*INVALID_INVENTORIES, 'all reserved', 'out of step'])
def test_invalid_inventories_are_those_that_cannot_be_sent_back(url: str, app: Any, name: str) -> None:
    damage = corruption.ALL[name]
    corruption.plant(url, *damage.statements)
    for provider in (corruption.ROOT, corruption.CHILD):
        path = f'/resource_providers/{provider}/inventories'
        body = send_request(app, 'GET', path, version='1.26').json
        is_invalid = (
            name in INVALID_INVENTORIES and {'resource_provider': provider, 'resource_class': 'VCPU'} in damage.subjects
        )
        assert send_request(app, 'PUT', path, body, version='1.26').status_int == (400 if is_invalid else 200)


def test_class_cannot_be_created_until_the_largest_id_is_recorded(url: str, app: Any, printed: Printed) -> None:
    corruption.plant(url, *corruption.ALL['missing sequence'].statements)
    path = '/resource_classes/CUSTOM_NEW'
    response = send_request(app, 'PUT', path, version='1.7')
    assert response.status_int == 503
    assert response.json['errors'][0]['detail'].endswith('The database is not available at the moment.')
    printed('audit', '--repair', code=manage_audit.REPAIRED)
    assert send_request(app, 'PUT', path, version='1.7').status_int == 201
    assert corruption.column(url, "SELECT id FROM placement_resource_classes WHERE name = 'CUSTOM_NEW'") == [10000]


def test_text(url: str, printed: Printed) -> None:
    corruption.plant(url, *corruption.ALL['usage too high'].statements, *corruption.ALL['missing inventory'].statements)
    change = '      placement_inventories id 1: used 7 becomes 2\n'
    for options, verdict in (
        ([], 'to be repaired with --repair'),
        (['--repair', '--dry-run'], 'would be repaired'),
        (['--repair'], 'repaired'),
    ):
        assert printed('audit', *options, code=manage_audit.UNREPAIRED) == (
            'allocation_without_inventory\n'
            f'  resource_provider {corruption.FLAT}, resource_class DISK_GB,'
            f' consumer {corruption.HOLDER}\n'
            '    allocation of 5, but the provider has no inventory: add one or delete the allocation'
            ' (requires a decision)\n'
            'usage_mismatch\n'
            f'  resource_provider {corruption.ROOT}, provider_name root, resource_class VCPU\n'
            f'    recorded as used: 7; sum of the allocations: 2 ({verdict})\n'
            f'{change if options else ""}'
            f'2 findings: 1 requires a decision, 1 {verdict}\n'
        )


def test_kinds_can_be_excluded(url: str, capsys: pytest.CaptureFixture[str], printed: Printed) -> None:
    for name in ('too little left', 'idle consumer'):
        corruption.plant(url, *corruption.ALL[name].statements)
    before = corruption.contents(url)
    excluded = ['--except', 'over_committed', '--except', 'consumer_without_allocations']
    assert printed('audit', '--repair', *excluded) == 'No problems found.\n'
    assert corruption.contents(url) == before
    with pytest.raises(SystemExit):
        manage.main(['audit', '--except=no_such_kind'])
    assert "invalid choice: 'no_such_kind' (choose from" in capsys.readouterr().err


def test_recorded_owner_that_an_excluded_repair_would_insert_does_not_count(url: str, printed: Printed) -> None:
    for name in ('lost consumer with a recorded owner of a lost type', 'missing project'):
        corruption.plant(url, *corruption.ALL[name].statements)
    options = ['--except', 'missing_reference', '--format', 'json']
    (announced,) = json.loads(printed('audit', '--dry-run', *options, code=manage_audit.UNREPAIRED))['findings']
    (repaired,) = json.loads(printed('audit', '--repair', *options, code=manage_audit.REPAIRED))['findings']
    assert repaired['detail'] == '1 allocation without a record of the consumer; nothing records its owner'
    changes = corruption.with_new_ids(announced['changes'], repaired['changes'])
    assert repaired == {**announced, 'changes': changes, 'repaired': True}
    query = f"SELECT project_id FROM placement_consumers WHERE uuid = '{corruption.LOST_CONSUMER}'"
    assert corruption.column(url, query) == corruption.column(url, 'SELECT id FROM placement_projects')


@pytest.mark.parametrize(
    'statements',
    [
        (
            *corruption.ALL['missing provider'].statements,
            *corruption.ALL['idle consumer'].statements,
        ),
        (
            f"INSERT INTO placement_aggregates (id, uuid) VALUES (502, '{corruption.EMPTY}')",
            'INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (99, 502)',
        ),
    ],
    ids=['consumer', 'aggregate'],
)
def test_row_that_only_a_missing_provider_uses_stays_if_its_repair_is_excluded(
    url: str, printed: Printed, statements: tuple[str, ...]
) -> None:
    corruption.plant(url, *statements)
    before = corruption.contents(url)
    assert printed('audit', '--repair', '--except', 'missing_reference') == 'No problems found.\n'
    assert corruption.contents(url) == before


def test_class_whose_repair_is_excluded_has_no_name(url: str, printed: Printed) -> None:
    corruption.plant(
        url, *corruption.ALL['missing class'].statements, 'UPDATE placement_inventories SET used = 9 WHERE id = 1'
    )
    for options, name in (([], 'CUSTOM_LOST_CLASS_10007'), (['--except', 'missing_reference'], 'number 10007')):
        findings = json.loads(printed('audit', '--format', 'json', *options, code=manage_audit.UNREPAIRED))['findings']
        assert name in {finding['resource_class'] for finding in findings if finding['kind'] == 'usage_mismatch'}


@pytest.mark.parametrize('provider', [3, 99])
def test_class_is_inserted_once_for_allocations_and_inventories(url: str, printed: Printed, provider: int) -> None:
    """The inventory of a provider that does not exist is deleted, so the class is inserted for the allocation."""
    corruption.plant(
        url,
        'UPDATE placement_resource_class_sequence SET last = 10007',
        corruption.INVENTORY.format(9, provider, 8, 0),
        'UPDATE placement_inventories SET resource_class_id = 10007 WHERE id = 9',
        corruption.ALLOCATION.format(1, corruption.HOLDER, 10007, 3),
    )
    options = ('--repair', '--format', 'json')
    findings = json.loads(printed('audit', *options, code=manage_audit.UNREPAIRED))['findings']
    changes = [change for finding in findings for change in finding['changes']]
    inserted = [change['key'] for change in changes if change['table'] == 'placement_resource_classes']
    assert inserted == [{'id': 10007}]
    left = json.loads(printed('audit', *options, code=manage_audit.UNREPAIRED))['findings']
    assert left == [finding for finding in findings if not finding['repaired']]


def test_repair_that_depends_on_an_excluded_one_says_what_to_do(url: str, printed: Printed) -> None:
    """The database does not accept a change of a row that refers to a missing row."""
    for name in ('missing parent', 'no root'):
        corruption.plant(url, *corruption.ALL[name].statements)
    for options, status in (
        (
            ['--except', 'missing_reference'],
            'not repaired because it refers to a missing row: run it again without --except',
        ),
        ([], 'repaired'),
    ):
        code = manage_audit.UNREPAIRED if options else manage_audit.REPAIRED
        assert status in printed('audit', '--repair', *options, code=code)


def test_repairs_before_a_failure_are_printed(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corruption.plant(url, *corruption.ALL['empty aggregate'].statements)
    find = audit.find

    def fail_later(db: Database, conf: cfg.ConfigOpts, kind: str, excluded: Any) -> list[Finding]:
        if kind == 'usage_mismatch':
            raise exception.DatabaseUnavailable
        return find(db, conf, kind, excluded)

    monkeypatch.setattr(audit, 'find', fail_later)
    assert manage.main(['audit', '--repair']) == manage.FAILED
    output = capsys.readouterr()
    assert 'an aggregate without providers (repaired)' in output.out
    assert 'The database is not available' in output.err
    # Without a repair, there is nothing that the next audit does not say.
    assert manage.main(['audit']) == manage.FAILED
    assert capsys.readouterr().out == ''


@pytest.mark.parametrize(
    ('statements', 'conflict'),
    [
        (
            (
                *corruption.ALL['missing class'].statements,
                "INSERT INTO placement_resource_classes (id, name) VALUES (10006, 'CUSTOM_LOST_CLASS_10007')",
            ),
            'placement_resource_classes has the name CUSTOM_LOST_CLASS_10007 already, with the id 10006',
        ),
        (
            (
                'UPDATE placement_resource_class_sequence SET last = 10006',
                "UPDATE placement_resource_classes SET id = 10006 WHERE name = 'VCPU'",
            ),
            'placement_resource_classes has the name VCPU already, with the id 10006',
        ),
        (
            (
                *corruption.ALL['missing project'].statements,
                "INSERT INTO placement_projects (id, external_id) VALUES (502, 'lost-project-501')",
            ),
            'placement_projects has the name lost-project-501 already, with the id 502',
        ),
    ],
)
def test_repair_that_would_insert_a_name_twice_requires_a_decision(
    url: str, printed: Printed, statements: tuple[str, ...], conflict: str
) -> None:
    corruption.plant(url, *statements)
    table = conflict.split()[0]
    before = corruption.contents(url)[table]
    text = printed('audit', '--repair', code=manage_audit.UNREPAIRED)
    assert f'; {conflict}: rename this row by hand (requires a decision)\n' in text
    assert corruption.contents(url)[table] == before


def test_table_that_is_gone_is_one_line(url: str, failed: Printed) -> None:
    corruption.plant(url, 'DROP TABLE placement_allocations')
    error = failed('audit', '--repair')
    assert error.startswith('placement-manage: A table of the service is not in the database: ')
    assert 'allocations' in error
    # The log that a process of its own would have says the same, and is left out.
    ended = preforked.run('placement-manage', ['audit', '--repair'], os.environ)
    assert (ended.stdout, ended.stderr) == ('', error)


def test_check_is_one_statement_but_that_of_references_one_for_each_column(
    url: str, conf: cfg.ConfigOpts, db: Database, queries: Any
) -> None:
    for kind in KINDS:
        with queries(at_most=len(reference_checks.CHECKED) if kind == 'missing_reference' else 1):
            audit.find(db, conf, kind)
