"""The Containerfile, built with buildah and run as it documents: not as root, with a read-only root file system."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
import yaml

from placement import conf as configuration
from placement.conf.unknown import list_unknown
from placement.db import connections
from tests.integration import services
from tests.support import servers
from tests.support.pages import ROOT

BUILD_SECONDS = 600
#: With characters that have a meaning in a URL.
PASSWORD = 'p@ss/w:rd'
HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}

#: What a container runtime does: the root file system read-only, an empty /tmp, and another user.
RUN = """
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
mount -t tmpfs tmpfs "$1/tmp"
exec chroot --userspec="$2:$2" "$1" env -i "${@:3}"
"""


class Builder:
    """buildah with images of its own in ``home``."""

    def __init__(self, home: pathlib.Path) -> None:
        self._command = [services.program('container', 'buildah'), f'--root={home}/images', f'--runroot={home}/run']

    def run(self, *arguments: str) -> str:
        """Run one of its commands. The test is skipped when the kernel does not let it."""
        ran = subprocess.run(
            [*self._command, *arguments], check=False, capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=ROOT
        )
        if ran.returncode and re.search('operation not permitted|permission denied', ran.stderr, re.IGNORECASE):
            pytest.skip(f'not run, the kernel forbids buildah {arguments[0]}: {ran.stderr[-500:]}')
        assert ran.returncode == 0, f'buildah {" ".join(arguments)}:\n{ran.stderr[-4000:]}'
        return ran.stdout.strip()


@pytest.fixture
def builder() -> Iterator[Builder]:
    """A builder with an image of Debian, since there may be no registry."""
    if os.getuid() != 0:
        pytest.skip('not run: building and running without a container runtime takes root')
    home = pathlib.Path(tempfile.mkdtemp(prefix='placement-container-'))
    builder = Builder(home)
    try:
        empty = builder.run('from', 'scratch')
        builder.run('add', empty, str(_debian()), '/')
        builder.run('commit', '--quiet', '--rm', empty, 'localhost/debian')
        yield builder
    finally:
        builder.run('rm', '--all')
        subprocess.run(['umount', '--lazy', f'{home}/images/overlay'], check=False, capture_output=True)
        shutil.rmtree(home)


def _debian() -> pathlib.Path:
    """A small Debian with Python; made once, and kept beside the virtual environments of ``services.environment``."""
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'placement-tests'
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / 'debian-bookworm-git.tar'
    if not archive.exists():
        program = services.program('container', 'mmdebstrap')
        new = archive.with_name('new.tar')
        command = [program, '--variant=minbase', '--include=git,python3-venv,ca-certificates', 'bookworm', str(new)]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=BUILD_SECONDS)
        if ran.returncode:
            services.unavailable('container', f'mmdebstrap failed:\n{ran.stderr[-2000:]}')
        new.rename(archive)
    return archive


def _pip_of_this_machine() -> list[str]:
    """Options that let the build install from where this machine installs."""
    file = pathlib.Path('/etc/pip.conf')
    text = file.read_text() if file.exists() else ''
    places = {place for place in re.findall(r'(?<![\w/:])(?:file://)?(/[^\s:]+)', text) if os.path.exists(place)}
    mounted = [str(file)] * file.exists() + ['/etc/ssl/certs', *sorted(places - {'/etc/ssl/certs'})]
    return [word for place in mounted for word in ('--volume', f'{place}:{place}:ro')]


def test_image_serves_without_root_and_without_writing(builder: Builder, tmp_path: pathlib.Path) -> None:
    options = ['--isolation', 'chroot', '--format', 'docker', '--build-arg', 'BASE=localhost/debian']
    image = builder.run('build', '--quiet', *options, *_pip_of_this_machine(), '.')
    settings = json.loads(builder.run('inspect', '--type', 'image', image))['Docker']['config']
    assert int(settings['User']) > 0
    root = pathlib.Path(builder.run('mount', builder.run('from', image)))
    assert not list(root.glob('opt/placement/lib/python3*/site-packages/pip'))
    environ = [
        *settings['Env'],
        'OS_PLACEMENT_DATABASE__CONNECTION=sqlite:////tmp/placement.sqlite',
        'OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP=true',
        'OS_API__AUTH_STRATEGY=noauth2',
    ]

    def inside(*command: str) -> list[str]:
        script = ['unshare', '--mount', 'bash', '-euc', RUN, 'run', str(root), settings['User']]
        return [*script, *environ, *command]

    # The commit is a part of the version, unless this tree is not a clone.
    commit = subprocess.run(
        ['git', 'rev-parse', '--short=8', 'HEAD'], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert f'+g{commit.stdout.strip()}' in services.run(inside('placement-api', '--version'))
    rejected = subprocess.run(inside('touch', '/opt/placement/x'), check=False, capture_output=True, text=True)
    if 'permission denied' in rejected.stderr.lower() and 'mount' in rejected.stderr:
        pytest.skip(f'not run, the kernel forbids to mount: {rejected.stderr}')
    assert 'Read-only file system' in rejected.stderr
    address = f'127.0.0.1:{servers.free_port()}'
    url = f'http://{address}'
    command = inside(*settings['Entrypoint'], '--bind', address, '--workers', '2')
    test, *words = settings['Healthcheck']['Test']
    assert test == 'CMD'
    check = inside(*(word.replace('127.0.0.1:8778', address) for word in words))
    with servers.running(command, url, tmp_path / 'log', os.environ):
        created = services.fetch('POST', f'{url}/resource_providers', json={'name': 'a'}, headers=HEADERS)
        assert created.status_code == 200, created.text
        services.run(check)
    assert subprocess.run(check, check=False, capture_output=True, timeout=60).returncode != 0


def test_compose_file_sets_options_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    composed = yaml.safe_load((ROOT / 'compose.yaml').read_text())['services']
    service = composed['placement']
    assert service['read_only'] is True
    assert all(port.startswith('127.0.0.1:') for port in service['ports'])
    for name, value in service['environment'].items():
        monkeypatch.setenv(name, value.replace('${POSTGRES_PASSWORD}', PASSWORD))
    conf = configuration.load(config_files=[])
    assert [variable for variable in list_unknown(conf) if 'OS_' in variable] == []
    url = connections.engine_url(conf.placement_database)
    assert url.host == 'database'
    assert url.database == composed['database']['environment']['POSTGRES_DB']
    assert url.password is None
    # The default suite, which collects this module, runs without the driver.
    import psycopg

    defaults = {option.keyword: option.val for option in psycopg.pq.Conninfo.get_defaults()}
    assert defaults[b'password'] == PASSWORD.encode()
