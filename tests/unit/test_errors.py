"""The error document in its three forms."""

from __future__ import annotations

from typing import Any

import pytest
import webob
from webob import exc

from placement.web import error_document, microversion, wsgi

DETAIL = 'what & <b>went</b> wrong'


def _response(
    error: exc.HTTPException, version: str | None = None, method: str = 'GET', **headers: str
) -> webob.Response:
    req = webob.Request.blank('/', method=method, headers=headers)
    req.environ['openstack.request_id'] = 'req-1'
    if version:
        req.environ[microversion.ENVIRON_KEY] = microversion.parse_version_string(version)
    return req.get_response(wsgi.for_error(error))


def _document(error: exc.HTTPException, version: str | None = None) -> dict[str, Any]:
    response = _response(error, version)
    assert response.content_type == 'application/json'
    (document,) = response.json['errors']
    assert dict(response.json).keys() == {'errors'}
    return dict(document)


def test_before_negotiation_and_below_1_23_there_is_no_code() -> None:
    expected = {'status': 409, 'title': 'Conflict', 'detail': DETAIL, 'request_id': 'req-1'}
    assert _document(exc.HTTPConflict(DETAIL, comment='x')) == expected
    assert _document(exc.HTTPConflict(DETAIL, comment='x'), '1.22') == expected


def test_from_1_23_there_is_a_code() -> None:
    coded = exc.HTTPConflict(DETAIL, comment=error_document.CONCURRENT_UPDATE)
    assert _document(coded, '1.23')['code'] == 'placement.concurrent_update'
    assert _document(exc.HTTPConflict(DETAIL), '1.23')['code'] == 'placement.undefined_code'


def test_the_error_for_an_unsupported_version_names_the_supported_ones() -> None:
    document = _document(microversion.UnacceptableVersion('no', '1.29'))
    assert (document['min_version'], document['max_version']) == ('1.0', '1.29')


def test_404_and_405_start_with_a_general_sentence() -> None:
    assert _document(exc.HTTPNotFound())['detail'] == 'The resource could not be found.'
    assert _document(exc.HTTPNotFound(DETAIL))['detail'] == f'The resource could not be found.\n\n{DETAIL}'
    detail = _document(exc.HTTPMethodNotAllowed())['detail']
    assert detail == 'The method GET is not allowed for this resource.'


def test_the_reason_is_one_line() -> None:
    assert _document(exc.HTTPConflict('name a\nb\r already exists'))['detail'] == 'name a\\nb\\r already exists'
    assert _document(exc.HTTPNotFound('a\nb'))['detail'] == 'The resource could not be found.\n\na\\nb'


@pytest.mark.parametrize(
    ('accept', 'media_type'),
    [
        ('text/html', 'text/html'),
        ('text/html,application/xhtml+xml,*/*;q=0.8', 'text/html'),
        ('application/json, text/html', 'text/html'),
        ('application/json, text/html;q=0.9', 'application/json'),
        ('application/*', 'application/json'),
        ('*/*', 'application/json'),
        ('image/png', 'text/plain'),
        ('nonsense;;;', 'application/json'),
    ],
)
def test_the_form_is_negotiated(accept: str, media_type: str) -> None:
    assert _response(exc.HTTPConflict(DETAIL), Accept=accept).content_type == media_type


def test_html_is_escaped_and_plain_text_is_not() -> None:
    page = _response(exc.HTTPConflict(DETAIL), Accept='text/html')
    assert 'what &amp; &lt;b&gt;went&lt;/b&gt; wrong' in page.text
    assert '409 Conflict' in page.text
    assert _response(exc.HTTPConflict(DETAIL), Accept='image/png').text == f'409 Conflict\n\n{DETAIL}\n'


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
    assert detail.startswith('start')
    assert detail.endswith('end')


def test_text_that_cannot_be_encoded_is_replaced() -> None:
    assert _document(exc.HTTPConflict('a\ud800b'))['detail'] == 'a?b'
