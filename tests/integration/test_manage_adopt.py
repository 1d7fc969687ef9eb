"""``placement-manage db adopt`` on each database; tests/functional/test_manage_adopt.py has the plan and problems."""

from __future__ import annotations

import pathlib
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from placement import conf as placement_conf
from placement.cmd import manage, manage_audit
from placement.db import migration, tables
from placement.db.api import Database
from placement.ops.adoption import Reporter, Step, adopt, found_tables, names
from tests.integration import locking
from tests.support import corruption, databases, legacy_database
from tests.support.event_hooks import listening
from tests.support.fixtures import PointCommandsAt
from tests.support.http_client import claim_body, send_request
from tests.support.legacy_service import Busy, ForeignService, check_no_oversell, check_usages, fill, our_service
from tests.support.waiting import wait_until

Manage = Callable[..., int]


@pytest.fixture
def url(setting: databases.Setting, tmp_path: pathlib.Path, point_commands_at: PointCommandsAt) -> Iterator[sa.URL]:
    """The URL of an empty database; commands that the test runs use it."""
    with databases.empty(setting.server, tmp_path) as url:
        point_commands_at(url)
        yield url


@pytest.fixture
def theirs(url: sa.URL) -> sa.URL:
    """The URL of a database that another deployment made."""
    legacy_database.build(url)
    return url


@pytest.fixture
def run(url: sa.URL) -> Manage:
    """Runs a command on that database."""
    return lambda *arguments: manage.main(arguments)


def check_schema(url: str | sa.URL) -> None:
    """Our schema is complete and at the newest revision; the schema of the other service is unchanged."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={'compare_type': True})
        differences = compare_metadata(context, tables.metadata)
    theirs = {
        _columns(difference[1]) for difference in differences if difference[0] in ('remove_constraint', 'remove_index')
    }
    # Alembic is silent about an index that MariaDB made for a foreign key.
    indexes = sa.inspect(engine).get_indexes('placement_consumers')
    theirs |= {('placement_consumers', *map(str, index['column_names'])) for index in indexes}
    wrong = [difference for difference in differences if _matters(difference, theirs)]
    assert not wrong, wrong
    [length] = [
        column['type'].length  # type: ignore[attr-defined]
        for column in sa.inspect(engine).get_columns('placement_projects')
        if column['name'] == 'external_id'
    ]
    # SQLite, where the tables are made anew, does not limit lengths.
    assert length == (255 if engine.dialect.name == 'sqlite' else 300)
    with engine.connect() as connection:
        assert not [
            name for name, table in found_tables.read(connection, names.Names(connection)).items() if table.reuses_ids
        ]
    assert corruption.column(url, 'SELECT last FROM placement_resource_class_sequence') == [10000]
    assert corruption.column(url, 'SELECT version_num FROM alembic_version') == ['somebody-elses']
    assert corruption.column(url, f'SELECT version_num FROM {migration.VERSION_TABLE}') == [migration.head()]


def _columns(item: Any) -> tuple[str, ...]:
    return (item.table.name, *item.columns.keys())


def _matters(difference: Any, theirs: set[tuple[str, ...]]) -> bool:
    """Whether a part of our schema is missing or different. Parts of the other schema may stay, and replace ours."""
    if isinstance(difference, list):
        return any(_matters(part, theirs) for part in difference)
    what = difference[0]
    if what == 'add_constraint':
        return _columns(difference[1]) not in theirs
    if what == 'add_index':
        # An index that begins with the same columns is enough.
        columns = _columns(difference[1])
        return all(key[: len(columns)] != columns for key in theirs)
    if what == 'modify_type':
        # A text column that is longer than ours keeps its length.
        existing, ours = difference[5:]
        return existing.length <= ours.length
    return what not in ('remove_table', 'remove_column', 'remove_index', 'remove_constraint', 'remove_fk')


#: Queries of a database after its adoption, and the first columns of their results.
_ROWS: dict[str, list[Any]] = {
    'SELECT root_provider_id FROM placement_resource_providers ORDER BY id': [1, 1, 3],
    'SELECT generation FROM placement_resource_providers ORDER BY id': [5, 2, 0],
    'SELECT allocation_ratio FROM placement_inventories ORDER BY id': [1.5, 16.1, 0.1, 1.0],
    'SELECT used FROM placement_inventories ORDER BY id': [1024, 12, 0, 2],
    'SELECT id FROM placement_inventories WHERE updated_at IS NOT NULL': [1],
    'SELECT consumer_project_id FROM placement_allocations ORDER BY id': [1, 1, 1, 2],
    'SELECT consumer_user_id FROM placement_allocations ORDER BY id': [1, 1, 1, 2],
    'SELECT name FROM placement_resource_classes WHERE id IN (0, 1, 2, 10000) ORDER BY id': [
        *('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_GOLD'),
    ],
    'SELECT name FROM placement_traits WHERE id < 3 ORDER BY id': ['CUSTOM_FAST', 'HW_CPU_X86_AVX2'],
}


def check_rows(url: str | sa.URL) -> None:
    """No rows of the other service are lost; what it did not have is added."""
    for query, values in _ROWS.items():
        assert corruption.column(url, query) == values, query


def check_adopted(url: str | sa.URL) -> None:
    """Schema and rows are right. The service has the old data, searches it, and can claim and create names."""
    check_schema(url)
    check_rows(url)
    with our_service(url) as app:
        _check_answers(app)
        types = corruption.column(url, 'SELECT name FROM placement_consumer_types')
        assert types in (['INSTANCE'], [])
        _check_types(app, types[0] if types else 'unknown')
        _check_candidates(app)
        _check_claims(app)
        _check_names(app)


def _check_answers(app: Any) -> None:
    allocations = send_request(app, 'GET', f'/allocations/{legacy_database.INSTANCE}').json
    assert {key: allocation['resources'] for key, allocation in allocations.pop('allocations').items()} == {
        legacy_database.HOST: {'MEMORY_MB': 1024},
        legacy_database.NUMA: {'VCPU': 4},
    }
    assert allocations == {'project_id': 'the-project', 'user_id': 'the-user', 'consumer_generation': 3}
    usages = send_request(app, 'GET', '/usages?project_id=the-project').json['usages']
    assert usages == {'MEMORY_MB': 1024, 'VCPU': 12}
    traits = send_request(app, 'GET', f'/resource_providers/{legacy_database.NUMA}/traits').json['traits']
    assert traits == ['HW_CPU_X86_AVX2']


def _check_types(app: Any, of_instance: str) -> None:
    """Types that the database had are kept and can be used, and new ones get new ids."""
    for consumer, type_ in (
        (legacy_database.INSTANCE, of_instance),
        (legacy_database.LARGE, 'unknown'),
        (legacy_database.LOST, 'unknown'),
    ):
        assert send_request(app, 'GET', f'/allocations/{consumer}', version='1.38').json['consumer_type'] == type_
    usages = send_request(app, 'GET', '/usages?project_id=the-project', version='1.38').json['usages']
    assert usages.keys() == {of_instance, 'unknown'}
    claim = claim_body({legacy_database.NUMA: {'VCPU': 1}}, project_id='typed')
    for type_ in ('INSTANCE', 'MIGRATION'):
        consumer = f'/allocations/{uuid.uuid4()}'
        assert send_request(app, 'PUT', consumer, {**claim, 'consumer_type': type_}, '1.38').status_code == 204
        usages = send_request(app, 'GET', '/usages?project_id=typed', version='1.38').json['usages']
        assert usages == {type_: {'consumer_count': 1, 'VCPU': 1}}
        assert send_request(app, 'DELETE', consumer).status_code == 204


def _check_candidates(app: Any) -> None:
    path = f'/allocation_candidates?resources=MEMORY_MB:512,VCPU:2&member_of={legacy_database.RACK}'
    response = send_request(app, 'GET', path).json
    assert [set(candidate['allocations']) for candidate in response['allocation_requests']] == [
        {legacy_database.HOST, legacy_database.NUMA}
    ]
    capacity = response['provider_summaries'][legacy_database.NUMA]['resources']['VCPU']
    assert capacity == {'capacity': int(16 * 16.1), 'used': 12}


def _check_claims(app: Any) -> None:
    small, large = (claim_body({legacy_database.OTHER: {'VCPU': amount}}) for amount in (6, 7))
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', large).status_code == 409
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', small).status_code == 204
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', small).status_code == 409
    assert send_request(app, 'DELETE', f'/allocations/{legacy_database.LOST}').status_code == 204
    usages = send_request(app, 'GET', f'/resource_providers/{legacy_database.OTHER}/usages').json['usages']
    assert usages == {'CUSTOM_GOLD': 0, 'VCPU': 6}


def _check_names(app: Any) -> None:
    """New names get new ids, names that differ in case are different, and names in use cannot be deleted."""
    assert send_request(app, 'PUT', '/resource_classes/CUSTOM_SILVER').status_code == 201
    assert send_request(app, 'PUT', '/traits/CUSTOM_SLOW').status_code == 201
    assert send_request(app, 'POST', '/resource_providers', {'name': 'HOST'}).status_code == 200
    assert send_request(app, 'POST', '/resource_providers', {'name': 'host'}).status_code == 409
    assert send_request(app, 'DELETE', '/traits/CUSTOM_FAST').status_code == 409
    assert send_request(app, 'DELETE', '/resource_classes/CUSTOM_GOLD').status_code == 409
    assert send_request(app, 'DELETE', f'/resource_providers/{legacy_database.HOST}').status_code == 409


@databases.ON_EACH
def test_adoption(theirs: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a plan nor a problem changes anything."""
    corruption.plant(theirs, "UPDATE resource_classes SET id = 10001, name = 'VCPU' WHERE id = 10000")
    before = corruption.contents(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    out = capsys.readouterr().out
    assert '- The standard resource class VCPU has the id 10001 instead of 0.' in out
    assert '- inventories.resource_class_id refers to resource_classes that do not exist: 10000.' in out
    assert corruption.contents(theirs) == before
    corruption.plant(theirs, "UPDATE resource_classes SET id = 10000, name = 'CUSTOM_GOLD' WHERE id = 10001")
    before = corruption.contents(theirs)
    assert run('db', 'adopt') == 0
    planned = _steps(capsys)
    assert corruption.contents(theirs) == before
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    assert _steps(capsys) == planned
    check_adopted(theirs)
    assert run('db', 'adopt', '--yes') == manage.FAILED
    assert 'already, at revision' in capsys.readouterr().err
    assert run('db', 'sync') == 0


def _steps(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The steps that a command has printed."""
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith('- ')]


#: Until the oldest supported OpenStack release is 2026.1: SQLAlchemy before 2.0.45 reads a CHECK of SQLite with
#: the columns that follow it. The adoption then fails, and changes nothing.
_READS_CHECK = tuple(map(int, sa.__version__.split('.')[:3])) >= (2, 0, 45)


@databases.on(databases.SQLITE)
def test_adoption_of_tables_with_additions(theirs: sa.URL, run: Manage) -> None:
    """They are kept. But a NOT NULL root column would reject new providers, whose root is set after the insert."""
    corruption.plant(
        theirs,
        'CREATE INDEX theirs ON consumers (consumer_type_id, uuid)',
        f'ALTER TABLE traits ADD COLUMN colour INTEGER DEFAULT 3 {"CHECK (colour > 1)" * _READS_CHECK}',
        'CREATE INDEX by_colour ON traits (colour) WHERE colour > 2',
        'UPDATE resource_providers SET generation = 0 WHERE generation IS NULL',
        'UPDATE resource_providers SET root_provider_id = coalesce(parent_provider_id, id)',
        'ALTER TABLE resource_providers RENAME TO old',
        """CREATE TABLE resource_providers (id INTEGER NOT NULL PRIMARY KEY,
        uuid VARCHAR(36) NOT NULL COLLATE NOCASE UNIQUE, name VARCHAR(200) NOT NULL COLLATE NOCASE UNIQUE,
        generation INTEGER NOT NULL, root_provider_id INTEGER NOT NULL, parent_provider_id INTEGER)""",
        'INSERT INTO resource_providers SELECT * FROM old',
        'DROP TABLE old',
    )
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    check_adopted(theirs)
    assert corruption.column(theirs, "SELECT tbl_name FROM sqlite_master WHERE name = 'theirs'") == [
        'placement_consumers'
    ]
    if _READS_CHECK:
        with pytest.raises(sa.exc.IntegrityError, match='CHECK'):
            corruption.plant(theirs, "INSERT INTO placement_traits (name, colour) VALUES ('CUSTOM_BAD', 1)")
    assert corruption.column(theirs, 'SELECT DISTINCT colour FROM placement_traits') == [3]
    (index,) = corruption.column(theirs, "SELECT sql FROM sqlite_master WHERE name = 'by_colour'")
    assert index.endswith('WHERE colour > 2')
    (consumers,) = corruption.column(theirs, "SELECT sql FROM sqlite_master WHERE name = 'placement_consumers'")
    assert 'REFERENCES placement_consumer_types' in consumers.replace('"', '')


@databases.EVERYWHERE
def test_adoption_of_a_deployment_without_types(url: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    legacy_database.build(url, with_types=False)
    assert run('db', 'adopt') == 0
    assert 'a type' not in capsys.readouterr().out
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    assert '- Create the table placement_consumer_types.' in capsys.readouterr().out
    check_adopted(url)


@databases.on(databases.SQLITE, databases.defaults()[0])
def test_a_failure_on_sqlite_or_postgresql_changes_nothing(theirs: sa.URL, run: Manage) -> None:
    """A failure of the last step rolls back all others. MariaDB commits each change of the schema."""
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
    check_adopted(theirs)


@databases.EVERYWHERE
def test_only_what_differs_is_changed(url: sa.URL, run: Manage, capsys: pytest.CaptureFixture[str]) -> None:
    """Existing columns, constraints and indexes are recognized and not created again."""
    assert run('db', 'sync') == 0
    corruption.plant(url, 'DROP TABLE placement_alembic_version', *corruption.SOUND)
    capsys.readouterr()
    assert run('db', 'adopt', '--yes') == manage_audit.CLEAN
    assert [line for line in _steps(capsys) if 'Continue the ids of' not in line] == [
        '- Copy project, user and type of the consumer to 1 allocation.',
        '- Set the usage of each inventory to the sum of its allocations (1 in all).',
        '- Create the change log: the tables placement_writer_slots and placement_change_log.',
        f'- Record the revision of the schema, {migration.head()}, in the table placement_alembic_version.',
    ]


# Another service that still runs ------------------------------------------------------------------------

#: What each server says of a table that is not there.
NO_TABLE = "no such table|does not exist|doesn't exist"


@pytest.fixture
def other(theirs: sa.URL) -> Iterator[ForeignService]:
    """Another service, connected to the database that it made."""
    service = ForeignService(theirs)
    yield service
    service.close()


@databases.EVERYWHERE
def test_another_service_writes_until_it_is_shut_out(
    setting: databases.Setting, theirs: sa.URL, run: Manage, other: ForeignService
) -> None:
    """Several write at full speed; everything that they committed is counted. Afterwards they have no tables."""
    names_before = corruption.contents(theirs).keys() - {'alembic_version', tables.placement_aggregates.name}
    if setting == databases.SQLITE:
        # Readers and one writer at a time do not lock each other out from now on.
        corruption.plant(theirs, 'PRAGMA journal_mode = WAL')
    busy = [Busy(theirs) for _ in range(1 if setting == databases.SQLITE else 3)]
    for service in busy:
        service.start()
    wait_until(lambda: all(service.written > 20 for service in busy))
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
    for service in busy:
        service.join(60)
        assert re.search(NO_TABLE, str(service.rejected))
    for name in names_before:
        with pytest.raises(sa.exc.DBAPIError, match=NO_TABLE):
            other.write(f'DELETE FROM {name}')
    check_no_oversell(theirs)


@databases.on(databases.defaults()[0])
def test_a_deadlock_with_another_service_is_not_the_end_of_an_adoption(
    setting: databases.Setting, theirs: sa.URL
) -> None:
    """PostgreSQL ends the transaction that waits first, which is ours; it locks all tables again."""
    engine = sa.create_engine(theirs, poolclass=sa.NullPool)
    sought: list[str] = []

    def lock(_connection: Any, _cursor: Any, statement: str, *_arguments: Any) -> None:
        sought.extend([statement] if statement.endswith(' ACCESS EXCLUSIVE MODE') else [])

    with engine.connect() as ours, engine.connect() as other:
        shared = names.Names(ours)
        first, *_, last = sorted(table.name for table in shared.values())
        # The server looks for a deadlock when one has waited for as long.
        ours.exec_driver_sql("SET deadlock_timeout = '3s'")
        other.exec_driver_sql("SET deadlock_timeout = '60s'")
        other.exec_driver_sql(f'LOCK TABLE {last} IN ROW EXCLUSIVE MODE')
        locker = threading.Thread(target=names.lock_tables, args=(ours, shared))
        with listening(engine, 'before_cursor_execute', lock):
            locker.start()
            wait_until(lambda: corruption.column(theirs, locking.POSTGRESQL_WAITING))
            other.exec_driver_sql(f'LOCK TABLE {first} IN ROW EXCLUSIVE MODE')
            other.commit()
            locker.join(60)
        assert len(sought) == 2
        held = (
            "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND relation = '{}'::regclass"
        )
        assert [ours.exec_driver_sql(held.format(name)).scalar() for name in (first, last)] == [1, 1]


@databases.ON_EACH
def test_transactions_begun_before_the_adoption_are_counted(
    theirs: sa.URL, run: Manage, other: ForeignService, capsys: pytest.CaptureFixture[str]
) -> None:
    """The adoption waits for transactions that are open when it begins. One that does not end stops it."""
    before = corruption.contents(theirs)
    transaction = other.connection.begin()
    assert other.begin_claim()
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage.FAILED
    assert 'placement-manage: the database reported: ' in capsys.readouterr().err
    assert corruption.contents(theirs) == before
    ending = threading.Timer(2, transaction.commit)
    ending.start()
    assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
    ending.join()
    assert corruption.column(theirs, 'SELECT used FROM placement_inventories WHERE id = 4') == [3]
    check_no_oversell(theirs)


@databases.ON_EACH
def test_connections_of_another_service_stop_the_adoption(
    theirs: sa.URL,
    run: Manage,
    other: ForeignService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also that of db sync, and going back."""
    before = corruption.contents(theirs)
    # MySQL looks the name of the address up.
    address = 'localhost' if databases.on_mysql() else '127.0.0.1'
    connection = f'There is a connection of the account {theirs.username} from {address}'
    with monkeypatch.context() as patch:
        patch.setenv('OS_PLACEMENT_DATABASE__ADOPT_ON_SYNC', 'true')
        assert run('db', 'sync') == manage.FAILED
        assert f'nothing was changed. {connection}' in capsys.readouterr().err
        assert corruption.contents(theirs) == before
    for command in ('adopt', 'leave'):
        assert run('db', command) == 0
        assert f'Note: {connection}' in capsys.readouterr().out
        assert run('db', command, '--yes') == manage.FAILED
        out = capsys.readouterr().out
        assert out.startswith('Nothing was changed, because of these problems:\n')
        assert f'- {connection}' in out
        assert out.endswith(', add --ignore-connections.\n')
        if command == 'adopt':
            assert corruption.contents(theirs) == before
            assert run('db', 'adopt', '--yes', '--ignore-connections') == manage_audit.CLEAN
    # It waits for a connection that is about to end.
    ending = threading.Timer(1, other.close)
    ending.start()
    assert run('db', 'leave', '--yes') == 0
    ending.join()


TYPE_OF_OURS = f"""SELECT t.name FROM consumers c JOIN consumer_types t ON t.id = c.consumer_type_id
    WHERE c.uuid = '{legacy_database.INSTANCE}'"""
GIVE_TYPE = f"""UPDATE consumers SET consumer_type_id = (SELECT max(id) FROM consumer_types)
    WHERE uuid = '{legacy_database.LARGE}'"""


def type_of_large(app: Any) -> str:
    return str(send_request(app, 'GET', f'/allocations/{legacy_database.LARGE}', version='1.38').json['consumer_type'])


@databases.EVERYWHERE
def test_leaving_and_adopting_again(
    theirs: sa.URL,
    run: Manage,
    other: ForeignService,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Twice, while a service of ours runs. Its log has one line about the tables that are missing."""
    with our_service(theirs) as app:
        for cycle in range(2):
            assert run('db', 'adopt', '--yes', '--ignore-connections') == 0, capsys.readouterr().out
            check_usages(theirs)
            fill(app)
            for name in ('traits', 'resource_classes'):
                assert send_request(app, 'PUT', f'/{name}/CUSTOM_OURS_{cycle}').status_code == 201
            if cycle:
                assert type_of_large(app) == 'THEIRS_0'
            path = f'/allocations/{legacy_database.INSTANCE}'
            body = send_request(app, 'GET', path, version='1.38').json
            changed = {**body, 'consumer_type': f'OURS_{cycle}'}
            assert send_request(app, 'PUT', path, changed, '1.38').status_code == 204
            assert run('db', 'leave', '--yes', '--ignore-connections') == 0
            caplog.clear()
            for method, path in (('GET', '/resource_providers'), ('GET', f'/allocations/{legacy_database.LOST}')):
                assert send_request(app, method, path).status_code == 503
            assert send_request(app, 'PUT', '/traits/CUSTOM_NONE').status_code == 503
            problems = [record for record in caplog.records if record.levelname in ('WARNING', 'ERROR')]
            # None, if the outage that began before the adoption has not ended yet.
            assert len(problems) <= 1
            assert [record for record in caplog.records if record.exc_info] == []
            # It reads what we wrote, and continues.
            assert not other.claim()
            other.release()
            for _ in range(3):
                assert other.claim()
            for name in ('traits', 'resource_classes'):
                other.write(f"INSERT INTO {name} (name) VALUES ('CUSTOM_THEIRS_{cycle}')")
            # Types of both services are kept.
            assert corruption.column(theirs, TYPE_OF_OURS) == [f'OURS_{cycle}']
            other.write(f"INSERT INTO consumer_types (name) VALUES ('THEIRS_{cycle}')")
            other.write(GIVE_TYPE)
            other.write('UPDATE inventories SET total = 8 WHERE id = 4')
        assert run('db', 'adopt', '--yes', '--ignore-connections') == 0
        check_usages(theirs)
        assert type_of_large(app) == 'THEIRS_1'
        # So that no class gets the id of a class of the other service, not even after that one is deleted.
        largest = corruption.column(theirs, 'SELECT max(id) FROM placement_resource_classes')
        assert corruption.column(theirs, 'SELECT last FROM placement_resource_class_sequence') == largest
        fill(app)
        for name in ('traits', 'resource_classes'):
            assert send_request(app, 'PUT', f'/{name}/CUSTOM_OURS_2').status_code == 201
            assert send_request(app, 'PUT', f'/{name}/CUSTOM_THEIRS_1').status_code == 204


@databases.ON_MARIADB
def test_a_problem_found_late_restores_the_tables(
    theirs: sa.URL, run: Manage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another service may write invalid rows before it is shut out, which are found after the tables are renamed.

    A foreign key that would stop a conversion is found before.
    """
    before = corruption.contents(theirs)
    key = 'ADD CONSTRAINT by_text FOREIGN KEY (consumer_id) REFERENCES consumers (uuid)'
    corruption.plant(theirs, f'ALTER TABLE allocations {key}')
    assert run('db', 'adopt', '--yes') == manage.FAILED
    problem = '- The foreign key from allocations.consumer_id is on a text column: drop the key first.'
    assert problem in capsys.readouterr().out
    corruption.plant(theirs, 'ALTER TABLE allocations DROP FOREIGN KEY by_text')
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
