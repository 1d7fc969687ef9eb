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


def _identity(user: str, project: str | None, *roles: str, **scope: str) -> dict[str, Any]:
    return {'user_id': user, 'project_id': project, 'roles': list(roles), **scope}


@pytest.mark.parametrize(
    ('token', 'headers', 'identity'),
    [
        ('admin', {}, _identity('admin', 'admin', 'admin')),
        ('admin:p', {}, _identity('admin', 'p', 'admin')),
        ('Admin', {}, _identity('Admin', 'Admin')),
        ('u:p:q', {}, _identity('u', 'p:q')),
        ('', {}, _identity('', '')),
        ('admin:p', {'X-Roles': 'reader'}, _identity('admin', 'p', 'reader')),
        ('u:p', {'X-Roles': ' a , b,,'}, _identity('u', 'p', 'a', 'b')),
        ('admin:p', {'X-Roles': ''}, _identity('admin', 'p')),
        ('u:p', {'X-Roles': 'Admin'}, _identity('u', 'p', 'Admin')),
        ('u:p', {'X-Project-Id': 'q'}, _identity('u', 'q')),
        ('u:p', {'X-Project-Id': ''}, _identity('u', 'p')),
        (
            'admin:p',
            {'OpenStack-System-Scope': 'all', 'X-Project-Id': 'q'},
            _identity('admin', None, 'admin', system_scope='all'),
        ),
        ('admin:p', {'OpenStack-System-Scope': ''}, _identity('admin', 'p', 'admin')),
    ],
)
def test_noauth2_reads_token_roles_project_and_scope(
    token: str, headers: dict[str, str], identity: dict[str, Any]
) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name not in ('X-Roles', 'X-Project-Id')}
    assert _seen(token, **headers) == (200, identity)
    assert _seen(token, **{**claims, **headers}) == (200, identity)


def test_noauth2_requires_a_token_except_at_the_root() -> None:
    assert _seen(None) == (401, None)
    assert _seen(None, **CLAIMS) == (401, None)
    assert _seen(None, path='/') == (200, {})
