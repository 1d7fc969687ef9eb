"""A random load notices faults of a service: callers in one thread, whose requests reach the application directly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from placement import capacity, deploy
from placement.claims import usage
from placement.db import tables
from tests.support.history import check, client, load
from tests.support.http_client import send_request

pytestmark = pytest.mark.usefixtures('every_microversion')

#: Sends a request, and returns status and body.
Send = Callable[..., tuple[int, Any]]


def _violations(app: deploy.Application, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any]) -> list[str]:
    """Those of some hundred requests.

    :param fault: gets a function that sends a request, and the request. It does what is wrong.
    """

    def send(*request: Any) -> tuple[int, Any]:
        response = send_request(app, *request)
        return response.status_int, response.json if response.body else None

    class Client(client.Client):
        def request(
            self, method: str, path: str, body: Any = None, *, version: str = client.MICROVERSION
        ) -> client.Reply:
            start = time.monotonic()
            status, shown = fault(send, method, path, body, version)
            return client.Reply(status, shown, start, time.monotonic())

    for module in (load, check):
        monkeypatch.setattr(module, 'Client', Client)
    faulty = load.Load.create([''])
    callers = [faulty.add_caller(number) for number in range(3)]
    for _ in range(100):
        for caller in callers:
            caller.step()
    return check.violations(faulty)


def _lost_claim(send: Send, method: str, path: str, body: Any, version: str) -> tuple[int, Any]:
    if method == 'PUT' and path.startswith('/allocations/') and len(body['allocations']) == 3:
        return 204, None
    return send(method, path, body, version)


def _half_reading(send: Send, method: str, path: str, *rest: Any) -> tuple[int, Any]:
    status, shown = send(method, path, *rest)
    if method == 'GET' and path.startswith('/allocations/') and len(shown['allocations']) > 1:
        shown['allocations'].popitem()
    return status, shown


def _lost_move(send: Send, method: str, path: str, body: Any, version: str) -> tuple[int, Any]:
    before = send('GET', path, None)[1] if body and 'parent_provider_uuid' in body and method == 'PUT' else None
    status, shown = send(method, path, body, version)
    if before and status == 200:
        send(method, path, {**body, 'parent_provider_uuid': before['parent_provider_uuid']}, version)
    return status, shown


@pytest.mark.parametrize(
    ('fault', 'sentence'),
    [
        (_lost_claim, 'the accepted writes make it'),
        (_half_reading, 'nobody wrote'),
        (_lost_move, 'the accepted moves make it'),
    ],
)
def test_faults_are_noticed(
    app: deploy.Application, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any], sentence: str
) -> None:
    violations = _violations(app, monkeypatch, fault)
    assert any(sentence in violation for violation in violations), violations


@pytest.mark.parametrize(('units', 'sentence'), [(1, 'held at once'), (-1, 'rejected, although they fit')])
def test_a_wrong_capacity_is_noticed(
    app: deploy.Application, monkeypatch: pytest.MonkeyPatch, units: int, sentence: str
) -> None:
    limit = capacity.capacity_limit
    monkeypatch.setattr(capacity, 'capacity_limit', lambda inventory: limit(inventory) + units)
    monkeypatch.setattr(tables, 'CAPACITY_LIMIT', tables.CAPACITY_LIMIT + units)
    usage._rule.cache_clear()
    try:
        violations = _violations(app, monkeypatch, lambda send, *request: send(*request))
    finally:
        usage._rule.cache_clear()
    assert any(sentence in violation for violation in violations), violations
