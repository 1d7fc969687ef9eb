"""``placement-manage db adopt`` on PostgreSQL and MariaDB."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement import conf as placement_conf
from placement.cmd import manage, manage_audit
from placement.db.adoption import adopt
from placement.db.adoption.plan import Step
from placement.db.api import Database
from tests.support import adopted, damage, databases, foreign

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


@pytest.mark.parametrize('setting', databases.parameters(SERVERS[0]), indirect=True)
def test_failure_on_postgresql_changes_nothing(theirs: sa.URL, run: Manage) -> None:
    """Even the last step takes all others with it."""
    before = damage.contents(theirs)
    with pytest.raises(InterruptedError):
        _adopt(_Interrupting(after=1000, before_the_version=True))
    assert damage.contents(theirs) == before
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN


@pytest.mark.parametrize('setting', databases.parameters(SERVERS[1]), indirect=True)
def test_adoption_on_mariadb_is_finished_by_doing_it_again(theirs: sa.URL, run: Manage) -> None:
    """Cut short every few steps, with an old engine, and once in the middle of the exchange of the ratios."""
    damage.plant(theirs, 'ALTER TABLE resource_provider_traits ENGINE=MyISAM')
    damage.plant(theirs, 'ALTER TABLE inventories ADD COLUMN placement_allocation_ratio DOUBLE NULL')
    damage.plant(theirs, 'UPDATE inventories SET placement_allocation_ratio = 7 WHERE id = 1')
    interrupted = 0
    while True:
        try:
            _adopt(_Interrupting(after=6))
            break
        except InterruptedError:
            interrupted += 1
    assert interrupted > 3
    assert run('audit') == manage_audit.CLEAN
    adopted.check_schema(theirs)
    adopted.check_rows(theirs)
    adopted.check_service(theirs)


@pytest.mark.parametrize('setting', databases.parameters(SERVERS[1]), indirect=True)
def test_foreign_key_on_a_text_is_a_doubt(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    damage.plant(theirs, 'ALTER TABLE allocations ADD FOREIGN KEY (consumer_id) REFERENCES consumers (uuid)')
    before = damage.contents(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    assert '- The foreign key from allocations.consumer_id is on a text: drop it first.' in capsys.readouterr().out
    assert damage.contents(theirs) == before


@ON_EACH
def test_only_what_differs_is_changed(
    setting: databases.Setting,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Constraints and indexes that are there are seen, and not made again."""
    single = {
        'postgresql': 'ALTER TABLE inventories ALTER COLUMN allocation_ratio TYPE REAL',
        'mariadb': 'ALTER TABLE inventories MODIFY allocation_ratio FLOAT NOT NULL',
    }
    with databases.fresh(databases.server_url(setting.server)) as url:
        monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
        monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', url.render_as_string(hide_password=False))
        assert manage.main(['db', 'sync']) == 0
        damage.plant(url, 'DROP TABLE placement_alembic_version', 'ALTER TABLE inventories DROP COLUMN used')
        damage.plant(url, single[setting.server], *adopted.without_used(damage.SOUND))
        capsys.readouterr()
        assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
        done = [line for line in capsys.readouterr().out.splitlines() if line.startswith('- ')]
        assert [line for line in done if 'Let the ids of' not in line] == [
            '- Alter the table inventories: add the column used.',
            '- Make inventories.allocation_ratio a double, each value the shortest that is the same single.',
            '- Record how much of each inventory is used, from 1 allocation.',
            '- Make the log of changes, the tables writers and changes.',
            '- Record the version of the schema, 003, in the table placement_alembic_version.',
        ]
        assert damage.column(url, 'SELECT used FROM inventories ORDER BY id') == [2, 0]


class _Interrupting:
    """Ends an adoption after some steps, or before the version is recorded."""

    def __init__(self, after: int, before_the_version: bool = False) -> None:
        self._left = after
        self._before_the_version = before_the_version

    def __call__(self, step: Step) -> None:
        self._left -= 1
        if self._left < 0 or (self._before_the_version and step.sentence.startswith('Record the version')):
            raise InterruptedError


def _adopt(report: adopt.Reporter) -> None:
    conf = placement_conf.load(config_files=[])
    db = Database(conf)
    try:
        owner = (conf.placement.incomplete_consumer_project_id, conf.placement.incomplete_consumer_user_id)
        adopt.carry_out(db.engine, *owner, report)
    finally:
        db.dispose()
