"""The log: one line per request, in which a client cannot inject anything, and a warning of over-commitment."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import webob

from tests.support.applications import NEWEST_MICROVERSION
from tests.support.http_client import claim_body, create_provider, demand

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The lines logged so far."""
    caplog.set_level(logging.INFO, 'placement.requestlog')
    return lambda: [record.getMessage() for record in caplog.records if record.name == 'placement.requestlog']


def _send(app: Any, path: str, method: str = 'GET', token: str | None = 'admin', **environ: str) -> webob.Response:
    req = webob.Request.blank(path, method=method, environ={'REMOTE_ADDR': '192.0.2.1', **environ})
    if token is not None:
        req.headers['X-Auth-Token'] = token
    return req.get_response(app)


def test_a_line_has_the_request_and_the_status(app: Any, lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    response = _send(app, '/resource_providers?name=a', HTTP_OPENSTACK_API_VERSION='placement 1.4')
    (line,) = lines()
    assert re.fullmatch(
        r'192\.0\.2\.1 "GET /resource_providers\?name=a" status: 200 len: (\d+) microversion: 1\.4 time: \d+\.\d{6}',
        line,
    )
    assert f'len: {response.content_length} ' in line
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_the_line_of_a_search_has_the_number_of_candidates(app: Any, lines: Lines) -> None:
    _send(app, '/allocation_candidates?resources=VCPU:1', HTTP_OPENSTACK_API_VERSION='placement 1.10')
    _send(app, '/allocation_candidates?resources=VCPU:0', HTTP_OPENSTACK_API_VERSION='placement 1.10')
    empty, invalid = lines()
    assert re.search(r' status: 200 .* time: \d+\.\d{6} candidates: 0$', empty)
    assert re.search(r' status: 400 .* time: \d+\.\d{6}$', invalid)


def test_rejections_are_logged_too(app: Any, lines: Lines) -> None:
    _send(app, '/traits', token=None)
    _send(app, '/resource_providers', token='user')
    _send(app, '/nowhere')
    _send(app, '/traits', 'HEAD')
    assert [re.findall('"(.*)" status: (...) ', line) for line in lines()] == [
        [('GET /traits', '401')],
        [('GET /resource_providers', '403')],
        [('GET /nowhere', '404')],
        [('HEAD /traits', '405')],
    ]


@pytest.mark.parametrize(
    ('asked', 'status', 'logged', 'advice'),
    [
        ('1.30', 406, '1.30', 'set [placement] max_microversion = 1.30 or newer'),
        ('1.99', 406, '1.99', f'this release has 1.0 to {NEWEST_MICROVERSION}'),
        ('-1.0', 406, '-1.0', f'this release has 1.0 to {NEWEST_MICROVERSION}'),
        ('1.x"\n', 400, '1.x%22', None),
    ],
)
def test_a_microversion_that_is_not_served_is_logged_with_what_allows_it(
    app: Any, lines: Lines, caplog: pytest.LogCaptureFixture, asked: str, status: int, logged: str, advice: str | None
) -> None:
    caplog.set_level(logging.INFO, 'placement.web.error_responses')
    response = _send(app, '/traits', HTTP_OPENSTACK_API_VERSION=f'placement {asked}')
    assert response.status_int == status
    (line,) = lines()
    assert f' status: {status} len: {response.content_length} microversion: {logged} time: ' in line
    messages = [record.getMessage() for record in caplog.records if record.name == 'placement.web.error_responses']
    assert messages == ([f'The microversion of the request is not served: {advice}.'] if advice else [])


def test_a_request_cannot_forge_a_line(app: Any, lines: Lines) -> None:
    _send(app, '/a%0Ab%22%1b', 'GE\nT', QUERY_STRING='x=\r\n"')
    (line,) = lines()
    assert '"GE%0AT /a%0Ab%22%1B?x=%0D%0A%22"' in line


def test_a_line_has_a_bounded_length_and_no_token(app: Any, lines: Lines) -> None:
    _send(app, '/' + 'x' * 100_000, token='secret')
    (line,) = lines()
    assert len(line) < 3000
    assert 'secret' not in line


def test_an_inventory_below_what_is_used_is_a_warning(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    host = create_provider(app, VCPU=10)
    demand(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 5}}))
    path = f'/resource_providers/{host}/inventories'
    for generation, total in ((2, 5), (3, 4)):
        records = {'VCPU': {'total': total}, 'DISK_GB': {'total': 1}}
        demand(app, 'PUT', path, {'resource_provider_generation': generation, 'inventories': records})
    warnings = [record.getMessage() for record in caplog.records if record.name == 'placement.objects.inventory']
    assert warnings == [f'Resource provider {host} is now over-committed: VCPU (5 used of 4)']
