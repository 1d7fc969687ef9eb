"""Authentication with noauth2: the identity that each token gives."""

from __future__ import annotations

from typing import Any

import pytest
import webob

from placement.web import authentication, context
from tests.support.http_client import CLAIMS


def _seen(token: str | None, path: str = '/traits', **headers: str) -> tuple[int, Any]:
    """Status of the answer, and the identity that noauth2 passes on."""
    seen: list[Any] = [None]

    def behind(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen[0] = environ[context.ENVIRON_KEY]
        start_response('200 OK', [])
        return []

    def make_context(**arguments: Any) -> Any:
        return {name: value for name, value in arguments.items() if not name.endswith('request_id')}

    req = webob.Request.blank(path, headers={} if token is None else {'X-Auth-Token': token})
    req.headers.update(headers)
    req.environ['openstack.request_id'] = 'req-1'
    return req.get_response(authentication.NoAuth(behind, make_context)).status_code, seen[0]


@pytest.mark.parametrize(
    ('token', 'identity'),
    [
        ('admin', {'user_id': 'admin', 'project_id': 'admin', 'roles': ['admin']}),
        ('admin:p', {'user_id': 'admin', 'project_id': 'p', 'roles': ['admin']}),
        ('Admin', {'user_id': 'Admin', 'project_id': 'Admin', 'roles': []}),
        ('u:p:q', {'user_id': 'u', 'project_id': 'p:q', 'roles': []}),
        ('', {'user_id': '', 'project_id': '', 'roles': []}),
    ],
)
def test_noauth2_reads_the_token(token: str, identity: dict[str, Any]) -> None:
    assert _seen(token) == (200, identity)
    claims = {name: value for name, value in CLAIMS.items() if name not in ('X-Roles', 'X-Project-Id')}
    assert _seen(token, **claims) == (200, identity)


@pytest.mark.parametrize('token', ['admin', 'u'])
@pytest.mark.parametrize(
    ('header', 'roles'), [('reader', ['reader']), (' a , b,,', ['a', 'b']), ('', []), ('Admin', ['Admin'])]
)
def test_noauth2_reads_the_roles(token: str, header: str, roles: list[str]) -> None:
    expected = {'user_id': token, 'project_id': 'p', 'roles': roles}
    assert _seen(f'{token}:p', **{'X-Roles': header}) == (200, expected)


def test_noauth2_reads_the_project() -> None:
    assert _seen('u:p', **{'X-Project-Id': 'q'}) == (200, {'user_id': 'u', 'project_id': 'q', 'roles': []})
    assert _seen('u:p', **{'X-Project-Id': ''})[1]['project_id'] == 'p'


def test_noauth2_reads_the_scope() -> None:
    identity = {'user_id': 'admin', 'project_id': None, 'roles': ['admin'], 'system_scope': 'all'}
    assert _seen('admin:p', **{'OpenStack-System-Scope': 'all', 'X-Project-Id': 'q'}) == (200, identity)
    assert _seen('admin:p', **{'OpenStack-System-Scope': ''})[1]['project_id'] == 'p'


def test_noauth2_requires_a_token_except_at_the_root() -> None:
    assert _seen(None) == (401, None)
    assert _seen(None, **CLAIMS) == (401, None)
    assert _seen(None, path='/') == (200, {})
