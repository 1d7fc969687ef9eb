"""``placement-manage db adopt`` on PostgreSQL and MariaDB."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement.cmd import manage, manage_audit
from tests.functional import adopted, damage, foreign
from tests.integration import databases

SERVERS = [databases.Setting(name, 'default') for name in ('postgresql', 'mariadb')]
ON_EACH = pytest.mark.parametrize('setting', databases.parameters(*SERVERS), indirect=True)

Manage = Callable[..., int]


@pytest.fixture
def theirs(setting: databases.Setting) -> Iterator[sa.URL]:
    """A database that another deployment made."""
    with databases.fresh(databases.server_url(setting.server)) as url:
        foreign.build(url)
        yield url


@pytest.fixture
def run(theirs: sa.URL, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Manage:
    """Runs a command on that database."""
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', theirs.render_as_string(hide_password=False))
    return lambda *arguments: manage.main(arguments)


@ON_EACH
def test_adoption(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    before = damage.contents(theirs)
    assert run('db', 'adopt') == 0
    planned = [line for line in capsys.readouterr().out.splitlines() if line.startswith('- ')]
    assert damage.contents(theirs) == before
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith('- ')] == planned
    assert 'Nothing is wrong.' in out
    adopted.check_schema(theirs)
    adopted.check_rows(theirs)
    adopted.check_service(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    assert 'already, at version' in capsys.readouterr().err
    assert run('db', 'sync') == 0


@ON_EACH
def test_doubt_changes_nothing(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    damage.plant(theirs, "UPDATE resource_classes SET id = 10001, name = 'VCPU' WHERE id = 10000")
    before = damage.contents(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    out = capsys.readouterr().out
    assert '- The standard resource class VCPU has the id 10001 instead of 0.' in out
    assert '- inventories.resource_class_id refers to resource_classes that do not exist: 10000.' in out
    assert damage.contents(theirs) == before
