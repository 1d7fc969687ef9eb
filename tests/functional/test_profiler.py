"""Traces of osprofiler, which deployment tools enable: of requests that are signed, and of their statements."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from placement import deploy
from tests.support import applications, fixtures
from tests.support.http_client import send_request

pytest.importorskip('osprofiler', reason='the extra "profiler" is not installed')

from osprofiler import profiler, web
from osprofiler.drivers import base

KEY = 'a key of the operator'


class Driver(base.Driver):
    """Keeps the traces, as drivers for real servers send them."""

    #: All traces of this process.
    traces: list[dict[str, Any]] = []

    def notify(self, info: dict[str, Any], **_options: Any) -> None:
        if 'broken' in self.connection_str:
            raise ConnectionError('The server for traces is unavailable')
        self.traces.append({**info, 'project': self.project, 'service': self.service})

    @classmethod
    def get_name(cls) -> str:
        return 'kept'


@pytest.fixture
def application(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[deploy.Application]:
    """An application with osprofiler, which a test may set up in another way."""
    Driver.traces.clear()
    fixtures.prepare(tmp_path / 'placement.sqlite')
    options = {'enabled': True, 'hmac_keys': f'other,{KEY}', 'connection_string': 'kept://', 'trace_sqlalchemy': True}
    options |= getattr(request, 'param', {})
    with applications.application(tmp_path / 'placement.sqlite', profiler=options) as app:
        yield app
    web.disable()


def _signed(key: str) -> dict[str, str]:
    """The headers of a request that belongs to a trace."""
    profiler.init(key, base_id=str(uuid.uuid4()))
    try:
        return dict(web.get_trace_id_headers())
    finally:
        profiler.clean()


def test_a_signed_request_and_its_statements_are_traced(application: deploy.Application) -> None:
    for name, status in (('CUSTOM_A', 201), ('CUSTOM_A', 204), ('invalid', 400)):
        Driver.traces.clear()
        response = send_request(application, 'PUT', f'/traits/{name}', **_signed(KEY))
        assert response.status_code == status
        names = [trace['name'] for trace in Driver.traces]
        assert (names[0], names[-1]) == ('wsgi-start', 'wsgi-stop')
        assert names.count('db-start') == names.count('db-stop') == len(names) // 2 - 1
        assert ('db-start' in names) == (status != 400)
        assert len({trace['base_id'] for trace in Driver.traces}) == 1
        assert {(trace['project'], trace['service']) for trace in Driver.traces} == {('placement', 'placement')}
        assert Driver.traces[0]['info']['request']['path'] == f'/traits/{name}'
    # The thread has no trace after the request.
    assert profiler.get() is None


@pytest.mark.parametrize('application', [{}, {'enabled': False}], indirect=True)
@pytest.mark.parametrize('key', [None, 'guessed'])
def test_other_requests_are_not_traced(application: deploy.Application, key: str | None) -> None:
    assert send_request(application, 'PUT', '/traits/CUSTOM_A', **(_signed(key) if key else {})).status_code == 201
    assert Driver.traces == []


@pytest.mark.parametrize('application', [{'enabled': False}], indirect=True)
def test_no_request_is_traced_unless_that_is_enabled(application: deploy.Application) -> None:
    assert send_request(application, 'GET', '/traits', **_signed(KEY)).status_code == 200
    assert Driver.traces == []


@pytest.mark.parametrize('application', [{'trace_sqlalchemy': False}], indirect=True)
def test_statements_are_traced_only_if_that_is_enabled(application: deploy.Application) -> None:
    send_request(application, 'GET', '/traits', **_signed(KEY))
    assert [trace['name'] for trace in Driver.traces] == ['wsgi-start', 'wsgi-stop']


@pytest.mark.parametrize('application', [{'connection_string': 'kept://broken'}], indirect=True)
def test_a_request_does_not_fail_because_its_trace_cannot_be_sent(
    application: deploy.Application, caplog: pytest.LogCaptureFixture
) -> None:
    assert send_request(application, 'PUT', '/traits/CUSTOM_A', **_signed(KEY)).status_code == 201
    assert 'A part of a trace could not be sent: The server for traces is unavailable' in caplog.text


@pytest.mark.parametrize('application', [{'connection_string': 'nowhere://'}], indirect=True)
def test_a_service_starts_without_a_place_for_its_traces(application: deploy.Application) -> None:
    assert send_request(application, 'GET', '/traits', **_signed(KEY)).status_code == 200
