"""Errors, operations and responses: what no request over HTTP shows. Gabbits have the rest."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import pytest
import webob
from webob import exc

from placement.web import errors, microversion, util
from placement.web.operation import ByMicroversion, Microversions, Operation, RequiresPolicy, operation
from tests.unit.test_openapi import OPERATIONS

# Errors -----------------------------------------------------------------------------------------------------------

CONFLICT = 'There was a conflict when trying to complete your request.'


def _detail(reason: str) -> Any:
    req = webob.Request.blank('/')
    req.environ['openstack.request_id'] = 'req-1'
    response = req.get_response(functools.partial(errors.respond, exc.HTTPConflict(reason)))
    return response.json['errors'][0]['detail']


def test_the_reason_is_one_line_of_text_that_can_be_encoded() -> None:
    assert _detail('name a\nb\r \ud800') == f'{CONFLICT}\n\n name a\\nb\\r ?'


def test_an_error_is_plain_text_for_other_media_types_and_has_no_body_for_head() -> None:
    respond = functools.partial(errors.respond, exc.HTTPConflict('a < b'))
    plain = webob.Request.blank('/', headers={'Accept': 'image/png'}).get_response(respond)
    assert plain.text == f'409 Conflict\n\n{CONFLICT}\n\n a < b\n'
    head = webob.Request.blank('/', method='HEAD').get_response(respond)
    assert (head.body, head.headers['Content-Length'], 'Content-Type' in head.headers) == (b'', '0', False)


def test_a_text_of_a_megabyte_is_shortened_in_the_middle() -> None:
    detail = _detail(f'start{"x" * 1_000_000}end')
    assert len(detail) < 10_000
    assert detail.startswith(f'{CONFLICT}\n\n start')
    assert detail.endswith('end')


# Operations -------------------------------------------------------------------------------------------------------


def test_windows_must_not_overlap() -> None:
    def exists(first: tuple[int, int], last: tuple[int, int] | None = None) -> Operation:
        @operation(Microversions(first, last=last))
        def show(_req: webob.Request, _context: Any) -> webob.Response:
            return webob.Response()

        return show

    with pytest.raises(ValueError, match=r'Two operations exist in 1\.6'):
        ByMicroversion(exists((1, 2), (1, 6)), exists((1, 6)))


def test_every_operation_but_the_root_checks_the_policy_last() -> None:
    for path, _method, declared in OPERATIONS:
        allowed = [isinstance(check, RequiresPolicy) for check in declared.checks]
        assert allowed == ([False] * (len(allowed) - 1) + [True] if path != '/' else [])


# Responses --------------------------------------------------------------------------------------------------------


def test_the_time_of_the_last_change_is_in_utc_and_sent_from_1_15() -> None:
    modified = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    for minor, header in ((14, None), (15, 'Fri, 02 Jan 2026 02:04:05 GMT')):
        req = webob.Request.blank('/')
        req.environ[microversion.ENVIRON_KEY] = microversion.parse_version_string(f'1.{minor}')
        for response in (
            util.json_response(req, {}, last_modified=modified),
            util.empty_response(req, 204, last_modified=modified),
        ):
            assert response.headers.get('Last-Modified') == header


@pytest.mark.parametrize(
    ('prefix', 'start'), [('', ''), ('/placement', '/placement'), ('/p/', '/p'), ('/a b', '/a%20b')]
)
def test_links_have_the_mount_prefix(prefix: str, start: str) -> None:
    environ = {'SCRIPT_NAME': prefix}
    assert util.url(environ, 'traits', 'T') == f'{start}/traits/T'
    assert util.url(environ, 'resource_classes', 'A/B C') == f'{start}/resource_classes/A%2FB%20C'
