"""The package as it is installed: the wheel, its dependencies, an import without output, and what is beside it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from placement import policies
from placement.cmd import manage, status
from tests.support import keystone, servers
from tests.support.fixtures import PointCommandsAt

ROOT = Path(__file__).resolve().parents[2]


def _package_files() -> list[str]:
    """Every file below placement/ that is source, as a path relative to the root."""
    files = (path for path in (ROOT / 'placement').rglob('*') if path.is_file() and '__pycache__' not in path.parts)
    return sorted(str(path.relative_to(ROOT)) for path in files)


def _samples() -> list[str]:
    """The sample files and the pages, as paths relative to the root."""
    files = [*(ROOT / 'etc').rglob('*'), *(ROOT / 'doc').glob('*.md')]
    return sorted(str(path.relative_to(ROOT)) for path in files if path.is_file())


def test_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path: Path) -> None:
    """The wheel that ``pip install .`` makes, built from a copy of the files that are in git."""
    copy, out = tmp_path / 'source', tmp_path / 'wheel'
    sources = ['pyproject.toml', 'setup.py', 'README.md', 'LICENSE', 'bin/placement-api']
    for name in [*sources, *_samples(), *_package_files()]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    options = ['--quiet', '--no-deps', '--no-build-isolation']
    command = [sys.executable, '-m', 'pip', 'wheel', *options, '-w', str(out), str(copy)]
    subprocess.run(command, check=True, timeout=240, stdin=subprocess.DEVNULL)
    wheel = zipfile.ZipFile(next(out.glob('*.whl')))
    packed = {name for name in wheel.namelist() if '.dist-info/' not in name}
    (script,) = (name for name in packed if '.data/scripts/' in name)
    assert script.endswith('/placement-api')
    data = {name: name.partition('.data/data/share/')[2] for name in packed - {script} if '.data/' in name}
    installed = (
        name.replace('doc/', 'doc/placement/') if name[:4] == 'doc/' else f'placement/{name}' for name in _samples()
    )
    assert sorted(data.values()) == sorted(installed)
    assert sorted(packed - {script} - data.keys()) == _package_files()


def test_dependency_page_names_exactly_the_declared_packages() -> None:
    # After the name come the extras, versions and markers of the requirement.
    declared = {re.split('[^A-Za-z0-9._-]', text)[0] for text in importlib.metadata.requires('placement-server') or ()}
    page = (ROOT / 'doc' / 'dependencies.md').read_text()
    documented = {row.split('|')[1].strip() for row in page.splitlines() if row.startswith('| ')} - {'Package'}
    assert documented == declared


def test_import_prints_nothing_and_leaves_eventlet_out() -> None:
    modules = [name[:-3].replace('/', '.').removesuffix('.__init__') for name in _package_files() if name[-3:] == '.py']
    # placement.wsgi builds an application from the configuration of the machine; Alembic runs its scripts itself; the
    # driver of PostgreSQL is an extra.
    excluded = re.compile(r'placement\.wsgi|placement\.db\.(migrations|postgresql)')
    imports = [f'import {name}' for name in sorted(modules) if not excluded.match(name)]
    unwanted = '""' if servers.IMPORTS_EVENTLET else '"eventlet"'
    code = '\n'.join(['import sys', *imports, f'sys.exit({unwanted} in sys.modules)'])
    command = [sys.executable, '-c', code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    readme = (ROOT / 'README.md').read_text()
    (command,) = re.findall(r'^(python3 -m venv .*tox)$', readme, flags=re.MULTILINE)
    assert command in (ROOT / '.ci' / 'run').read_text()


def test_the_workflow_runs_every_python_and_pins_every_action() -> None:
    text = (ROOT / '.github' / 'workflows' / 'ci.yml').read_text()
    workflow = yaml.safe_load(text)
    classifiers = importlib.metadata.metadata('placement-server').get_all('Classifier') or []
    supported = [match[1] for classifier in classifiers if (match := re.search(r'Python :: (3\.\d+)$', classifier))]
    assert workflow['jobs']['default']['strategy']['matrix']['python'] == supported
    steps = [step for job in workflow['jobs'].values() for step in job['steps']]
    assert all(re.search('@[0-9a-f]{40}$', step['uses']) for step in steps if 'uses' in step)
    commands = [step['run'] for step in steps if 'run' in step]
    for script in ('.ci/run', 'tools/release.sh'):
        assert any(f'bash {script}' in command for command in commands)


# The tools of oslo that operators run on this service -------------------------------------------------------------


def _run(program: str, *arguments: str | Path, **environ: str) -> str:
    """What a program that is installed beside Python prints."""
    command = [Path(sys.executable).with_name(program), *arguments]
    return subprocess.run(
        command, check=True, timeout=120, env=os.environ | environ, stdout=subprocess.PIPE, text=True
    ).stdout


def test_oslo_policy_generates_a_sample_without_redundant_rules(tmp_path: Path) -> None:
    sample = tmp_path / 'policy.yaml'
    _run('oslopolicy-sample-generator', '--namespace', 'placement', '--output-file', sample)
    text = sample.read_text()
    rules = [rule for rule in policies.list_rules() if not rule.deprecated_for_removal]
    assert [rule.name for rule in rules if f'#"{rule.name}": "{rule.check_str}"' not in text] == []
    assert _run('oslopolicy-list-redundant', '--namespace', 'placement', OS_PLACEMENT_CONFIG_DIR=str(tmp_path)) == ''


def test_oslo_policy_validates_the_policy_file(tmp_path: Path) -> None:
    validator = str(Path(sys.executable).with_name('oslopolicy-validator'))
    command = [validator, '--namespace', 'placement']
    environ = os.environ | {'OS_PLACEMENT_CONFIG_DIR': str(tmp_path)}
    for text, code, line in (
        (None, 0, ''),
        ('"placement:traits:list": "role:reader"\n', 0, ''),
        ('"placement:traits:list": "role:reader or or"\n', 1, 'Failed to parse rule: role:reader or or'),
        ('"placement:nothing": "role:reader"\n', 1, 'Unknown rule found in policy file: placement:nothing'),
    ):
        if text is not None:
            (tmp_path / 'policy.yaml').write_text(text)
        ended = subprocess.run(command, check=False, env=environ, timeout=120, capture_output=True, text=True)
        assert (ended.returncode, ended.stdout.strip()) == (code, line), ended.stderr


@pytest.mark.parametrize('namespace', ['placement', 'placement.conf'])
def test_a_sample_of_the_configuration_has_every_group(tmp_path: Path, namespace: str) -> None:
    sample = tmp_path / 'sample.conf'
    _run('oslo-config-generator', '--namespace', namespace, '--output-file', sample)
    text = sample.read_text()
    for group in ('DEFAULT', 'api', 'placement', 'placement_database', 'cors', 'oslo_policy', 'keystone_authtoken'):
        assert f'\n[{group}]\n' in f'\n{text}'
    assert 'X-Identity-Status' in text


# The package of the reference service, which has the same name ----------------------------------------------------


SAID = 'openstack-placement 9.9.9 is installed as well. Both are the Python package "placement", and each overwrites'


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point_commands_at: PointCommandsAt) -> Path:
    """A directory in which it is installed, on the path of this process; and a database."""
    metadata = tmp_path / 'site' / 'openstack_placement-9.9.9.dist-info' / 'METADATA'
    metadata.parent.mkdir(parents=True)
    metadata.write_text('Metadata-Version: 2.1\nName: openstack-placement\nVersion: 9.9.9\n')
    monkeypatch.syspath_prepend(tmp_path / 'site')
    point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP', 'true')
    monkeypatch.setenv('OS_API__AUTH_STRATEGY', 'noauth2')
    return tmp_path / 'site'


def test_commands_warn_and_go_on(beside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(['db', 'sync']) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f'placement-manage: warning: {SAID}')
    assert captured.err.count('\n') == 1
    assert status.main(['upgrade', 'check', '--json']) == 0
    assert capsys.readouterr().err.startswith(f'placement-status: warning: {SAID}')


@pytest.mark.parametrize(
    'start', [['-c', 'import placement.wsgi'], ['-m', 'placement.cmd.api', '--bind', '127.0.0.1:0']]
)
def test_the_service_warns(beside: Path, start: list[str]) -> None:
    is_server = '--bind' in start
    # The server ends after the warning, because it cannot use its database.
    database = {'OS_PLACEMENT_DATABASE__CONNECTION': 'nonsense'} if is_server else {}
    environment = {**os.environ, 'PYTHONPATH': str(beside), **database}
    command = [sys.executable, *start]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == is_server
    assert ended.stdout.count(SAID) == 1


# The module for other WSGI servers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('password', 'endings'),
    [
        ('secret', [', ready']),
        (keystone.WRONG_PASSWORD, ['wrong password (HTTP 401)', ', started, but not ready']),
    ],
)
def test_the_module_is_ready_if_keystone_accepts_the_service(tmp_path: Path, password: str, endings: list[str]) -> None:
    with keystone.keystone() as url:
        options = {'auth_url': f'{url}/v3', 'www_authenticate_uri': url, 'username': 'placement', 'password': password}
        scope = {'project_name': 'service', 'user_domain_id': 'default', 'project_domain_id': 'default'}
        variables = servers.variables(
            api={'auth_strategy': 'keystone'},
            keystone_authtoken={'auth_type': 'password', **options, **scope},
            placement_database={'connection': f'sqlite:///{tmp_path}/placement.sqlite', 'sync_on_startup': True},
        )
        command = [sys.executable, '-c', 'import placement.wsgi']
        environ = servers.clean_environ(**variables)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in done.stdout.splitlines() if ' placement.wsgi ' in line]
    assert [line[-len(ending) :] for line, ending in zip(lines, endings, strict=True)] == endings
