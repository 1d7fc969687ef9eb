"""``placement-status upgrade check``: results and exit codes."""

from __future__ import annotations

import json
import pathlib
import sys
import types
from typing import Any

import pytest

from placement.cmd import status
from tests.support import corruption, legacy_database
from tests.support.fixtures import PointCommandsAt


@pytest.fixture
def sound(url: str) -> str:
    """The URL of a sound database, which the commands use."""
    corruption.plant(url, *corruption.SOUND)
    return url


CHECKS = ('Schema', 'Provider trees', 'Consumers', 'Usages', 'Tables of another service')


def _results(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    capsys.readouterr()
    assert status.main(['upgrade', 'check', '--format', 'json']) == code
    return {
        check['check']: (check['result'], check['details']) for check in json.loads(capsys.readouterr().out)['checks']
    }


def test_sound_database_is_ready(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _results(capsys, 0) == dict.fromkeys(('Configuration', *CHECKS), (0, None))


def test_unknown_options_are_a_warning(
    sound: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__SLAVE_CONNECTION', 'sqlite://')
    result, details = _results(capsys, 0)['Configuration']
    assert result == 1
    assert 'the variable OS_PLACEMENT_DATABASE__SLAVE_CONNECTION: all requests use [placement_database]' in details


#: What a deployment tool writes for this API, apart from secrets and addresses.
OTHERS = """
[DEFAULT]
debug = False
log_dir = {home}
[api]
use_forwarded_for = true
[oslo_middleware]
enable_proxy_headers_parsing = True
[oslo_concurrency]
lock_path = /var/lib/placement/tmp
[placement_database]
connection = {url}
connection_recycle_time = 10
max_pool_size = 1
max_retries = -1
[cache]
backend = oslo_cache.memcache_pool
enabled = True
memcache_servers = 127.0.0.1:11211
[oslo_policy]
policy_file = policy.yaml
"""


# oslo.upgradecheck 2.8 gives this warning, which only the tests see.
@pytest.mark.filterwarnings("ignore:the 'ALL' constant is deprecated:DeprecationWarning")
def test_the_file_of_another_service_is_ready_with_a_line_for_each_ignored_option(
    sound: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'placement.conf').write_text(OTHERS.format(home=tmp_path, url=sound))
    lines = _results(capsys, 0)['Configuration'][1].splitlines()
    assert [line.partition(' in ')[0] for line in lines[1:]] == [
        '[api] use_forwarded_for',
        '[oslo_concurrency] lock_path',
        '[placement_database] max_retries',
        '[cache] backend',
        '[cache] enabled',
        '[cache] memcache_servers',
    ]
    assert all('placement.conf: ' in line for line in lines[1:])
    assert status.main(['upgrade', 'check']) == 0
    table = capsys.readouterr().out.splitlines()
    # Each of them begins a line of the table.
    assert [line[2:].partition(' in ')[0] for line in table if line.startswith('| [')] == [
        line.partition(' in ')[0] for line in lines[1:]
    ]


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
        (corruption.ALL['missing consumer'].statements, 'Consumers', 1, f'consumer {corruption.LOST_CONSUMER}: '),
        (corruption.ALL['no root'].statements, 'Provider trees', 2, 'provider_name root and 2 more'),
        (corruption.ALL['usage too high'].statements, 'Usages', 2, corruption.ALL['usage too high'].detail),
        (
            ('CREATE TABLE inventories (id INTEGER)', 'CREATE TABLE allocations (id INTEGER)'),
            'Tables of another service',
            1,
            '(allocations, inventories)',
        ),
        (("UPDATE placement_alembic_version SET version_num = '000'",), 'Schema', 2, 'revision 000'),
    ],
    ids=['consumer', 'tree', 'usage', 'tables', 'schema'],
)
def test_a_problem_of_the_database_is_a_warning_or_a_failure(
    sound: str, statements: tuple[str, ...], check: str, result: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corruption.plant(sound, *statements)
    printed, details = _results(capsys, 2 if result == 2 else 0)[check]
    assert printed == result
    assert text in details
    if check in ('Consumers', 'Provider trees', 'Usages'):
        assert 'placement-manage audit' in details


def test_a_database_without_our_schema_is_a_failure(
    tmp_path: pathlib.Path, point_commands_at: PointCommandsAt, capsys: pytest.CaptureFixture[str]
) -> None:
    url = point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    results = _results(capsys, 2)
    assert results['Schema'][0] == 2
    assert 'placement-manage db sync' in results['Schema'][1]
    assert [results[check][0] for check in CHECKS[1:]] == [1, 1, 1, 1]
    legacy_database.build(url)
    assert _results(capsys, 2)['Schema'][1].endswith('Adopt it with: placement-manage db adopt')


def test_help_explains_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        status.main(['upgrade', 'check', '--help'])
    assert ended.value.code == 0
    assert '255' in capsys.readouterr().out
