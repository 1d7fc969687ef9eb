"""Runs the commands of doc/deployment.md, from a bare machine to TLS, with paths and users of the test.

There is no systemd here, so the test runs the command of the unit with a socket, as systemd would.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator

import httpx
import pytest

from tests.support import certificates, keystone
from tests.support.operations import services
from tests.support.pages import ROOT, section

HEADING = 'From a bare machine to TLS'
#: Commands of a package manager, a user database, an editor or PID 1, which tests do not run.
NOT_HERE = ('apt-get', 'useradd', 'editor', 'systemctl')
PAGE = [line[4:] for line in section('deployment.md', HEADING).splitlines() if line.startswith('    ')]
#: The file that the page tells to write with "editor".
EDITS = {
    r'^connection = .*$': 'connection = sqlite:///{home}/var/placement.sqlite',
    r'^(auth_url|www_authenticate_uri) = .*$': r'\1 = {keystone}',
}


@pytest.fixture(scope='module')
def home() -> Iterator[pathlib.Path]:
    """The root of the machine: the directory in place of /."""
    made = pathlib.Path(tempfile.mkdtemp(prefix='placement-deployed-'))
    for path in ('opt', 'etc/ssl/certs', 'etc/ssl/private', 'etc/nginx/conf.d', 'etc/systemd/system', 'run', 'var'):
        (made / path).mkdir(parents=True)
    certificates.make(made)
    yield made
    shutil.rmtree(made)


def _command(home: pathlib.Path, line: str) -> str:
    """A command of the page, adapted to the test."""
    line = re.sub(r'(?<![\w.])/(opt|etc|run)/', rf'{home}/\1/', line)
    line = line.replace('runuser -u placement --', f'env OS_PLACEMENT_CONFIG_DIR={home}/etc/placement')
    line = re.sub(r'-o root -g \w+', f'-o {os.getuid()} -g {os.getgid()}', line)
    return re.sub(r'(?<=\s)placement\.(pem|key) ', rf'{home}/server.\1 ', line)


def _run(home: pathlib.Path, line: str) -> None:
    ran = subprocess.run(
        ['bash', '-euc', _command(home, line)],
        check=False,
        cwd=ROOT,
        env=services.clean_environ(),
        capture_output=True,
        text=True,
        timeout=services.INSTALL_SECONDS,
    )
    assert ran.returncode == 0, f'{line}\n{ran.stdout}{ran.stderr}'


def _edit(home: pathlib.Path, auth_url: str) -> None:
    file = home / 'etc' / 'placement' / 'placement.conf'
    text = file.read_text()
    for pattern, value in EDITS.items():
        text, count = re.subn(pattern, value.format(home=home, keystone=auth_url), text, flags=re.MULTILINE)
        assert count, pattern
    file.write_text(text)


def _nginx(home: pathlib.Path, port: int) -> list[str]:
    site = home / 'etc' / 'nginx' / 'conf.d' / 'placement.conf'
    text = re.sub(r'(?<=[\s:])/(etc|run)/', rf'{home}/\1/', site.read_text())
    site.write_text(text.replace('listen 8778 ssl', f'listen 127.0.0.1:{port} ssl'))
    own = [f'{kind}_temp_path {home}/{kind};' for kind in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi')]
    user = 'user root;' if os.getuid() == 0 else ''
    main = home / 'nginx.conf'
    http = f'http {{ access_log off; {" ".join(own)} include {site}; }}'
    main.write_text(f'daemon off; {user} pid {home}/nginx.pid; error_log {home}/nginx.log; events {{}} {http}')
    return [services.program('nginx', 'nginx'), '-p', str(home), '-c', str(main)]


@pytest.mark.timeout(900)
def test_the_page_leads_to_a_service_behind_tls(home: pathlib.Path) -> None:
    with keystone.keystone() as auth_url:
        for line in PAGE:
            word = line.split()[0]
            if word == 'editor':
                _edit(home, auth_url)
            elif word not in (*NOT_HERE, 'curl', 'nginx'):
                _run(home, line)
        _check_modes(home)
        unit = (home / 'etc/systemd/system/placement-api.service').read_text()
        (start,) = re.findall(r'^ExecStart=(.*)$', unit, flags=re.MULTILINE)
        socket = home / 'run' / 'placement' / 'api.sock'
        socket.parent.mkdir()
        environ = services.clean_environ(OS_PLACEMENT_CONFIG_DIR=f'{home}/etc/placement')
        command = [*shlex.split(_command(home, start)), '--bind', f'unix:{socket}']
        port = services.free_port()
        nginx = _nginx(home, port)
        services.run([*nginx, '-t'])
        with (
            services.running(command, 'http://localhost/', home / 'api.log', environ, uds=socket),
            services.running(nginx, f'http://127.0.0.1:{port}', home / 'front.log', services.clean_environ()),
        ):
            _ask(home, port)


def _check_modes(home: pathlib.Path) -> None:
    modes = {
        'etc/placement': 0o750,
        'etc/placement/placement.conf': 0o640,
        'etc/placement/placement-policy.yaml': 0o640,
        'etc/ssl/private/placement.key': 0o600,
    }
    assert {path: stat.S_IMODE((home / path).stat().st_mode) for path in modes} == modes


def _ask(home: pathlib.Path, port: int) -> None:
    """The last requests of the page, and those about tokens and health."""
    (asked,) = [line for line in PAGE if line.startswith('curl -s --cacert')]
    line = asked.replace('placement.pem', f'{home}/ca.pem').replace('cloud.example.org:8778', f'localhost:{port}')
    assert '"max_version":"1.29"' in services.run(shlex.split(line))
    url = f'https://localhost:{port}/placement'
    with httpx.Client(verify=certificates.trust(home)) as client:
        assert client.get(f'{url}/resource_providers').status_code == 401
        good = client.get(f'{url}/resource_providers', headers={'X-Auth-Token': 'good-admin'})
        assert good.json() == {'resource_providers': []}
        assert client.get(f'{url}/healthcheck').status_code == 403
    with httpx.Client(transport=httpx.HTTPTransport(uds=f'{home}/run/placement/api.sock')) as client:
        assert client.get('http://localhost/healthcheck/ready').status_code == 200


def test_every_command_of_the_page_is_run_or_listed_as_skipped() -> None:
    words = {line.split()[0] for line in PAGE}
    known = {*NOT_HERE, 'install', 'python3', '/opt/placement/bin/pip', 'runuser', 'curl', 'nginx'}
    assert words == known
