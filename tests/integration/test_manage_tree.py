"""``placement-manage tree``, ``consumer`` and ``project``, and ``placement-status`` on PostgreSQL and MariaDB."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from placement.cmd import manage, status
from tests.support import corruption, databases
from tests.support.fixtures import PointCommandsAt


@databases.ON_EACH
def test_trees_and_status(
    database: sa.URL, point_commands_at: PointCommandsAt, capsys: pytest.CaptureFixture[str]
) -> None:
    point_commands_at(database)
    assert status.main(['upgrade', 'check', '--json']) == status.FAILED
    assert manage.main(['db', 'sync']) == 0
    corruption.plant(database, *corruption.SOUND)
    assert status.main(['upgrade', 'check', '--json']) == 0
    capsys.readouterr()
    assert manage.main(['tree', 'child', '--format', 'json']) == 0
    (tree,) = json.loads(capsys.readouterr().out)['trees']
    assert [provider['name'] for provider in tree['providers']] == ['root', 'child']
    assert tree['providers'][0]['inventories']['VCPU']['used'] == 2
    assert manage.main(['consumer', corruption.HOLDER]) == 0
    assert f'{corruption.HOLDER} of project project, user user' in capsys.readouterr().out
    assert manage.main(['project', 'project']) == 0
    assert 'Project project: 1 consumer on 1 provider' in capsys.readouterr().out
    corruption.plant(
        database,
        "UPDATE placement_inventories SET total = 1, updated_at = '2020-11-03 10:00:00' WHERE id = 1",
        "UPDATE placement_allocations SET created_at = '2020-11-02 10:00:00'",
    )
    for arguments in (['tree'], ['tree', '--unchanged-for', '30d'], ['tree', 'child', '--consumers']):
        assert manage.main(arguments) == 0
        shown = capsys.readouterr().out
        assert '(2020-11-03 10:00 UTC); allocations from 2020-11-02 10:00 UTC to 2020-11-02 10:00 UTC. That' in shown
    assert f'{corruption.HOLDER} of project project, user user: VCPU 2' in shown
    # Names are compared with regard to case.
    assert manage.main(['tree', 'CHILD']) == manage.FAILED
    assert manage.main(['tree', corruption.CHILD.upper()]) == 0
    corruption.plant(database, *corruption.ALL['no root'].statements)
    assert status.main(['upgrade', 'check', '--json']) == 2
