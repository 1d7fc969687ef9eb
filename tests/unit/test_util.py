"""Functions that handlers share: bodies, media types, Accept, links, and headers of responses."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import webob
from webob import exc

from placement.exception import BadQuery
from placement.web import microversion, util

SCHEMA = {'type': 'object', 'properties': {'name': {'type': 'string'}}, 'additionalProperties': False}


def _request(path: str = '/', version: str = '1.29', **options: Any) -> webob.Request:
    req = webob.Request.blank(path, **options)
    req.environ[microversion.ENVIRON_KEY] = microversion.parse_version_string(version)
    return req


def test_extract_json_distinguishes_malformed_json_from_schema_errors() -> None:
    assert util.validated_json(b'{"name": "a"}', SCHEMA) == {'name': 'a'}
    with pytest.raises(exc.HTTPBadRequest, match=r'^Malformed JSON: '):
        util.validated_json(b'', SCHEMA)
    with pytest.raises(exc.HTTPBadRequest, match=r'^JSON does not validate: Additional properties are not allowed'):
        util.validated_json(b'{"nam": "a"}', SCHEMA)
    with pytest.raises(exc.HTTPBadRequest, match=r'^JSON does not validate: The character NUL'):
        util.validated_json(b'{"name": "a\\u0000"}', SCHEMA)


def test_a_query_may_have_nul_although_a_body_may_not() -> None:
    assert util.query_params(_request('/?name=%00'), SCHEMA)['name'] == '\0'


@pytest.mark.parametrize('text', ['nam=a', 'name=%FF', '%C3=a'])
def test_the_message_about_a_bad_query_says_that_it_is_the_query(text: str) -> None:
    with pytest.raises(BadQuery, match=r'^Invalid query string parameters: '):
        util.query_params(_request(f'/?{text}'), SCHEMA)


def test_of_a_repeated_key_the_last_value_is_used() -> None:
    params = util.query_params(_request('/?name=a&name=b'), SCHEMA)
    assert params['name'] == 'b'
    assert params.getall('name') == ['a', 'b']


def test_cache_headers_are_sent_from_1_15() -> None:
    modified = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    old = util.json_response(_request(version='1.14'), {}, last_modified=modified)
    assert 'Last-Modified' not in old.headers
    assert 'Cache-Control' not in old.headers
    for new in (
        util.json_response(_request(version='1.15'), {}, last_modified=modified),
        util.empty_response(_request(version='1.15'), 204, last_modified=modified),
    ):
        assert new.headers['Last-Modified'] == 'Fri, 02 Jan 2026 02:04:05 GMT'
        assert new.headers['Cache-Control'] == 'no-cache'


def test_a_json_response_has_no_charset() -> None:
    response = util.json_response(_request(), {'name': 'é'}, status=201)
    assert response.status == '201 Created'
    assert response.headers['Content-Type'] == 'application/json'
    assert response.body == '{"name":"é"}'.encode()


def test_an_empty_response_has_no_content_type() -> None:
    response = util.empty_response(_request(base_url='https://h.example.com:8/p'), 201, location='/p/x')
    assert 'Content-Type' not in response.headers
    assert response.headers['Location'] == 'https://h.example.com:8/p/x'
    assert response.body == b''


@pytest.mark.parametrize(
    ('prefix', 'start'), [('', ''), ('/placement', '/placement'), ('/p/', '/p'), ('/a b', '/a%20b')]
)
def test_links_have_the_mount_prefix(prefix: str, start: str) -> None:
    environ = {'SCRIPT_NAME': prefix}
    assert util.url(environ, 'traits', 'T') == f'{start}/traits/T'
    assert util.url(environ, 'resource_classes', 'A/B C') == f'{start}/resource_classes/A%2FB%20C'
