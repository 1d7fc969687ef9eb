"""Runs the commands of doc/backup.md on PostgreSQL and MariaDB, and compares the restored database with the old one."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from placement.cmd import manage, status
from tests.support import applications, databases
from tests.support.fixtures import PointCommandsAt
from tests.support.http_client import claim_body, create_provider, demand
from tests.support.pages import section

BACKUP = {'postgresql': 'Back up PostgreSQL', 'mariadb': 'Back up MariaDB or MySQL'}
RESTORE = {'postgresql': ('dropdb', 'createdb', 'pg_restore'), 'mariadb': ('mariadb',)}


def _commands(heading: str) -> list[str]:
    return re.findall(r'^ {4,8}([a-z][a-z0-9_-]* .*)$', section('backup.md', heading), flags=re.MULTILINE)


def _run(line: str, database: sa.URL, home: pathlib.Path) -> None:
    """Run a command of the page with the database and the user of the test."""
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
        words, check=False, cwd=home, env=os.environ | environ, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, f'{line}\n{ran.stderr}'


def _claim(app: Any, provider: str) -> webob.Response:
    return demand(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({provider: {'VCPU': 2}}))


def _state(app: Any, provider: str) -> tuple[Any, Any]:
    usages = demand(app, 'GET', f'/resource_providers/{provider}/usages').json
    candidates = demand(app, 'GET', '/allocation_candidates?resources=VCPU:1').json
    return usages, candidates['provider_summaries']


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
