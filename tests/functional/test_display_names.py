"""The names file: where commands and the page show names, when it is read again, and what happens if it is invalid."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from collections.abc import Callable

import pytest
import webob
from oslo_config import cfg

from placement.cache.refresh import ProviderCache
from placement.cmd import manage
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.ops.display_names import DisplayNames
from placement.ops.page.application import Page
from placement.ops.page.view import Sources
from tests.support import clouds
from tests.support.clouds import Cloud, Owner, Provider, uuid_of
from tests.support.fixtures import Printed

RACK, PROJECT, USER = uuid_of('rack'), '48754f87017150a9a5955e8463816e58', 'ldap-user-ada'
MACHINE = uuid_of('machine')


@pytest.fixture
def names_file(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file with a name for an aggregate in upper case, a project without dashes, and a user that is no uuid."""
    file = tmp_path / 'names.json'
    file.write_text(json.dumps({RACK.upper(): 'az1', PROJECT: 'payments <b>', USER: 'Ada'}))
    return file


@pytest.fixture
def cloud(db: Database) -> None:
    host = Provider('host', {'VCPU': {'total': 8}, 'DISK_GB': {'total': 9}}, aggregates=('rack',))
    pool = Provider('pool', {'DISK_GB': {'total': 9}}, ('MISC_SHARES_VIA_AGGREGATE',), ('rack',))
    clouds.create_cloud(db, Cloud([host, pool], {'machine': {'host': {'VCPU': 2}}}, {'machine': Owner(PROJECT, USER)}))


@pytest.mark.parametrize(
    ('command', 'expected'),
    [
        (['tree', 'host'], [f'aggregates: az1 ({RACK})', f'through aggregate az1 ({RACK})']),
        (['tree', '--consumers'], [f'of project payments <b> ({PROJECT}), user Ada ({USER}): VCPU 2']),
        (['consumer', MACHINE], [f'of project payments <b> ({PROJECT}), user Ada ({USER})']),
    ],
)
def test_commands_show_names(
    command: list[str], expected: list[str], url: str, cloud: None, names_file: pathlib.Path, printed: Printed
) -> None:
    text = printed(*command, '--names', str(names_file))
    assert [line for line in expected if line not in text] == []
    assert 'az1' not in printed(*command)
    assert 'az1' not in printed(*command, '--format', 'json', '--names', str(names_file))


def test_the_audit_shows_the_name_of_an_aggregate(
    url: str, db: Database, names_file: pathlib.Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('OS_PLACEMENT__NAMES_FILE', str(names_file))
    clouds.create_cloud(db, Cloud([Provider('host', {}, aggregates=('rack',))]))
    with db.engine.begin() as connection:
        connection.exec_driver_sql('DELETE FROM placement_resource_provider_aggregates')
    assert f'  aggregate az1 ({RACK})\n' in printed('audit', code=3)


@pytest.fixture
def page(conf: cfg.ConfigOpts, db: Database, names_file: pathlib.Path) -> Callable[[str], str]:
    """Return the HTML of a view."""
    conf.set_override('names_file', str(names_file), 'placement')
    application = Page(Sources(conf, db, ProviderCache(db), TimedCheck(db)))

    def get(address: str) -> str:
        response = webob.Request.blank(address).get_response(application)
        assert response.status_int == 200
        return response.text

    return get


def test_views_show_names(page: Callable[[str], str], cloud: None) -> None:
    rack = f'<bdi>az1</bdi> (<span class="uuid" title="{RACK}">{RACK[:8]}</span>)'
    project = f'<bdi>payments &lt;b&gt;</bdi> (<span class="uuid" title="{PROJECT}">{PROJECT[:8]}</span>)'
    user = f'<bdi>Ada</bdi> (<span class="uuid" title="{USER}">{USER[:8]}</span>)'
    assert f'{rack}</a></th>' in page('/')
    assert f'aggregate <strong>{rack}</strong>' in page(f'/trees?aggregate={RACK}')
    host = page(f'/trees/{uuid_of("host")}')
    assert f'aggregate {rack}</a>' in host
    assert f'{project}</a></td>' in host
    for address in (f'/consumers?q={MACHINE}', f'/consumers/{MACHINE}'):
        text = page(address)
        assert (project in text, user in text) == (True, True)


def test_a_changed_file_is_read_again_and_an_invalid_one_is_one_warning(
    names_file: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = DisplayNames(str(names_file))
    assert names.label(RACK.replace('-', '')) == f'az1 ({RACK.replace("-", "")})'
    names_file.write_text(json.dumps({RACK: 'az2'}))
    assert (names.name(RACK), names.name(PROJECT)) == ('az2', None)
    invalid = {
        '{"half': 'is not a JSON object: Unterminated string',
        '["az1"]': 'is not a JSON object.',
        '{"0": {"name": "az1"}}': 'has a name that is not a string',
    }
    for content, problem in invalid.items():
        caplog.clear()
        names_file.write_text(content)
        assert [names.name(RACK) for _ in range(3)] == ['az2'] * 3
        ((_, level, message),) = caplog.record_tuples
        assert level == logging.WARNING
        assert f'The names file {names_file} {problem}' in message
    caplog.clear()
    os.unlink(names_file)
    assert [names.name(RACK) for _ in range(3)] == ['az2'] * 3
    assert [record.getMessage().partition(' cannot be read: ')[2] for record in caplog.records] == [
        'No such file or directory. The previous names stay in use.'
    ]
    names_file.write_text(json.dumps({RACK: 'az3'}))
    assert names.name(RACK) == 'az3'


@pytest.mark.parametrize(
    'command',
    ['tree', f'consumer {MACHINE}', f'project {PROJECT}', 'capacity --aggregate az1', 'plan drain --aggregate az1'],
)
def test_a_command_warns_of_a_file_that_it_cannot_read(
    command: str, url: str, cloud: None, capsys: pytest.CaptureFixture[str]
) -> None:
    manage.main([*command.split(), '--names', '/nowhere'])
    warning = 'Warning: The names file /nowhere cannot be read: No such file or directory.'
    assert capsys.readouterr().err.splitlines()[0] == warning


def test_without_a_file_nothing_has_a_name() -> None:
    names = DisplayNames()
    assert (names.name(RACK), names.label(RACK)) == (None, RACK)
