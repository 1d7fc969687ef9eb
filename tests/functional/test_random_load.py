"""A random load notices faults of a service: callers in one thread, whose requests reach the application directly."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement import capacity, deploy
from placement.claims import usage
from tests.support.history import check, load
from tests.support.history.client import MICROVERSION, Reply
from tests.support.http_client import send_request

pytestmark = pytest.mark.usefixtures('every_microversion')

#: Sends a request, and returns status and body.
Send = Callable[..., tuple[int, Any]]


class _Client:
    """In place of a client that has connections."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def request(self, method: str, path: str, body: Any = None, *, version: str = MICROVERSION) -> Reply:
        start = time.monotonic()
        status, shown = self._send(method, path, body, version)
        return Reply(status, shown, start, time.monotonic())

    def close(self) -> None:
        """There is no connection."""


def _violations(app: deploy.Application, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any]) -> list[str]:
    """Those of some hundred requests.

    :param fault: gets the application, a function that sends a request, and the request. It does what is wrong.
    """

    def send(*request: Any) -> tuple[int, Any]:
        response = send_request(app, *request)
        return response.status_int, response.json if response.body else None

    faulty = _Client(functools.partial(fault, app, send))
    for module in (load, check):
        monkeypatch.setattr(module, 'Client', lambda *_args, **_options: faulty)
    started = load.Load.start([''], clients=0)
    callers = [started.add_caller(number, seed=0) for number in range(3)]
    for _ in range(100):
        for caller in callers:
            caller.step()
    return check.violations(started, [app.db.engine.url.render_as_string()])


def _none(_app: deploy.Application, send: Send, *request: Any) -> tuple[int, Any]:
    return send(*request)


def _lost_claim(_app: deploy.Application, send: Send, method: str, path: str, body: Any, *rest: Any) -> tuple[int, Any]:
    if method == 'PUT' and path.startswith('/allocations/') and len(body['allocations']) == 3:
        return 204, None
    return send(method, path, body, *rest)


def _half_reading(_app: deploy.Application, send: Send, method: str, path: str, *rest: Any) -> tuple[int, Any]:
    status, shown = send(method, path, *rest)
    if method == 'GET' and path.startswith('/allocations/') and len(shown['allocations']) > 1:
        shown['allocations'].popitem()
    return status, shown


def _lost_move(_app: deploy.Application, send: Send, method: str, path: str, body: Any, *rest: Any) -> tuple[int, Any]:
    before = send('GET', path, None)[1] if body and 'parent_provider_uuid' in body and method == 'PUT' else None
    status, shown = send(method, path, body, *rest)
    if before and status == 200:
        send(method, path, {**body, 'parent_provider_uuid': before['parent_provider_uuid']}, *rest)
    return status, shown


def _lost_release(app: deploy.Application, send: Send, method: str, *rest: Any) -> tuple[int, Any]:
    status, shown = send(method, *rest)
    if method == 'DELETE' and status == 204:
        with app.db.engine.begin() as connection:
            connection.execute(sa.text('UPDATE placement_inventories SET used = used + 1 WHERE id = 5'))
    return status, shown


@pytest.mark.parametrize(
    ('fault', 'sentence'),
    [
        (_none, None),
        (_lost_claim, 'the accepted writes make it'),
        (_half_reading, 'nobody wrote'),
        (_lost_move, 'the accepted moves make it'),
        (_lost_release, 'are not the sums of'),
        (_lost_release, 'sum of the allocations'),
    ],
)
def test_faults_are_noticed(
    app: deploy.Application, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any], sentence: str | None
) -> None:
    violations = _violations(app, monkeypatch, fault)
    if sentence is None:
        assert violations == []
    else:
        assert any(sentence in violation for violation in violations), violations


@pytest.mark.parametrize(('units', 'sentence'), [(1, 'held at once'), (-1, 'rejected, although they fit')])
def test_a_wrong_capacity_is_noticed(
    app: deploy.Application, monkeypatch: pytest.MonkeyPatch, units: int, sentence: str
) -> None:
    limit = capacity.capacity_limit
    monkeypatch.setattr(capacity, 'capacity_limit', lambda inventory: limit(inventory) + units)
    usage._rule.cache_clear()
    try:
        violations = _violations(app, monkeypatch, _none)
    finally:
        usage._rule.cache_clear()
    assert any(sentence in violation for violation in violations), violations
