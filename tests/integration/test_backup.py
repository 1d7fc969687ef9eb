"""Runs the commands of doc/backup.md on PostgreSQL and MariaDB, and compares the restored database with the old one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import threading
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cmd import manage, status
from placement.db import change_log, errors, tables
from placement.db.api import Database
from placement.ops.fingerprint import read_fingerprint
from tests.support import applications, corruption, databases, objects
from tests.support.fixtures import PointCommandsAt
from tests.support.http_client import claim_body, create_provider, demand
from tests.support.pages import section

BACKUP = {'postgresql': 'Back up PostgreSQL', 'mariadb': 'Back up MariaDB or MySQL'}
RESTORE = {'postgresql': ('dropdb', 'createdb', 'pg_restore'), 'mariadb': ('mariadb',)}


def _commands(heading: str) -> list[str]:
    return re.findall(r'^ {4,8}([a-z][a-z0-9_-]* .*)$', section('backup.md', heading), flags=re.MULTILINE)


def _run(line: str, database: sa.URL, home: pathlib.Path, entered: str = '') -> str:
    """Run a command with the database and the user of the test, as the page has it; returns its output."""
    words = shlex.split(line)
    user = str(database.username)
    words = [
        user if words[place - 1] == '--owner' else str(database.database) if word == 'placement' else word
        for place, word in enumerate(words)
    ]
    password = str(database.password or '')
    (home / '.my.cnf').write_text(
        f'[client]\nhost={database.host}\nport={database.port or 3306}\nuser={user}\npassword={password}\n'
    )
    environ = {
        'HOME': str(home),
        'PGHOST': str(database.host),
        'PGPORT': str(database.port or 5432),
        'PGUSER': user,
        'PGPASSWORD': password,
    }
    ran = subprocess.run(
        words,
        check=False,
        cwd=home,
        env=os.environ | environ,
        input=entered,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, f'{line}\n{ran.stderr}'
    return ran.stdout


def _claim(app: Any, provider: str) -> webob.Response:
    return demand(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({provider: {'VCPU': 2}}))


def _state(app: Any, provider: str) -> tuple[Any, ...]:
    usages = demand(app, 'GET', f'/resource_providers/{provider}/usages').json
    candidates = demand(app, 'GET', '/allocation_candidates?resources=VCPU:1').json
    return usages, candidates['provider_summaries'], read_fingerprint(app.db)


# oslo.upgradecheck 2.8 gives this warning, which only the tests see.
@pytest.mark.filterwarnings("ignore:the 'ALL' constant is deprecated:DeprecationWarning")
@databases.ON_EACH
def test_the_commands_of_the_page(
    setting: databases.Setting, database: sa.URL, tmp_path: pathlib.Path, point_commands_at: PointCommandsAt
) -> None:
    url = point_commands_at(database)
    assert manage.main(['db', 'sync']) == 0
    with applications.application(url) as app:
        provider = create_provider(app, VCPU=8)
        _claim(app, provider)
        corruption.cause_findings(app)
        before = _state(app, provider)
        for line in _commands(BACKUP[setting.server]):
            _run(line, database, tmp_path)
        _claim(app, provider)
        assert _state(app, provider) != before
        app.db.dispose()
        commands = _commands('Restore')
        for line in commands:
            if line.split()[0] in RESTORE[setting.server]:
                _run(line, database, tmp_path)
        for line in commands:
            words = line.split()
            if words[0].startswith('placement-'):
                assert {'placement-manage': manage.main, 'placement-status': status.main}[words[0]](words[1:]) == 0
        # Also a process that was not stopped.
        (line,) = _commands('When the service could not be stopped')
        assert manage.main(line.split()[1:]) == 0
        assert _state(app, provider) == before


def test_every_command_of_a_restore_is_run_or_known() -> None:
    programs = {line.split()[0] for line in _commands('Restore')}
    run = {program for of_server in RESTORE.values() for program in of_server}
    assert programs == run | {'systemctl', 'placement-manage', 'placement-status'}


#: What begins each part of a dump in SQL: an object, the rows of a table, or a key of it.
PARTS = {'postgresql': r'(?m)^(?=--\n-- (?:Data for )?Name: )', 'mariadb': r'(?m)^(?=DROP TABLE |LOCK TABLES )'}
DUMP = {'postgresql': 'pg_dump --no-owner placement', 'mariadb': 'mariadb-dump --single-transaction placement'}
CLIENT = {'postgresql': 'psql --quiet --set ON_ERROR_STOP=1 placement', 'mariadb': 'mariadb placement'}


class _Searcher:
    """A process that searches, with a clock of its own."""

    def __init__(self, db: Database) -> None:
        self.now = 0.0
        self.provider_cache = ProviderCache(db, clock=lambda: self.now)

    def search(self) -> Any:
        snapshot = self.provider_cache.up_to_date()
        return snapshot.names, sorted(map(dataclasses.astuple, snapshot.providers()))


@databases.ON_EACH
def test_no_search_is_wrong_while_a_backup_is_restored(
    setting: databases.Setting, database: sa.URL, tmp_path: pathlib.Path
) -> None:
    """Processes that stay up, and those that start meanwhile, search after each part of a restore that takes hours.

    A search fails, or sees what was there before or after the restore. After the restore all of them are right.
    """
    databases.recreate(database)
    with applications.database(setting.session_url(database)) as db:
        db.sync()
        context = applications.administrator(db)
        host = objects.create_provider(context, 'host', VCPU=8)
        objects.create_provider(context, 'child', host.uuid, DISK_GB=100)
        objects.set_traits(host, ['HW_CPU_X86_VMX'])
        objects.set_aggregates(host, [str(uuid.uuid4())], increment_generation=True)
        objects.claim(context, {host.uuid: {'VCPU': 1}})
        processes = [_Searcher(db), _Searcher(db)]
        restored = processes[0].search()
        dump = _run(DUMP[setting.server], database, tmp_path)
        objects.claim(context, {host.uuid: {'VCPU': 1}})
        newest = processes[1].search()
        db.dispose()
        databases.end_connections(database)
        databases.recreate(database)
        preamble, *parts = re.split(PARTS[setting.server], dump)
        for start in range(0, len(parts), 2):
            _run(CLIENT[setting.server], database, tmp_path, ''.join((preamble, *parts[start : start + 2])))
            processes.append(_Searcher(db))
            for process in processes:
                process.now += 3600
                with contextlib.suppress(*errors.DATABASE_ERRORS):
                    assert process.search() in (newest, restored)
        for _ in range(2):
            expected = _Searcher(db).search()
            for process in processes:
                assert process.search() == expected
            objects.claim(context, {host.uuid: {'VCPU': 1}})


#: The rows without the tables, in an order that foreign keys allow, and what empties the tables first.
ROWS = {
    'postgresql': 'pg_dump --data-only placement',
    'mariadb': 'mariadb-dump --single-transaction --no-create-info --skip-triggers placement',
}
EMPTY = {
    'postgresql': f'TRUNCATE {", ".join(tables.metadata.tables)}, placement_alembic_version;',
    'mariadb': 'SET foreign_key_checks = 0;'
    + ''.join(f'DELETE FROM {name};' for name in (*tables.metadata.tables, 'placement_alembic_version')),
}


@databases.ON_EACH
def test_no_search_is_wrong_while_rows_are_restored_into_existing_tables(
    setting: databases.Setting, database: sa.URL, tmp_path: pathlib.Path
) -> None:
    """Each part of the restore is followed by searches and writes of processes that stayed up and of new ones."""
    databases.recreate(database)
    with applications.database(setting.session_url(database)) as db, applications.database(db.engine.url) as other:
        db.sync()
        context = applications.administrator(db)
        host = objects.create_provider(context, 'host', VCPU=8)
        objects.set_traits(host, ['HW_CPU_X86_VMX'])
        objects.claim(context, {host.uuid: {'VCPU': 1}})
        processes = [_Searcher(db), _Searcher(other)]
        restored = processes[0].search()
        rows = _run(ROWS[setting.server], database, tmp_path)
        objects.claim(context, {host.uuid: {'VCPU': 1}})
        processes[1].search()
        _run(CLIENT[setting.server], database, tmp_path, EMPTY[setting.server])
        preamble, *parts = re.split(PARTS[setting.server], rows)
        # The last parts of PostgreSQL are about sequences, which no search reads.
        is_complete = False
        for part in parts:
            processes.append(_Searcher(db))
            for process in processes:
                process.now += 3600
                if is_complete:
                    assert process.search() == restored
                    continue
                with pytest.raises(exception.DatabaseUnavailable):
                    process.search()
            if not is_complete:
                with pytest.raises(exception.DatabaseUnavailable):
                    other.write(change_log.record_reload)
            _run(CLIENT[setting.server], database, tmp_path, f'{preamble}{part}')
            is_complete = is_complete or tables.change_log_slots.name in part.partition(';')[0]
        assert is_complete
        for _ in range(2):
            for process in processes:
                assert process.search() == _Searcher(db).search()
            objects.claim(context, {host.uuid: {'VCPU': 1}})


@databases.ON_MARIADB
def test_processes_are_right_after_a_dump_that_replaces_one_table_after_the_other(
    setting: databases.Setting, database: sa.URL, tmp_path: pathlib.Path
) -> None:
    """Until the last table is replaced, new processes may see old and new rows.

    The tools of PostgreSQL drop all tables first.
    """
    databases.recreate(database)
    with applications.database(setting.session_url(database)) as db:
        db.sync()
        context = applications.administrator(db)
        host = objects.create_provider(context, 'host', VCPU=8)
        processes = [_Searcher(db)]
        restored = processes[0].search()
        dump = _run(DUMP[setting.server], database, tmp_path)
        objects.claim(context, {host.uuid: {'VCPU': 1}})
        processes.append(_Searcher(db))
        processes[1].search()
        preamble, *parts = re.split(PARTS[setting.server], dump)
        for part in parts:
            _run(CLIENT[setting.server], database, tmp_path, f'{preamble}{part}')
            processes.append(_Searcher(db))
            for process in processes:
                with contextlib.suppress(*errors.DATABASE_ERRORS):
                    process.search()
        for process in processes:
            # A node of a cluster may show an older state for some seconds.
            with contextlib.suppress(*errors.DATABASE_ERRORS):
                process.search()
            process.now += 3600
            assert process.search() == restored


#: What makes a dump, and what restores it into a database whose service has not been stopped.
WHILE_SEARCHING = {
    'postgresql': (
        ['pg_dump --format custom --file rows.dump placement'],
        ['pg_restore --data-only --disable-triggers --exit-on-error --dbname placement rows.dump'],
    ),
    'mariadb': (
        ['mariadb-dump --single-transaction --result-file rows.sql placement'],
        ['mariadb placement --execute "source rows.sql"'],
    ),
}


@databases.ON_EACH
def test_searches_during_a_restore_into_existing_tables(
    setting: databases.Setting, database: sa.URL, tmp_path: pathlib.Path
) -> None:
    """Each search of a process that stays up sees what was there before or after the restore, or fails."""
    dump, restore = WHILE_SEARCHING[setting.server]
    databases.recreate(database)
    with applications.database(setting.session_url(database)) as db:
        db.sync()
        context = applications.administrator(db)
        host = objects.create_provider(context, 'host', VCPU=8)
        process = _Searcher(db)
        restored = process.search()
        for line in dump:
            _run(line, database, tmp_path)
        objects.claim(context, {host.uuid: {'VCPU': 1}})
        newest = process.search()
        results: list[Any] = []
        is_restored = threading.Event()

        def search() -> None:
            while not is_restored.is_set():
                try:
                    results.append(process.search())
                except errors.DATABASE_ERRORS as error:
                    results.append(error)

        thread = threading.Thread(target=search)
        thread.start()
        try:
            if setting.server == 'postgresql':
                _run(CLIENT[setting.server], database, tmp_path, EMPTY[setting.server])
            for line in restore:
                _run(line, database, tmp_path)
        finally:
            is_restored.set()
            thread.join()
        assert all(isinstance(result, Exception) or result in (newest, restored) for result in results)
        assert any(isinstance(result, Exception) for result in results) or setting.server == 'mariadb'
        # Of MariaDB, a node of a cluster may show an older state for some seconds.
        assert process.search() in (newest, restored)
        process.now += 3600
        assert process.search() == restored
