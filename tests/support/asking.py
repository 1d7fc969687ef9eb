"""Requests to an application in the process of the test."""

from __future__ import annotations

from typing import Any

import webob


def ask(app: Any, method: str, path: str, body: Any = None, version: str = '1.29') -> webob.Response:
    """Send a request as an administrator, with a JSON body if there is one."""
    request = webob.Request.blank(path, method=method)
    request.headers.update({'X-Auth-Token': 'admin', 'OpenStack-API-Version': f'placement {version}'})
    if body is not None:
        request.content_type = 'application/json'
        request.json = body
    return request.get_response(app)
