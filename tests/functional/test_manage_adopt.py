"""``placement-manage db adopt`` on SQLite: the plan, the problems, the data afterwards, and the service on it."""

from __future__ import annotations

import pathlib
import re
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import conf as placement_conf
from placement import deploy
from placement.cmd import manage, manage_audit
from placement.db import migration, tables
from placement.ops.adoption.schema import shortest
from tests.support import applications, corruption, legacy_database, legacy_service
from tests.support.fixtures import PointCommandsAt, Printed
from tests.support.http_client import send_request

#: What was done to a database -> the problem that it raises.
PROBLEMS = {
    "UPDATE resource_classes SET id = 10001, name = 'VCPU' WHERE id = 10000": (
        'The standard resource class VCPU has the id 10001 instead of 0.'
    ),
    'UPDATE resource_classes SET id = 2 WHERE id = 10000': (
        'The id 2 belongs to the standard resource class DISK_GB, but CUSTOM_GOLD has it.'
    ),
    'UPDATE inventories SET resource_class_id = 77 WHERE id = 3': (
        'inventories.resource_class_id refers to resource_classes that do not exist: 77.'
    ),
    'UPDATE allocations SET resource_class_id = 77 WHERE id = 1': (
        'allocations.resource_class_id refers to resource_classes that do not exist: 77.'
    ),
    'UPDATE allocations SET resource_provider_id = id + 90': (
        'allocations.resource_provider_id refers to resource_providers that do not exist: 91, 92, 93 and 1 more.'
    ),
    'DELETE FROM consumer_types': 'consumers.consumer_type_id refers to consumer_types that do not exist: 1.',
    'UPDATE resource_providers SET parent_provider_id = 99 WHERE id = 2': (
        'resource_providers.parent_provider_id refers to resource_providers that do not exist: 99.'
    ),
    'UPDATE resource_providers SET parent_provider_id = 2 WHERE id = 1': (
        'The parents of resource_providers form a loop: 1, 2.'
    ),
    'UPDATE inventories SET resource_provider_id = 3, resource_class_id = 0 WHERE id = 3': (
        'inventories has rows with the same resource_provider_id, resource_class_id: (3, 0).'
    ),
    'UPDATE placement_aggregates SET uuid = NULL': 'placement_aggregates.uuid is NULL in 1 row.',
    "UPDATE consumers SET uuid = upper(uuid) WHERE uuid LIKE 'c%1%'": (
        'consumers.uuid has uuids that are not in lower case with hyphens: C0000011-'
    ),
    'UPDATE inventories SET step_size = 0 WHERE id = 1': ('inventories.step_size is less than 1: 1.'),
    'DROP INDEX by_class_and_more; ALTER TABLE inventories DROP COLUMN total': (
        'The table inventories has no column total.'
    ),
    'DROP TABLE users': 'There is no table users.',
    'ALTER TABLE projects RENAME TO p;'
    'CREATE TABLE projects (id INTEGER PRIMARY KEY, external_id VARCHAR(255) NOT NULL, colour INTEGER NOT NULL)': (
        'The column projects.colour is unknown, NOT NULL and has no default'
    ),
    'CREATE VIEW totals AS SELECT sum(total) FROM inventories': 'The view totals depends on the table inventories',
    'ALTER TABLE users RENAME TO u;'
    'CREATE TABLE users (id INTEGER NOT NULL PRIMARY KEY, external_id INTEGER NOT NULL)': (
        'The column users.external_id is of an unexpected type: INTEGER()'
    ),
    'ALTER TABLE users RENAME TO u; CREATE TABLE users (id INTEGER NOT NULL, external_id VARCHAR(255) NOT NULL)': (
        'The primary key of users is nothing instead of id.'
    ),
    'ALTER TABLE users RENAME TO u;'
    'CREATE TABLE users (id BIGINT NOT NULL PRIMARY KEY, external_id VARCHAR(255) NOT NULL)': (
        'The column users.id is not numbered by the database.'
    ),
}


@pytest.fixture
def url(tmp_path: pathlib.Path, point_commands_at: PointCommandsAt) -> str:
    """The URL of an empty database; commands that the test runs use it."""
    return point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')


def test_plan_changes_nothing(url: str, printed: Printed) -> None:
    legacy_database.build(url)
    before = corruption.contents(url)
    out = printed('db', 'adopt')
    assert corruption.contents(url) == before
    for sentence in (
        '- Set the generation of 1 row of placement_resource_providers to 0 instead of NULL.',
        '- Rebuild the table placement_inventories, with all its rows: add the column used; ',
        '- Insert the missing standard names: 21 resource classes, ',
        '- Set the root of 2 resource providers from the parents.',
        '- Create the missing records of 1 consumer, with the project 00000000-',
        '- Set the usage of each inventory to the sum of its allocations (4 in all).',
        'Note: 1 consumer has a type. Clients that set types use microversion 1.38 or later, and need [placement] max_',
        'Nothing was changed. To apply this plan: placement-manage db adopt --yes',
    ):
        assert sentence in out
    assert out.splitlines()[1].startswith('- Rename the tables allocations, consumer_types, consumers, inventories, ')


@pytest.mark.parametrize(('statements', 'problem'), PROBLEMS.items())
def test_problems_change_nothing(url: str, statements: str, problem: str, printed: Printed) -> None:
    legacy_database.build(url)
    corruption.plant(url, *statements.split(';'))
    before = corruption.contents(url)
    for options in ([], ['--yes']):
        assert f'- {problem}' in printed('db', 'adopt', *options, code=manage.FAILED)
    assert corruption.contents(url) == before


def test_foreign_keys_of_the_other_service_are_checked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    legacy_database.build(url)
    corruption.plant(
        url,
        'CREATE TABLE racks (id INTEGER PRIMARY KEY)',
        'ALTER TABLE consumers ADD COLUMN rack_id INTEGER REFERENCES racks (id)',
        'UPDATE consumers SET rack_id = 7',
    )
    before = corruption.contents(url)
    assert manage.main(['db', 'adopt', '--yes']) == manage.FAILED
    assert 'The tables consumers would refer to rows that do not exist.' in capsys.readouterr().err
    assert corruption.contents(url) == before


def test_tables_that_give_ids_twice_are_rebuilt(url: str, printed: Printed) -> None:
    """And the largest id of a class is stored, if only that is missing."""
    assert manage.main(['db', 'sync']) == 0
    (definition,) = corruption.column(url, "SELECT sql FROM sqlite_master WHERE name = 'placement_users'")
    for table in ('alembic_version', 'resource_class_sequence', 'users'):
        corruption.plant(url, f'DROP TABLE placement_{table}')
    corruption.plant(url, definition.replace(' AUTOINCREMENT', ''), *corruption.SOUND)
    done = [line for line in printed('db', 'adopt', '--yes').splitlines() if line.startswith('- ')]
    assert done[:2] == [
        '- Rebuild the table placement_users, with all its rows: never reuse an id.',
        '- Record the largest id of a resource class in the table placement_resource_class_sequence.',
    ]
    (definition,) = corruption.column(url, "SELECT sql FROM sqlite_master WHERE name = 'placement_users'")
    assert 'AUTOINCREMENT' in definition
    assert corruption.column(url, 'SELECT id FROM placement_users') == [501]
    assert corruption.column(url, 'SELECT last FROM placement_resource_class_sequence') == [9999]


def test_largest_id_in_the_range_of_standard_classes_is_recorded_again(url: str, printed: Printed) -> None:
    assert manage.main(['db', 'sync']) == 0
    printed('db', 'leave', '--yes')
    corruption.plant(url, 'UPDATE placement_resource_class_sequence SET last = 9998')
    step = '- Record the largest id of a resource class in the table placement_resource_class_sequence.\n'
    assert step in printed('db', 'adopt', '--yes')
    assert corruption.column(url, 'SELECT last FROM placement_resource_class_sequence') == [9999]


def test_an_audit_follows_the_adoption(url: str, printed: Printed) -> None:
    legacy_database.build(url)
    corruption.plant(url, 'UPDATE inventories SET total = 1 WHERE id = 4', 'DELETE FROM resource_provider_aggregates')
    out = printed('db', 'adopt', '--yes', code=manage_audit.UNREPAIRED)
    assert 'over_committed' in out
    assert 'orphaned_aggregate' in out


def test_aggregates_keep_the_spelling_of_the_other_service(url: str, printed: Printed) -> None:
    legacy_database.build(url)
    spelling = legacy_database.RACK.replace('-', '').upper()
    corruption.plant(url, f"UPDATE placement_aggregates SET uuid = '{spelling}'")
    printed('db', 'adopt', '--yes')
    with applications.application(url) as app:
        response = send_request(app, 'GET', f'/resource_providers?member_of={spelling}')
        assert [provider['name'] for provider in response.json['resource_providers']] == ['host']
        shown = send_request(app, 'GET', f'/resource_providers/{legacy_database.HOST}/aggregates')
    assert shown.json['aggregates'] == [spelling]
    assert printed('tree', '--aggregate', spelling).startswith('host ')


def test_nothing_to_adopt_or_to_return(url: str, failed: Printed) -> None:
    assert 'placement-manage db sync' in failed('db', 'adopt', '--yes')
    legacy_database.build(url)
    assert 'no schema of this service, so there is nothing to return.' in failed('db', 'leave', '--yes')


@pytest.mark.parametrize(
    'command',
    [
        *('db sync', 'db stamp head', 'db version', 'db invalidate-caches', 'db online_data_migrations'),
        *('audit', 'tree', 'explain resources=VCPU:1'),
    ],
)
def test_every_command_names_db_adopt(url: str, command: str, failed: Printed) -> None:
    legacy_database.build(url)
    before = corruption.contents(url)
    assert failed(*command.split()).endswith('Adopt it with: placement-manage db adopt\n')
    assert corruption.contents(url) == before


@pytest.fixture
def adopt_on_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__ADOPT_ON_SYNC', 'true')


@pytest.mark.usefixtures('adopt_on_sync')
@pytest.mark.parametrize('command', ['sync', 'online_data_migrations'])
def test_db_sync_adopts_if_it_is_configured(url: str, command: str, printed: Printed) -> None:
    """And afterwards does what it always does. Findings of the audit are printed, but no failure."""
    legacy_database.build(url)
    corruption.plant(url, 'UPDATE inventories SET total = 1 WHERE id = 4')
    lines = printed('db', command).splitlines()
    assert lines[0].startswith('- Rename the tables allocations, ')
    assert 'The database was adopted. Auditing it:' in lines
    assert 'over_committed' in lines
    assert printed('db', command) == f'{lines[-1]}\n'
    assert printed('db', 'version') == f'{migration.head()}\n'
    with legacy_service.our_service(url) as app:
        path = f'/allocations/{legacy_database.INSTANCE}'
        assert send_request(app, 'GET', path).json['consumer_generation'] == 3


@pytest.mark.usefixtures('adopt_on_sync')
@pytest.mark.parametrize('command', ['sync', 'online_data_migrations'])
def test_db_sync_names_what_prevents_the_adoption(url: str, command: str, failed: Printed) -> None:
    legacy_database.build(url)
    steps = 'UPDATE inventories SET step_size = 0 WHERE id = 1'
    looped = 'UPDATE resource_providers SET parent_provider_id = 2 WHERE id = 1'
    corruption.plant(url, steps, looped, 'UPDATE placement_aggregates SET uuid = NULL', *list(PROBLEMS)[2:3])
    error = failed('db', command)
    assert 'was not adopted; nothing was changed. ' in error
    assert error.endswith(' 1 more problem. To see all: placement-manage db adopt\n')
    corruption.plant(url, 'DELETE FROM inventories WHERE id = 3')
    before = corruption.contents(url)
    error = failed('db', command)
    for problem in ('step_size is less than 1', 'form a loop: 1, 2.', 'placement_aggregates.uuid is NULL in 1 row.'):
        assert problem in error
    assert 'more problem' not in error
    assert corruption.contents(url) == before


@pytest.mark.usefixtures('adopt_on_sync')
def test_a_start_never_adopts(url: str) -> None:
    legacy_database.build(url)
    before = corruption.contents(url)
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': url, 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    with pytest.raises(migration.ForeignSchema, match=re.escape('With [placement_database] adopt_on_sync = True')):
        deploy.loadapp(placement_conf.load(config_files=[], overrides=overrides))
    assert corruption.contents(url) == before


@pytest.mark.usefixtures('adopt_on_sync')
def test_db_sync_creates_the_schema_of_an_empty_database_if_it_adopts(url: str, printed: Printed) -> None:
    assert printed('db', 'sync').startswith(f'The schema is at revision {migration.head()},')


def test_the_service_names_db_adopt(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A service that creates its schema does not start; another one responds with 503 to every request."""
    legacy_database.build(url)
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': url, 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    with pytest.raises(migration.ForeignSchema, match='placement-manage db adopt'):
        deploy.loadapp(placement_conf.load(config_files=[], overrides=overrides))
    with legacy_service.our_service(url) as app:
        assert 'Adopt it with: placement-manage db adopt' in caplog.text
        for method, path in (('GET', '/resource_providers'), ('GET', f'/allocations/{legacy_database.LOST}')):
            assert send_request(app, method, path).status_code == 503
        assert send_request(app, 'PUT', '/traits/CUSTOM_ONE').status_code == 503


def test_db_leave_of_a_database_that_this_service_made(url: str, printed: Printed) -> None:
    """That is possible, and the command says that no other service made it."""
    assert manage.main(['db', 'sync']) == 0
    before = corruption.contents(url)
    out = printed('db', 'leave')
    assert 'Note: There is no table alembic_version: this service made the database' in out
    assert out.endswith('Nothing was changed. To apply this plan: placement-manage db leave --yes\n')
    assert corruption.contents(url) == before
    assert manage.main(['db', 'leave', '--yes']) == 0
    assert not {table.name for table in tables.SHARED if table is not tables.placement_aggregates} & set(
        corruption.contents(url)
    )
    assert manage.main(['db', 'leave', '--yes']) == manage.FAILED
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
    assert corruption.contents(url).keys() == before.keys()


def test_an_owner_that_only_the_allocations_record_is_restored(url: str, printed: Printed) -> None:
    assert manage.main(['db', 'sync']) == 0
    corruption.plant(url, *corruption.SOUND, *corruption.ALL['consumer that only its allocations record'].statements)
    printed('db', 'leave', '--yes')
    assert 'Create the missing records of 1 consumer' in printed('db', 'adopt', '--yes')
    query, result = corruption.ALL['consumer that only its allocations record'].after or ('', [])
    assert corruption.column(url, query) == result


def test_tables_of_both_are_a_problem(url: str, printed: Printed) -> None:
    """The other service created its tables again in an adopted database."""
    legacy_database.build(url)
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
    corruption.plant(url, 'CREATE TABLE users (id INTEGER)')
    before = corruption.contents(url)
    problem = '- There are both a table users and a table placement_users: drop the one that is not in use.'
    assert problem in printed('db', 'leave', '--yes', code=manage.FAILED)
    corruption.plant(url, 'DROP TABLE placement_alembic_version')
    assert problem in printed('db', 'adopt', '--yes', code=manage.FAILED)
    del before[migration.VERSION_TABLE]
    assert corruption.contents(url) == before


def test_adopting_again_reports_usage_mismatches(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    legacy_database.build(url)
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
    corruption.plant(url, 'DELETE FROM placement_allocations')
    capsys.readouterr()
    assert manage.main(['db', 'adopt']) == manage.FAILED
    assert capsys.readouterr().err == (
        'Warning: the recorded usage of 3 inventories is not the sum of the allocations. Another program wrote to the'
        ' database. See: placement-manage audit\n'
        f'placement-manage: The database has the schema of this service already, at revision {migration.head()}.\n'
    )


@pytest.mark.parametrize('written', [0.1, 16.1, 16.0, 0.0001, 1e-30, 3.4e38, 0.333])
def test_ratio_reads_as_written(written: float) -> None:
    single = struct.unpack('f', struct.pack('f', written))[0]
    assert shortest(single) == float(f'{written:.8g}')


@given(st.floats(width=32, allow_nan=False))
def test_ratio_stays_the_same_single(single: float) -> None:
    decimal = shortest(single)
    assert struct.pack('f', decimal) == struct.pack('f', single)
    assert len(repr(decimal)) <= len(repr(single))
