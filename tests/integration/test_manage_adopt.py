"""``placement-manage db adopt`` on PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement import conf as placement_conf
from placement.cmd import manage, manage_audit
from placement.db import migration
from placement.db.api import Database
from placement.ops.adoption import Reporter, Step, adopt, names
from tests.support import adopted, corruption, databases, legacy_database
from tests.support.fixtures import PointCommandsAt
from tests.support.legacy_service import WRITES, Busy, ForeignService
from tests.support.waiting import wait_until

Manage = Callable[..., int]


@pytest.fixture
def theirs(setting: databases.Setting) -> Iterator[sa.URL]:
    """The URL of a database that another deployment made."""
    with databases.fresh(databases.server_url(setting.server)) as url:
        legacy_database.build(url)
        yield url


@pytest.fixture
def run(theirs: sa.URL, point_commands_at: PointCommandsAt) -> Manage:
    """Runs a command on that database."""
    point_commands_at(theirs)
    return lambda *arguments: manage.main(arguments)


@databases.ON_EACH
def test_adoption(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    before = corruption.contents(theirs)
    assert run('db', 'adopt') == 0
    planned = [line for line in capsys.readouterr().out.splitlines() if line.startswith('- ')]
    assert corruption.contents(theirs) == before
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith('- ')] == planned
    assert 'No problems found.' in out
    adopted.check_schema(theirs)
    adopted.check_rows(theirs)
    adopted.check_service(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    assert 'already, at revision' in capsys.readouterr().err
    assert run('db', 'sync') == 0


@databases.ON_EACH
def test_adoption_of_a_deployment_without_types(setting: databases.Setting, point_commands_at: PointCommandsAt) -> None:
    """The tables are changed differently on each server (functional/test_manage_adopt.py has the output)."""
    with databases.fresh(databases.server_url(setting.server)) as url:
        legacy_database.build(url, with_types=False)
        point_commands_at(url)
        assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
        adopted.check_schema(url)
        adopted.check_rows(url)
        adopted.check_service(url)


@databases.ON_EACH
def test_problem_changes_nothing(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    corruption.plant(theirs, "UPDATE resource_classes SET id = 10001, name = 'VCPU' WHERE id = 10000")
    before = corruption.contents(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    out = capsys.readouterr().out
    assert '- The standard resource class VCPU has the id 10001 instead of 0.' in out
    assert '- inventories.resource_class_id refers to resource_classes that do not exist: 10000.' in out
    assert corruption.contents(theirs) == before


@databases.ON_POSTGRESQL
def test_failure_on_postgresql_changes_nothing(theirs: sa.URL, run: Manage) -> None:
    """A failure of the last step rolls back all others."""
    before = corruption.contents(theirs)
    with pytest.raises(InterruptedError):
        _adopt(_Interrupting(after=1000, before_the_version=True))
    assert corruption.contents(theirs) == before
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN


@databases.ON_MARIADB
def test_an_interrupted_adoption_on_mariadb_is_finished_by_another(theirs: sa.URL, run: Manage) -> None:
    """Interrupted every few steps, with an old engine, and once during the conversion of the ratios."""
    corruption.plant(theirs, 'ALTER TABLE resource_provider_traits ENGINE=MyISAM')
    corruption.plant(theirs, 'ALTER TABLE inventories ADD COLUMN placement_allocation_ratio DOUBLE NULL')
    corruption.plant(theirs, 'UPDATE inventories SET placement_allocation_ratio = 7 WHERE id = 1')
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


@databases.ON_MARIADB
def test_foreign_key_on_a_text_is_a_problem(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    corruption.plant(theirs, 'ALTER TABLE allocations ADD FOREIGN KEY (consumer_id) REFERENCES consumers (uuid)')
    before = corruption.contents(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    assert (
        '- The foreign key from allocations.consumer_id is on a text column: drop the key first.'
        in capsys.readouterr().out
    )
    assert corruption.contents(theirs) == before


@databases.ON_EACH
def test_only_what_differs_is_changed(
    setting: databases.Setting, point_commands_at: PointCommandsAt, capsys: pytest.CaptureFixture[str]
) -> None:
    """Existing constraints and indexes are recognized and not created again."""
    single = {
        'postgresql': 'ALTER TABLE placement_inventories ALTER COLUMN allocation_ratio TYPE REAL',
        'mariadb': 'ALTER TABLE placement_inventories MODIFY allocation_ratio FLOAT NOT NULL',
    }
    with databases.fresh(databases.server_url(setting.server)) as url:
        point_commands_at(url)
        assert manage.main(['db', 'sync']) == 0
        corruption.plant(
            url, 'DROP TABLE placement_alembic_version', 'ALTER TABLE placement_inventories DROP COLUMN used'
        )
        corruption.plant(url, single[setting.server], *adopted.without_used(corruption.SOUND))
        capsys.readouterr()
        assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
        done = [line for line in capsys.readouterr().out.splitlines() if line.startswith('- ')]
        assert [line for line in done if 'Continue the ids of' not in line] == [
            '- Alter the table placement_inventories: add the column used.',
            '- Convert placement_inventories.allocation_ratio to double precision.',
            '- Copy project, user and type of the consumer to 1 allocation.',
            '- Set the usage of each inventory to the sum of its allocations (1 in all).',
            '- Create the change log: the tables placement_change_log_slots and placement_change_log.',
            f'- Record the revision of the schema, {migration.head()}, in the table placement_alembic_version.',
        ]
        assert corruption.column(url, 'SELECT used FROM placement_inventories ORDER BY id') == [2, 0]


# Another service that still runs ------------------------------------------------------------------------

#: The statement that begins its sessions, on each server: none, and a mode of MariaDB that accepts invalid values.
SESSIONS = {'postgresql': (None,), 'mariadb': (None, "SET SESSION sql_mode = ''")}


@pytest.fixture
def other(theirs: sa.URL) -> Iterator[ForeignService]:
    """Another service, connected to the database that it made."""
    service = ForeignService(theirs)
    yield service
    service.close()


@databases.ON_EACH
def test_another_service_cannot_write(setting: databases.Setting, theirs: sa.URL, run: Manage) -> None:
    services = [ForeignService(theirs, before) for before in SESSIONS[setting.server]]
    for service in services:
        for write in WRITES:
            adopted.check_it_writes(service, write)
        for _ in range(3):
            assert service.claim()
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
    for service in services:
        for write in WRITES:
            adopted.check_it_cannot_write(theirs, service, write)
        with pytest.raises(sa.exc.DBAPIError):
            service.claim()
        service.close()
    adopted.check_no_oversell(theirs)


@databases.ON_EACH
def test_another_service_writes_until_it_is_shut_out(theirs: sa.URL, run: Manage) -> None:
    """Several write at full speed; everything that they committed is counted."""
    busy = [Busy(theirs) for _ in range(3)]
    for service in busy:
        service.start()
    wait_until(lambda: all(service.written > 20 for service in busy))
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
    for service in busy:
        service.join(60)
        assert 'resource_providers' in str(service.rejected) or 'allocations' in str(service.rejected)
    adopted.check_usages(theirs)
    adopted.check_no_oversell(theirs)


@databases.ON_EACH
def test_transactions_begun_before_the_adoption_are_counted(theirs: sa.URL, run: Manage, other: ForeignService) -> None:
    """The adoption waits for transactions that are open when it begins."""
    transaction = other.connection.begin()
    assert other.begin_claim()
    ending = threading.Timer(2, transaction.commit)
    ending.start()
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
    ending.join()
    assert corruption.column(theirs, 'SELECT used FROM placement_inventories WHERE id = 4') == [3]
    adopted.check_no_oversell(theirs)


@databases.ON_EACH
def test_a_transaction_that_does_not_end_stops_the_adoption(
    theirs: sa.URL, run: Manage, other: ForeignService, capsys: pytest.CaptureFixture[str]
) -> None:
    before = corruption.contents(theirs)
    with other.connection.begin():
        assert other.begin_claim()
        assert run('db', 'adopt', '--yes', '--ignore-connections') == manage.FAILED
        assert 'placement-manage: the database reported: ' in capsys.readouterr().err
        other.connection.rollback()
    assert corruption.contents(theirs) == before
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN


@databases.ON_EACH
def test_connections_of_another_service_stop_the_adoption(
    setting: databases.Setting,
    theirs: sa.URL,
    run: Manage,
    other: ForeignService,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = corruption.contents(theirs)
    account = theirs.username
    # MySQL looks its name up.
    address = 'localhost' if databases.on_mysql() else '127.0.0.1'
    assert run('db', 'adopt') == 0
    assert f'Note: There is a connection of the account {account} from {address}' in capsys.readouterr().out
    for command in ('adopt', 'leave'):
        assert run('db', command, '--yes') == manage.FAILED
        out = capsys.readouterr().out
        assert out.startswith('Nothing was changed, because of these problems:\n')
        assert f'- There is a connection of the account {account} from {address}' in out
        assert out.endswith(', add --ignore-connections.\n')
        if command == 'adopt':
            assert corruption.contents(theirs) == before
            assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
            capsys.readouterr()
    assert run('db', 'leave') == 0
    assert f'Note: There is a connection of the account {account}' in capsys.readouterr().out
    # The adoption waits for a connection that is about to end.
    ending = threading.Timer(1, other.close)
    ending.start()
    assert run('db', 'leave', '--yes') == 0
    ending.join()


@databases.ON_EACH
def test_leaving_and_adopting_again(
    theirs: sa.URL, run: Manage, other: ForeignService, capsys: pytest.CaptureFixture[str]
) -> None:
    adopted.check_leaving_and_adopting_again(theirs, other, lambda arguments: run(*arguments), capsys)


@databases.ON_MARIADB
def test_a_problem_found_late_restores_the_tables(theirs: sa.URL, run: Manage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another service may write invalid rows before it is shut out, which are found after the tables are renamed."""
    before = corruption.contents(theirs)
    renaming = names.Names.add_prefix

    def rename_beside_a_writer(self: names.Names) -> Iterator[Step]:
        corruption.plant(theirs, 'UPDATE inventories SET step_size = 0 WHERE id = 1')
        return renaming(self)

    monkeypatch.setattr(names.Names, 'add_prefix', rename_beside_a_writer)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    corruption.plant(theirs, 'UPDATE inventories SET step_size = 1 WHERE id = 1')
    assert corruption.contents(theirs) == before


@databases.ON_MARIADB
def test_an_interrupted_leave_on_mariadb_is_finished_by_another(theirs: sa.URL, run: Manage) -> None:
    before = corruption.contents(theirs)
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    for after in (0, 1):
        db = Database(placement_conf.load(config_files=[]))
        with pytest.raises(InterruptedError):
            adopt.return_database(db.engine, _Interrupting(after))
        db.dispose()
    assert run('db', 'leave', '--yes') == 0
    after_all = corruption.contents(theirs)
    assert before.keys() | {'placement_resource_class_sequence'} == after_all.keys()
    # Without the copies of the owners, which stay.
    assert before['allocations'] == [row.rsplit(', ', 3)[0] + ')' for row in after_all['allocations']]


class _Interrupting:
    """Ends an adoption after some steps, or before the version is recorded."""

    def __init__(self, after: int, before_the_version: bool = False) -> None:
        self._left = after
        self._before_the_version = before_the_version

    def __call__(self, step: Step) -> None:
        self._left -= 1
        if self._left < 0 or (self._before_the_version and step.sentence.startswith('Record the revision')):
            raise InterruptedError


def _adopt(report: Reporter) -> None:
    conf = placement_conf.load(config_files=[])
    db = Database(conf)
    try:
        owner = (conf.placement.incomplete_consumer_project_id, conf.placement.incomplete_consumer_user_id)
        adopt.adopt_database(db.engine, *owner, report)
    finally:
        db.dispose()
