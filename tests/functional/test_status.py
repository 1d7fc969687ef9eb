"""``placement-status upgrade check``: results and exit codes."""

from __future__ import annotations

import json
import pathlib
import socket
import sys
import types
from importlib import metadata
from typing import Any

import pytest

from placement.cmd import status
from tests.support import corruption, keystone, legacy_database
from tests.support.fixtures import PointCommandsAt


@pytest.fixture
def sound(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a sound database, which the commands use, without Keystone."""
    corruption.plant(url, *corruption.SOUND)
    monkeypatch.setenv('OS_API__AUTH_STRATEGY', 'noauth2')
    return url


CHECKS = (
    'Schema',
    'Standard names',
    'References',
    'Provider trees',
    'Consumers',
    'Usages',
    'Tables of another service',
)


def _results(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    capsys.readouterr()
    assert status.main(['upgrade', 'check', '--json']) == code
    return {
        check['check']: (check['result'], check['details']) for check in json.loads(capsys.readouterr().out)['checks']
    }


def test_sound_database_is_ready(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _results(capsys, 0) == dict.fromkeys(('Configuration', 'Keystone', 'Policy', *CHECKS), (0, None))


def test_unknown_options_are_a_warning(
    sound: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__SLAVE_CONNECTION', 'sqlite://')
    result, details = _results(capsys, 0)['Configuration']
    assert result == 1
    assert 'the variable OS_PLACEMENT_DATABASE__SLAVE_CONNECTION: all requests use [placement_database]' in details


def test_the_files_of_the_configuration_are_listed(
    sound: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'placement.conf').touch()
    (tmp_path / 'placement.conf.d').mkdir()
    (tmp_path / 'placement.conf.d' / 'a.conf').write_text('[placement]\nunknown = 1\n')
    result, details = _results(capsys, 0)['Configuration']
    assert result == 1
    assert details.startswith(f'Read from {tmp_path}/placement.conf, {tmp_path}/placement.conf.d/a.conf\n')
    assert details.endswith(f'\n[placement] unknown in {tmp_path}/placement.conf.d/a.conf')


CREDENTIALS = """
[keystone_authtoken]
auth_type = password
auth_url = {url}/v3
username = placement
password = {password}
project_name = service
user_domain_name = Default
project_domain_name = Default
http_connect_timeout = 1
"""


@pytest.mark.parametrize(
    ('section', 'code', 'sentence'),
    [
        (CREDENTIALS, 0, None),
        (
            CREDENTIALS.replace('{password}', keystone.WRONG_PASSWORD),
            2,
            'Keystone rejects the user in [keystone_authtoken], so requests with a token get 503. wrong password',
        ),
        (CREDENTIALS.replace('{url}', 'http://127.0.0.1:1'), 1, 'Keystone cannot be asked, so requests with a token'),
        (CREDENTIALS.replace('{url}', '{silent}'), 1, 'Keystone cannot be asked, so requests with a token get 503. '),
        (CREDENTIALS.replace('= password\n', '= unknown\n'), 2, '[keystone_authtoken] cannot be used: '),
        (CREDENTIALS.replace('auth_url', 'other'), 2, '[keystone_authtoken] cannot be used: '),
        ('', 1, '[keystone_authtoken] has no auth_type. The service does not start without it.'),
        # The credentials may be in a section of their own.
        (f'[keystone_authtoken]\nauth_section = k\n{CREDENTIALS.replace("keystone_authtoken", "k")}', 0, None),
    ],
)
def test_keystone_is_asked_for_a_token(
    sound: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    section: str,
    code: int,
    sentence: str | None,
) -> None:
    monkeypatch.delenv('OS_API__AUTH_STRATEGY')
    # The kernel accepts the connections of the second one, and nothing responds.
    with keystone.keystone() as url, socket.create_server(('127.0.0.1', 0)) as listener:
        silent = 'http://{}:{}'.format(*listener.getsockname())
        (tmp_path / 'placement.conf').write_text(section.format(url=url, silent=silent, password='secret'))
        capsys.readouterr()
        exit_code = status.main(['upgrade', 'check', '--json'])
    captured = capsys.readouterr()
    assert (exit_code, captured.err) == (2 if code == 2 else 0, '')
    (result, details) = next(
        (check['result'], check['details'])
        for check in json.loads(captured.out)['checks']
        if check['check'] == 'Keystone'
    )
    assert result == code
    assert (details or '').startswith(sentence or '')
    assert 'secret' not in (details or '')
    assert '\n' not in (details or '')


@pytest.mark.parametrize(
    ('option', 'text', 'code', 'sentence'),
    [
        ('', '"placement:traits:list": "rule:nowhere"', 2, 'The rule "placement:traits:list" of the policy file '),
        ('', '- a', 2, 'is invalid: it is not a mapping.'),
        ('', '"mine": "!"', 1, 'which no operation of this release uses'),
        ('[oslo_policy]\npolicy_file = x.yaml\n', '', 1, 'The policy file x.yaml, named by [oslo_policy] policy_file'),
        ('', '{}', 0, 'policy.yaml'),
    ],
)
def test_policy_files_are_checked(
    sound: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    text: str,
    code: int,
    sentence: str,
) -> None:
    (tmp_path / 'placement.conf').write_text(option)
    (tmp_path / 'policy.yaml').write_text(text)
    result, details = _results(capsys, 2 if code == 2 else 0)['Policy']
    assert result == code
    assert sentence in details


@pytest.mark.parametrize(
    ('options', 'missing', 'package'),
    [
        ('', 'memcache', 'python-memcached'),
        ('memcache_tls_enabled = true\n', 'bmemcached', 'python-binary-memcached'),
        ('memcache_security_strategy = ENCRYPT\nmemcache_secret_key = x\n', 'cryptography', 'cryptography'),
    ],
)
def test_a_cache_of_tokens_without_its_package_is_a_failure(
    sound: str,
    options: str,
    missing: str,
    package: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if options.startswith('memcache_tls_enabled') and metadata.version('keystonemiddleware').startswith('10.'):
        pytest.skip('until 2026.1 is the oldest supported OpenStack release: keystonemiddleware 10 has no such option')
    monkeypatch.setenv('OS_API__AUTH_STRATEGY', 'keystone')
    # Whether the other packages are installed here or not.
    for name in ('memcache', 'bmemcached', 'cryptography'):
        monkeypatch.setitem(sys.modules, name, None if name == missing else types.ModuleType(name))
    text = f'[keystone_authtoken]\nmemcached_servers = 127.0.0.1:11211\n{options}'
    (tmp_path / 'placement.conf').write_text(text)
    result, details = _results(capsys, 2)['Configuration']
    assert result == 2
    assert details.endswith(f'is missing: pip install {package}')


@pytest.mark.parametrize(
    ('statements', 'check', 'result', 'text'),
    [
        (
            corruption.ALL['missing consumers'].statements,
            'Consumers',
            1,
            f'consumer {corruption.LOST_CONSUMER} and 1 more: ',
        ),
        (
            ("DELETE FROM placement_traits WHERE name = 'HW_CPU_X86_VMX'",),
            'Standard names',
            1,
            'lacks 1 standard resource class or trait of the installed packages, such as HW_CPU_X86_VMX.',
        ),
        (corruption.ALL['missing class'].statements, 'References', 2, 'resource_class number 10007: '),
        (corruption.ALL['no root'].statements, 'Provider trees', 2, 'provider_name root and 2 more'),
        (
            ('UPDATE placement_resource_providers SET root_provider_id = NULL WHERE id = 3',),
            'Provider trees',
            2,
            f'resource_provider {corruption.FLAT}: its root',
        ),
        (corruption.ALL['usage too high'].statements, 'Usages', 2, corruption.ALL['usage too high'].detail),
        (
            ('CREATE TABLE inventories (id INTEGER)', 'CREATE TABLE allocations (id INTEGER)'),
            'Tables of another service',
            1,
            '(allocations, inventories)',
        ),
        (("UPDATE placement_alembic_version SET version_num = '000'",), 'Schema', 2, 'revision 000'),
    ],
    ids=['consumer', 'names', 'reference', 'tree', 'tree without a name', 'usage', 'tables', 'schema'],
)
def test_a_problem_of_the_database_is_a_warning_or_a_failure(
    sound: str, statements: tuple[str, ...], check: str, result: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corruption.plant(sound, *statements)
    printed, details = _results(capsys, 2 if result == 2 else 0)[check]
    assert printed == result
    assert text in details
    if check in ('Consumers', 'References', 'Provider trees', 'Usages'):
        assert 'placement-manage audit' in details


def test_a_database_without_our_schema_is_a_failure(
    tmp_path: pathlib.Path, point_commands_at: PointCommandsAt, capsys: pytest.CaptureFixture[str]
) -> None:
    url = point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    results = _results(capsys, status.FAILED)
    assert results['Schema'][0] == 2
    assert 'placement-manage db sync' in results['Schema'][1]
    assert [results[check][0] for check in CHECKS[1:]] == [1] * len(CHECKS[1:])
    legacy_database.build(url)
    assert _results(capsys, 2)['Schema'][1].endswith('Adopt it with: placement-manage db adopt')
