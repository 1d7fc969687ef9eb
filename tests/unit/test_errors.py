"""The error document in its three forms."""

from __future__ import annotations

import functools
from typing import Any

import webob
from webob import exc

from placement.web import error_document, microversion

REASON = 'what & <b>went</b> wrong'
CONFLICT = 'There was a conflict when trying to complete your request.'


def _response(
    error: exc.HTTPException, version: str | None = None, method: str = 'GET', **headers: str
) -> webob.Response:
    req = webob.Request.blank('/', method=method, headers=headers)
    req.environ['openstack.request_id'] = 'req-1'
    if version:
        req.environ[microversion.ENVIRON_KEY] = microversion.parse_version_string(version)
    return req.get_response(functools.partial(error_document.respond, error))


def _document(error: exc.HTTPException, version: str | None = None) -> dict[str, Any]:
    response = _response(error, version)
    assert response.content_type == 'application/json'
    (document,) = response.json['errors']
    assert dict(response.json).keys() == {'errors'}
    return dict(document)


def test_a_detail_is_the_sentence_of_webob_and_the_reason() -> None:
    assert _document(exc.HTTPConflict(REASON))['detail'] == f'{CONFLICT}\n\n {REASON}'
    assert _document(exc.HTTPNotFound(REASON))['detail'] == f'The resource could not be found.\n\n {REASON}'
    assert _document(exc.HTTPForbidden(REASON))['detail'] == f'Access was denied to this resource.\n\n {REASON}'
    detail = _document(exc.HTTPMethodNotAllowed(REASON))['detail']
    assert detail == f'The method GET is not allowed for this resource.\n\n {REASON}'


def test_without_a_reason_a_detail_is_the_sentence_alone() -> None:
    assert _document(exc.HTTPNotFound())['detail'] == 'The resource could not be found.'
    assert _document(exc.HTTPMethodNotAllowed())['detail'] == 'The method GET is not allowed for this resource.'


def test_the_reason_is_one_line() -> None:
    detail = _document(exc.HTTPConflict('name a\nb\r already exists'))['detail']
    assert detail == f'{CONFLICT}\n\n name a\\nb\\r already exists'


def test_html_is_escaped_and_plain_text_is_not() -> None:
    page = _response(exc.HTTPConflict(REASON), Accept='text/html')
    assert 'what &amp; &lt;b&gt;went&lt;/b&gt; wrong' in page.text
    assert '409 Conflict' in page.text
    assert _response(exc.HTTPConflict(REASON), Accept='image/png').text == f'409 Conflict\n\n{CONFLICT}\n\n {REASON}\n'


def test_headers_of_the_error_are_sent_and_head_gets_no_body() -> None:
    error = exc.HTTPMethodNotAllowed(headers={'Allow': 'GET'})
    response = _response(error, method='HEAD')
    assert response.headers['Allow'] == 'GET'
    assert response.headers['Content-Length'] == '0'
    assert 'Content-Type' not in response.headers
    assert response.body == b''


def test_a_text_of_a_megabyte_is_shortened_in_the_middle() -> None:
    detail = _document(exc.HTTPConflict(f'start{"x" * 1_000_000}end'))['detail']
    assert len(detail) < 10_000
    assert detail.startswith(f'{CONFLICT}\n\n start')
    assert detail.endswith('end')


def test_text_that_cannot_be_encoded_is_replaced() -> None:
    assert _document(exc.HTTPConflict('a\ud800b'))['detail'] == f'{CONFLICT}\n\n a?b'
