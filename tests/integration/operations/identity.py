"""A real Keystone for the tests: installed in an environment of its own, on SQLite, with fernet tokens."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import textwrap
from collections.abc import Iterator
from typing import Any

import httpx

from tests.integration import services
from tests.support import servers

PACKAGES = ('keystone', 'gunicorn')
PASSWORD = 'not-a-secret'
REGION = 'RegionOne'

CONFIGURATION = """
    [database]
    connection = sqlite:///{home}/keystone.db

    [token]
    provider = fernet

    [fernet_tokens]
    key_repository = {home}/tokens

    [fernet_receipts]
    key_repository = {home}/receipts

    [credential]
    key_repository = {home}/credentials

    [cache]
    enabled = false
"""

# A file instead of arguments, since Keystone reads the arguments of the process that imports it.
SERVER = """
    wsgi_app = 'keystone.wsgi.api:application'
    bind = '{bind}'
    workers = 2
    control_socket_disable = True
"""


@dataclasses.dataclass(frozen=True)
class Keystone:
    """A running identity service.

    It has the users ``admin`` and ``placement`` (role admin), ``nova`` (role service) and ``plain`` (role member, which
    implies reader).
    """

    url: str

    def options(self, user: str) -> dict[str, str]:
        """The options with which a user authenticates, of keystonemiddleware and of nova alike."""
        return {
            'auth_type': 'password',
            'auth_url': self.url,
            'www_authenticate_uri': self.url,
            'username': user,
            'password': PASSWORD,
            'project_name': self.project(user),
            'user_domain_id': 'default',
            'project_domain_id': 'default',
        }

    def authenticate(self, user: str, *, system: bool = False) -> httpx.Response:
        """Request a token of ``user``. The answer has it in ``X-Subject-Token``.

        :param system: whether it is scoped to the system, where ``admin`` alone has a role, instead of to its project.
        """
        domain = {'id': 'default'}
        identity = {
            'methods': ['password'],
            'password': {'user': {'name': user, 'domain': domain, 'password': PASSWORD}},
        }
        project = {'project': {'name': self.project(user), 'domain': domain}}
        scope = {'system': {'all': True}} if system else project
        return self._request('POST', '/auth/tokens', json={'auth': {'identity': identity, 'scope': scope}})

    def token(self, user: str, *, system: bool = False) -> str:
        """A fresh token of ``user``, for the scope of ``authenticate``."""
        return str(self.authenticate(user, system=system).headers['X-Subject-Token'])

    def project_id(self, user: str) -> str:
        """The id of the project in which ``user`` has its role."""
        return str(self.authenticate(user).json()['token']['project']['id'])

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._request('DELETE', '/auth/tokens', headers={'X-Auth-Token': self.token('admin'), 'X-Subject-Token': token})

    def project(self, user: str) -> str:
        """The name of the project in which ``user`` has its role."""
        return 'admin' if user == 'admin' else 'service'

    def create(self, kind: str, **values: Any) -> str:
        """Create a ``project``, ``user``, ``service`` or ``endpoint``; returns its id."""
        headers = {'X-Auth-Token': self.token('admin')}
        return str(self._request('POST', f'/{kind}s', json={kind: values}, headers=headers).json()[kind]['id'])

    def grant(self, role: str, user_id: str, project_id: str) -> None:
        """Give a user a role in a project."""
        headers = {'X-Auth-Token': self.token('admin')}
        roles = self._request('GET', '/roles', params={'name': role}, headers=headers).json()['roles']
        self._request('PUT', f'/projects/{project_id}/users/{user_id}/roles/{roles[0]["id"]}', headers=headers)

    def register(self, url: str) -> None:
        """Add the service ``placement`` at ``url`` to the catalog."""
        service = self.create('service', name='placement', type='placement')
        for interface in ('public', 'internal', 'admin'):
            self.create('endpoint', service_id=service, interface=interface, url=url, region_id=REGION)

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        # On a loaded machine its first answers take longer than the 5 seconds for which httpx waits by default.
        response = httpx.request(method, f'{self.url}{path}', timeout=services.START_SECONDS, **arguments)
        response.raise_for_status()
        return response


@contextlib.contextmanager
def served(home: pathlib.Path) -> Iterator[Keystone]:
    """Bootstrap a Keystone in ``home`` and serve it on loopback until the block ends."""
    programs = services.environment('keystone', PACKAGES)
    root = f'http://127.0.0.1:{servers.free_port()}'
    environ = servers.clean_environ(OS_KEYSTONE_CONFIG_DIR=str(home), OS_KEYSTONE_CONFIG_FILES='keystone.conf')
    _bootstrap(programs, home, f'{root}/v3')
    home.joinpath('gunicorn.conf.py').write_text(textwrap.dedent(SERVER).format(bind=root.removeprefix('http://')))
    with servers.running([str(programs / 'gunicorn')], f'{root}/v3', home / 'keystone.log', environ):
        keystone = Keystone(f'{root}/v3')
        _add_users(keystone)
        yield keystone


def _bootstrap(programs: pathlib.Path, home: pathlib.Path, url: str) -> None:
    home.joinpath('keystone.conf').write_text(textwrap.dedent(CONFIGURATION).format(home=home))
    for name in ('tokens', 'receipts', 'credentials'):
        home.joinpath(name).mkdir(mode=0o700)
    owner = [f'--keystone-user={os.getuid()}', f'--keystone-group={os.getgid()}']
    addresses = [f'--bootstrap-{interface}-url={url}' for interface in ('public', 'internal', 'admin')]
    for arguments in (
        ['db_sync'],
        ['fernet_setup', *owner],
        ['receipt_setup', *owner],
        ['credential_setup', *owner],
        ['bootstrap', f'--bootstrap-password={PASSWORD}', f'--bootstrap-region-id={REGION}', *addresses],
    ):
        services.run([str(programs / 'keystone-manage'), '--config-file', str(home / 'keystone.conf'), *arguments])


def _add_users(keystone: Keystone) -> None:
    project = keystone.create('project', name='service', domain_id='default')
    for name, role in (('placement', 'admin'), ('nova', 'service'), ('plain', 'member')):
        user = keystone.create('user', name=name, password=PASSWORD, domain_id='default')
        keystone.grant(role, user, project)
