"""Operations: the checks of a request before its handler is called, their order, and the errors."""

from __future__ import annotations

from typing import Any

import pytest
import webob

from placement import exception, handler
from placement.web import context, microversion
from placement.web.error_mapping import ErrorMapping, FaultHandler
from placement.web.operation import (
    JSON,
    ByMicroversion,
    Check,
    JsonBody,
    Microversions,
    Operation,
    RequiresPolicy,
    operation,
)


class Caller:
    """A context that may do nothing, or everything."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def can(self, rule: str, _target: object) -> None:
        if not self._allowed:
            raise exception.PolicyNotAuthorized(action=rule)


def _show(*checks: Check, text: str = 'reached') -> Operation:
    @operation(*checks)
    def show(_req: webob.Request, _context: Any, **_path: str) -> webob.Response:
        return webob.Response(text)

    return show


def _send(
    app: Operation | ByMicroversion, version: str = '1.29', allowed: bool = True, path: str = '/', **environ: str
) -> webob.Response:
    req = webob.Request.blank(path, environ=environ, headers={microversion.HEADER: f'placement {version}'})
    req.environ[context.ENVIRON_KEY] = Caller(allowed)
    req.environ['wsgiorg.routing_args'] = ((), {'resource_class': 'V\u00c4'})
    return req.get_response(FaultHandler(app, newest='1.39'))


def test_a_caller_without_permission_is_rejected() -> None:
    assert _send(_show(RequiresPolicy('placement:traits:list')), allowed=False).status_int == 403


def test_checks_are_made_in_the_order_in_which_they_are_named() -> None:
    window_first = _show(Microversions((1, 1)), JsonBody(), RequiresPolicy('x'))
    media_first = _show(JsonBody(), Microversions((1, 1)), RequiresPolicy('x'))
    assert _send(window_first, version='1.0', allowed=False, CONTENT_TYPE='text/plain').status_int == 404
    assert _send(media_first, version='1.0', allowed=False, CONTENT_TYPE='text/plain').status_int == 415
    assert _send(media_first, version='1.0', allowed=False, CONTENT_TYPE=JSON).status_int == 404


def test_each_request_gets_the_operation_of_its_window() -> None:
    both = ByMicroversion(
        _show(Microversions((1, 2), last=(1, 6)), text='old'), _show(Microversions((1, 7)), text='new')
    )
    assert [_send(both, version).text for version in ('1.2', '1.6', '1.7', '1.29')] == ['old', 'old', 'new', 'new']
    assert _send(both, '1.1').status_int == 404


def test_the_error_outside_of_the_window_can_be_chosen() -> None:
    assert _send(_show(Microversions((1, 5), otherwise=405)), '1.4').status_int == 405


def test_windows_must_not_overlap() -> None:
    with pytest.raises(ValueError, match=r'Two operations exist in 1\.6'):
        ByMicroversion(_show(Microversions((1, 2), last=(1, 6))), _show(Microversions((1, 6))))


def test_errors_name_the_variables_of_the_path() -> None:
    @operation(failures=(ErrorMapping(exception.InventoryNotFound, 'no {resource_class} here'),))
    def fail(_req: webob.Request, _context: Any, **_path: str) -> webob.Response:
        raise exception.InventoryNotFound(resource_class='other', uuid='u')

    response = _send(fail)
    assert response.status_int == 404
    assert response.json['errors'][0]['detail'].endswith('no V\u00c4 here')


def test_every_operation_but_the_root_checks_the_policy_last() -> None:
    for path, methods in handler.ROUTE_DECLARATIONS.items():
        for by_version in methods.values():
            for declared in by_version.operations:
                allowed = [isinstance(check, RequiresPolicy) for check in declared.checks]
                assert allowed == ([False] * (len(allowed) - 1) + [True] if path != '/' else [])
