"""Answers, compared with the OpenAPI document of their microversion."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import jsonschema

from placement import openapi
from placement.web import microversion


@functools.cache
def _document(version: str) -> dict[str, Any]:
    return openapi.document(microversion.parse_version_string(version))


@functools.cache
def _validator(version: str, reference: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator({'$ref': reference, 'components': _document(version)['components']})


def checked(app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Pass a request on to an application; the document must have the status of the answer, and allow its body."""
    status, headers = '', {}

    def start(*arguments: Any) -> Any:
        nonlocal status, headers
        status, headers = arguments[0][:3], {name.lower(): value for name, value in arguments[1]}
        return start_response(*arguments)

    body = b''.join(app(environ, start))
    version = headers.get('openstack-api-version', '').removeprefix('placement ')
    for path, methods in _document(version)['paths'].items() if version else ():
        operation = methods.get(environ['REQUEST_METHOD'].lower())
        if operation and re.fullmatch(re.sub('{.+?}', '[^/]+', path), environ['PATH_INFO']):
            assert status in operation['responses'], (path, status, body)
            response = operation['responses'][status]
            if '$ref' in response:
                response = _document(version)['components']['responses'][f'Failure{status}']
            content = response.get('content', {})
            assert bool(content) == bool(body), (path, status, body)
            if body and headers['content-type'].startswith('application/json'):
                _validator(version, content['application/json']['schema']['$ref']).validate(json.loads(body))
    return [body]
