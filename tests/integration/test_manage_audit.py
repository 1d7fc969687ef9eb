"""``placement-manage audit`` on PostgreSQL and MariaDB, and beside a running service."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement.cmd import manage, manage_audit
from tests.support import corruption, databases, servers

SERVERS = [databases.Setting(name, 'default') for name in ('postgresql', 'mariadb')]
ON_EACH = pytest.mark.parametrize('setting', databases.parameters(*SERVERS), indirect=True)

Manage = Callable[..., int]


@pytest.fixture
def run(database: sa.URL, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Manage]:
    """Runs a command on a database with the schema; rows that the test adds are deleted at the end."""
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', database.render_as_string(hide_password=False))

    def command(*arguments: str) -> int:
        return manage.main(arguments)

    assert command('db', 'sync') == 0
    yield command
    corruption.plant(database, *corruption.CLEAR)


@ON_EACH
def test_findings_and_repairs(database: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    """Each damage is found, not changed without --repair, and repaired unless a person has to decide."""
    for name, planted in corruption.ALL.items():
        corruption.plant(database, *corruption.CLEAR, *corruption.SOUND)
        assert run('audit') == manage_audit.CLEAN, name
        corruption.plant(database, *planted.statements)
        capsys.readouterr()
        assert run('audit', '--repair', '--dry-run', '--format', 'json') == planted.code, name
        findings = json.loads(capsys.readouterr().out)['findings']
        assert [finding['kind'] for finding in findings] == [planted.kind] * len(planted.subjects), name
        assert all(
            finding.items() >= subject.items() for finding, subject in zip(findings, planted.subjects, strict=True)
        )
        assert any(planted.detail in finding['detail'] for finding in findings), name
        assert run('audit', '--repair') == (manage_audit.REPAIRED if planted.after else planted.code), name
        if planted.after:
            query, result = planted.after
            assert corruption.column(database, query) == result, name
            assert run('audit') == manage_audit.CLEAN, name


@ON_EACH
def test_trees_without_a_change(database: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    corruption.plant(database, *corruption.SOUND)
    capsys.readouterr()
    assert run('audit', '--unchanged-for', '30d', '--format', 'json') == manage_audit.CLEAN
    findings = json.loads(capsys.readouterr().out)['findings']
    since = 'nothing has changed in its tree since 2020-01-01 00:00 UTC'
    assert [(finding['provider_name'], finding['detail']) for finding in findings] == [
        ('flat', f'{since}; no allocations'),
        ('root', f'{since}; 1 allocation'),
    ]


@ON_EACH
def test_repair_beside_a_running_service(database: sa.URL, run: Manage, tmp_path: pathlib.Path) -> None:
    """Usages are made wrong and repaired while clients claim. No answer is an error; in the end usages are right."""
    corruption.plant(
        database, *corruption.SOUND, 'UPDATE placement_inventories SET total = 12, max_unit = 12 WHERE id = 2'
    )
    url = database.render_as_string(hide_password=False)
    with servers.serving(url, tmp_path, metrics=False) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = [pool.submit(_claims, server.url, client) for client in range(4)]
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


def _claims(url: str, client: int) -> list[int]:
    statuses = []
    for turn in range(25):
        consumer = str(uuid.uuid5(uuid.NAMESPACE_OID, f'{client} {turn}'))
        claim = {
            'allocations': {corruption.CHILD: {'resources': {'VCPU': 3}}},
            'project_id': 'project',
            'user_id': 'user',
        }
        statuses.append(_call(f'{url}/allocations/{consumer}', 'PUT', json.dumps(claim).encode()))
        if statuses[-1] == 204:
            statuses.append(_call(f'{url}/allocations/{consumer}', 'DELETE'))
    return statuses


def _call(url: str, method: str, body: bytes | None = None) -> int:
    headers = {
        'X-Auth-Token': 'admin',
        'OpenStack-API-Version': 'placement 1.12',
        'Content-Type': 'application/json',
    }
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
