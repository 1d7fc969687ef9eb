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
def _operations(version: str) -> tuple[list[tuple[re.Pattern[str], dict[str, Any]]], dict[str, Any]]:
    document = openapi.document(microversion.parse_version_string(version))
    paths = [(re.compile(re.sub('{.+?}', '[^/]+', path)), methods) for path, methods in document['paths'].items()]
    return paths, document['components']


@functools.cache
def _validator(version: str, reference: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator({'$ref': reference, 'components': _operations(version)[1]})


def checked(app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Pass a request on to an application; the document must have the status of the answer, and allow its body."""
    status, headers = '', {}

    def start(*arguments: Any) -> Any:
        nonlocal status, headers
        status, headers = arguments[0][:3], {name.lower(): value for name, value in arguments[1]}
        return start_response(*arguments)

    body = b''.join(app(environ, start))
    version = headers.get('openstack-api-version', '').removeprefix('placement ')
    for path, methods in _operations(version)[0] if version else ():
        operation = methods.get(environ['REQUEST_METHOD'].lower())
        if operation and path.fullmatch(environ['PATH_INFO']):
            assert status in operation['responses'], (path, status, body)
            response = operation['responses'][status]
            if '$ref' in response:
                response = _operations(version)[1]['responses'][response['$ref'].rpartition('/')[2]]
            content = response.get('content', {})
            assert bool(content) == bool(body), (path, status, body)
            if body and headers['content-type'].startswith('application/json'):
                reference = content['application/json']['schema']['$ref']
                _validator(version, reference).validate(json.loads(body))
    return [body]
