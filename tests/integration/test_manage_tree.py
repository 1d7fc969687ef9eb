"""``placement-manage tree`` and ``placement-status`` on PostgreSQL and MariaDB."""

from __future__ import annotations

import json
import pathlib

import pytest
import sqlalchemy as sa

from placement.cmd import manage, status
from tests.support import corruption, databases

SERVERS = [databases.Setting(name, 'default') for name in ('postgresql', 'mariadb')]


@pytest.mark.parametrize('setting', databases.parameters(*SERVERS), indirect=True)
def test_trees_and_status(
    database: sa.URL, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', database.render_as_string(hide_password=False))
    assert status.main(['upgrade', 'check', '--format', 'json']) == 2
    assert manage.main(['db', 'sync']) == 0
    corruption.plant(database, *corruption.SOUND)
    assert status.main(['upgrade', 'check', '--format', 'json']) == 0
    capsys.readouterr()
    assert manage.main(['tree', 'child', '--format', 'json']) == 0
    (tree,) = json.loads(capsys.readouterr().out)['trees']
    assert [one['name'] for one in tree['providers']] == ['root', 'child']
    assert tree['providers'][0]['inventories']['VCPU']['used'] == 2
    # Names are compared with regard to case.
    assert manage.main(['tree', 'CHILD']) == manage.FAILED
    assert manage.main(['tree', corruption.CHILD.upper()]) == 0
    corruption.plant(database, *corruption.ALL['no root'].statements)
    assert status.main(['upgrade', 'check', '--format', 'json']) == 2
