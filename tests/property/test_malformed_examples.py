"""Bad requests that a YAML suite cannot express: malformed lengths, bytes that are no text, unknown methods."""

from __future__ import annotations

import pytest

from placement import handler
from tests.support.raw_client import EMPTY, GOOD_HEADERS, Request, Topology

EMPTY_URL = f'/resource_providers/{EMPTY}'


def _post(topology: Topology, body: bytes, **headers: str) -> tuple[int, str]:
    """Status and detail of a POST of a provider with this body; a header given as '' is left out."""
    merged = {name: value for name, value in {**GOOD_HEADERS, **headers}.items() if value}
    answer = topology.attack(Request('POST', '/resource_providers', merged, body))
    return answer.status, answer.detail if answer.status >= 400 else ''


@pytest.mark.parametrize(
    ('length', 'phrase'),
    [
        ('ten', 'content-length header must be an integer'),
        ('1.5', 'content-length header must be an integer'),
        ('0x10', 'content-length header must be an integer'),
        ('-1', ''),
        ('9' * 400, ''),
    ],
)
def test_malformed_content_length_is_rejected(topology: Topology, length: str, phrase: str) -> None:
    status, detail = _post(topology, b'{"name": "n"}', **{'Content-Length': length})
    assert status in ({400} if phrase else {400, 413})
    assert phrase in detail


def test_body_without_content_type_is_rejected_even_on_an_unknown_path(topology: Topology) -> None:
    headers = {name: value for name, value in GOOD_HEADERS.items() if name != 'Content-Type'}
    answer = topology.attack(Request('PUT', '/nowhere', headers, b'{}'))
    assert answer.status == 400
    assert 'content-type header required when content-length > 0' in answer.detail


def test_body_beyond_the_limit_is_413(topology: Topology) -> None:
    status, detail = _post(topology, b'{"name": "' + b'n' * 1024 * 1024 + b'"}')
    assert (status, '1048576' in detail) == (413, True)


@pytest.mark.parametrize('text', [rb'\u0000', rb'\ud800', rb'\udfff\ud800'])
def test_text_that_no_database_can_hold_is_rejected(topology: Topology, text: bytes) -> None:
    status, _ = _post(topology, b'{"name": "' + text + b'"}')
    assert status == 400


@pytest.mark.parametrize('path', ['%ff', '%C0%AF', '%00', '%ED%A0%80', 'a%00b'])
def test_a_path_that_is_not_utf8_is_rejected(topology: Topology, path: str) -> None:
    assert topology.attack(Request('GET', f'/resource_providers/{path}')).status in {400, 404}


@pytest.mark.parametrize('path', ['/resource_providers', '/traits', '/usages', '/allocation_candidates'])
@pytest.mark.parametrize('query', ['%ff=1', 'name=%ff', 'project_id=%C3', 'resources=%ED%A0%80'])
def test_query_that_is_not_utf8_is_rejected(topology: Topology, path: str, query: str) -> None:
    answer = topology.attack(Request('GET', f'{path}?{query}'))
    assert (answer.status, 'Invalid query string parameters' in answer.detail) == (400, True)


@pytest.mark.parametrize('path', sorted(handler.ROUTE_DECLARATIONS))
def test_head_and_unknown_methods_are_not_allowed(topology: Topology, path: str) -> None:
    for method in ('HEAD', 'PATCH', 'OPTIONS', 'BREW'):
        answer = topology.attack(Request(method, path.replace('{', '').replace('}', '')))
        assert answer.status == 405
        assert answer.headers['allow'].split(', ') == list(handler.ROUTE_DECLARATIONS[path])


@pytest.mark.parametrize('text', ['a%0d%0aX-Evil: 1', 'a%0aX-Evil: 1', '%0d%0a%0d%0a<script>'])
def test_line_breaks_do_not_reach_the_headers(topology: Topology, text: str) -> None:
    """``send`` fails on a header with a line break; names from the path are in Location."""
    for target in (f'/traits/{text}', f'/resource_classes/{text}', f'/resource_providers/{text}', f'/{text}'):
        answer = topology.attack(Request('PUT', target, GOOD_HEADERS, b'{"name": "n"}'))
        assert answer.status in {400, 404}
        assert 'x-evil' not in answer.headers


def test_markup_in_an_html_error_is_escaped(topology: Topology) -> None:
    headers = {**GOOD_HEADERS, 'Accept': 'text/html'}
    answer = topology.attack(Request('GET', '/resource_providers/%3Cscript%3Ealert(1)', headers))
    assert answer.headers['content-type'].startswith('text/html')
    assert b'<script' not in answer.body
