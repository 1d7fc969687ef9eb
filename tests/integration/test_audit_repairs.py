"""``placement-manage audit``: each finding and repair on every database, and beside a running service."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import json
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.cmd import manage, manage_audit
from placement.ops.audit.check import RowChange
from placement.ops.audit.kinds import KINDS
from tests.support import applications, corruption, databases, servers
from tests.support.fixtures import PointCommandsAt
from tests.support.history.client import Client
from tests.support.http_client import claim_body, send_request

Manage = Callable[..., int]


@pytest.fixture
def run(database: sa.URL, point_commands_at: PointCommandsAt) -> Iterator[Manage]:
    """Runs a command on a database with the schema; rows that the test adds are deleted at the end."""
    point_commands_at(database)

    def command(*arguments: str) -> int:
        return manage.main(arguments)

    assert command('db', 'sync') == 0
    yield command
    corruption.plant(database, *corruption.CLEAR)


def test_each_kind_has_damages_in_the_order_of_kinds() -> None:
    assert [kind for kind, _ in itertools.groupby(damage.kind for damage in corruption.ALL.values())] == list(KINDS)


@pytest.mark.parametrize('damage', corruption.ALL.values(), ids=corruption.ALL)
@databases.EVERYWHERE
def test_findings_and_repairs(
    database: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str], damage: corruption.Damage
) -> None:
    """A damage is found, not changed without --repair, and repaired unless a person has to decide."""
    corruption.plant(database, *corruption.CLEAR, *corruption.SOUND)
    assert run('audit') == manage_audit.CLEAN
    corruption.plant(database, *damage.statements)
    damaged = corruption.contents(database)
    for options in ([], ['--dry-run'], ['--repair', '--dry-run']):
        capsys.readouterr()
        assert run('audit', '--format', 'json', *options) == damage.code
        findings = json.loads(capsys.readouterr().out)['findings']
        subjects = [{name: finding[name] for name in damage.subjects[0]} for finding in findings]
        assert subjects == list(damage.subjects)
        assert any(damage.detail in finding['detail'] for finding in findings)
        states = [(finding['kind'], finding['repaired'], finding['needs_action']) for finding in findings]
        assert set(states) == {(damage.kind, False, damage.needs_action)}
    assert run('audit') == damage.code
    assert damage.detail in capsys.readouterr().out
    assert corruption.contents(database) == damaged
    announced = [finding['changes'] for finding in findings]
    assert run('audit', '--repair', '--format', 'json') == (manage_audit.REPAIRED if damage.after else damage.code)
    made = [finding['changes'] for finding in json.loads(capsys.readouterr().out)['findings']]
    assert made == list(map(corruption.with_new_ids, announced, made))
    assert _changed_rows(damaged, corruption.contents(database)) == _number_of_rows(announced)
    if damage.after:
        query, result = damage.after
        assert corruption.column(database, query) == result
        assert run('audit') == manage_audit.CLEAN
    else:
        verdict = 'requires a decision' if damage.needs_action else 'for information'
        run('audit', '--repair')
        assert f'({verdict})' in capsys.readouterr().out
        assert corruption.contents(database) == damaged


def _changed_rows(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> collections.Counter[tuple[str, str]]:
    """Return, for each table, how many rows are gone and how many are new; a changed row is both."""
    rows: collections.Counter[tuple[str, str]] = collections.Counter()
    for table in before.keys() - {'placement_change_log', 'placement_writer_slots'}:
        rows[table, 'gone'] = len(set(before[table]) - set(after[table]))
        rows[table, 'new'] = len(set(after[table]) - set(before[table]))
    return rows


def _number_of_rows(announced: list[list[dict[str, Any]]]) -> collections.Counter[tuple[str, str]]:
    rows: collections.Counter[tuple[str, str]] = collections.Counter()
    for change in itertools.chain.from_iterable(announced):
        rows[change['table'], 'gone'] += change['old'] is not None
        rows[change['table'], 'new'] += change['new'] is not None
    return rows


@databases.EVERYWHERE
def test_a_capacity_of_more_than_32_bits_is_a_capacity(
    database: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]
) -> None:
    damage = corruption.ALL['negative reserved']
    corruption.plant(database, *corruption.CLEAR, *corruption.SOUND, *damage.statements)
    claims = claim_body({corruption.CHILD: {'VCPU': 2}}), claim_body({corruption.CHILD: {'VCPU': 9}})
    with applications.application(database) as app:
        statuses = [send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', body).status_int for body in claims]
    # Only ``max_unit``, which is 8, limits the amount.
    assert statuses == [204, 409]
    assert run('tree', corruption.CHILD) == 0
    assert '2 of 2,147,483,648 used' in capsys.readouterr().out


@databases.on(*databases.defaults())
def test_a_repair_changes_no_row_that_a_client_has_changed_since(
    database: sa.URL, run: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one writer at a time, so there no client can overtake a repair."""
    corruption.plant(database, *corruption.CLEAR, *corruption.SOUND, *corruption.ALL['missing parent'].statements)
    apply = RowChange.apply

    def overtaken(change: RowChange, tx: sa.Connection) -> RowChange | None:
        monkeypatch.setattr(RowChange, 'apply', apply)
        corruption.plant(database, 'UPDATE placement_resource_providers SET parent_provider_id = 1 WHERE id = 3')
        return change.apply(tx)

    monkeypatch.setattr(RowChange, 'apply', overtaken)
    run('audit', '--repair', '--except', 'invalid_tree')
    parents = corruption.column(database, 'SELECT parent_provider_id FROM placement_resource_providers ORDER BY id')
    assert parents == [None, 1, 1]


@pytest.mark.parametrize(
    ('damage', 'row'),
    [
        ('outdated sequence', 'placement_resource_class_sequence WHERE id = 1'),
        # The parent of the provider with the wrong root.
        ('wrong root', 'placement_resource_providers WHERE id = 1'),
        ('empty aggregate', f"placement_aggregates WHERE uuid = '{corruption.EMPTY}'"),
        ('project of an allocation', 'placement_consumers WHERE id = 501'),
        ('idle consumer', 'placement_consumers WHERE id = 502'),
        ('usage too high', 'placement_inventories WHERE id = 1'),
    ],
)
@databases.on(*databases.defaults())
def test_a_repair_has_locked_the_row_that_decides(
    database: sa.URL, run: Manage, monkeypatch: pytest.MonkeyPatch, damage: str, row: str
) -> None:
    corruption.plant(database, *corruption.CLEAR, *corruption.SOUND, *corruption.ALL[damage].statements)
    apply = RowChange.apply

    def after_lock(change: RowChange, tx: sa.Connection) -> RowChange | None:
        with pytest.raises(sa.exc.OperationalError):
            corruption.plant(database, f'SELECT id FROM {row} FOR UPDATE NOWAIT')
        return apply(change, tx)

    monkeypatch.setattr(RowChange, 'apply', after_lock)
    assert run('audit', '--repair') == manage_audit.REPAIRED


@databases.EVERYWHERE
def test_repair_beside_a_running_service(database: sa.URL, run: Manage, tmp_path: pathlib.Path) -> None:
    """Usages are made wrong and repaired while clients claim. No answer is an error; in the end usages are right."""
    corruption.plant(
        database, *corruption.SOUND, 'UPDATE placement_inventories SET total = 12, max_unit = 12 WHERE id = 2'
    )
    url = database.render_as_string(hide_password=False)
    with servers.serving(url, tmp_path, metrics=False) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = [pool.submit(_claims, server.url) for _ in range(4)]
        while not all(claims.done() for claims in running):
            # Never too low, since that would let clients oversell.
            corruption.plant(database, 'UPDATE placement_inventories SET used = used + 4 WHERE id = 2')
            assert run('audit', '--repair') in (manage_audit.CLEAN, manage_audit.REPAIRED)
            row = corruption.column(
                database, 'SELECT SUM(used) FROM placement_allocations WHERE resource_provider_id = 2'
            )
            assert (row[0] or 0) <= 12
        statuses = [status for claims in running for status in claims.result()]
    assert set(statuses) <= {204, 409}
    assert 204 in statuses
    assert run('audit', '--repair') in (manage_audit.CLEAN, manage_audit.REPAIRED)
    assert run('audit') == manage_audit.CLEAN
    assert corruption.column(database, 'SELECT used FROM placement_inventories ORDER BY id') == [2, 0]


def _claims(url: str) -> list[int | None]:
    statuses = []
    with contextlib.closing(Client([url], token='admin')) as client:
        for _ in range(25):
            path = f'/allocations/{uuid.uuid4()}'
            statuses.append(client.request('PUT', path, claim_body({corruption.CHILD: {'VCPU': 9}})).status)
            if statuses[-1] == 204:
                statuses.append(client.request('DELETE', path).status)
    return statuses
