"""The application: what each stage of the WSGI pipeline does to requests, and the schema at the start."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import webob
from oslo_config import cfg
from webob import exc

from placement import conf as configuration
from placement import deploy, exception
from placement.db import migration
from placement.web import operation
from placement.web.authentication import RequestContext
from placement.web.operation import Operation
from tests.support import applications, corruption, fixtures, servers
from tests.support.http_client import send_request
from tests.support.waiting import wait_until

Load = Callable[..., deploy.Application]


@pytest.fixture
def load(tmp_path: pathlib.Path) -> Iterator[Load]:
    """Build applications from overrides, each on a database of its own."""
    with contextlib.ExitStack() as stack:

        def build(**overrides: dict[str, Any]) -> deploy.Application:
            database = tmp_path / f'{uuid.uuid4()}.sqlite'
            fixtures.prepare(database)
            return stack.enter_context(applications.application(database, **overrides))

        yield build


@pytest.mark.parametrize('path', ['/unknown', '/resource_providers/unknown', '/allocation_candidates'])
def test_errors_do_not_wait_for_the_garbage_collector(app: Any, path: str) -> None:
    """An error refers by its traceback to everything that the request read, so it must not refer to itself."""
    gc.collect()
    gc.disable()
    try:
        assert send_request(app, 'GET', path).status_int in (400, 404)
        assert not any(isinstance(item, exc.HTTPException | exception.PlacementError) for item in gc.get_objects())
    finally:
        gc.enable()


def test_the_root_below_a_prefix_needs_no_token(app: Any) -> None:
    for path_info in ('', '/'):
        req = webob.Request.blank('/', environ={'SCRIPT_NAME': '/placement', 'PATH_INFO': path_info})
        assert req.get_response(app).status_code == 200
    req = webob.Request.blank('/', environ={'SCRIPT_NAME': '/placement', 'PATH_INFO': '//'})
    assert req.get_response(app).status_code == 401


# Paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'path',
    [
        '//resource_providers',
        '/resource_providers//inventories',
        '/traits%0A',
        '/x' * 500_000,
        '/%00',
        '/%FF',
        '/traits/%00',
        '/traits/%FF',
        '/traits/{name}',
    ],
)
def test_paths_and_names_that_cannot_exist_are_404(app: Any, path: str) -> None:
    response = send_request(app, 'GET', path)
    assert response.status_code == 404
    assert response.json['errors'][0]['title'] == 'Not Found'


def test_a_method_that_no_path_has_is_405(app: Any) -> None:
    response = send_request(app, 'BREW', '/resource_classes')
    assert (response.status_code, response.headers['Allow']) == (405, 'GET, POST')


@pytest.mark.parametrize('variable', ['RAW_URI', 'REQUEST_URI'])
def test_an_encoded_slash_is_no_separator_where_the_server_passes_the_raw_path(app: Any, variable: str) -> None:
    req = webob.Request.blank('/resource_providers/x/inventories', headers={'X-Auth-Token': 'admin'})
    req.environ[variable] = '/resource_providers/x%2finventories?a=%2F'
    assert req.get_response(app).json['errors'][0]['detail'] == 'The resource could not be found.'
    req.environ[variable] = '/resource_providers/x/inventories?a=%2F'
    detail = req.get_response(app).json['errors'][0]['detail']
    assert 'No resource provider with uuid x found' in detail


# Bodies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('length', ['x', '-1', '1.5', '0x10', '1_0', '9' * 5000])
def test_a_content_length_is_an_integer(app: Any, length: str) -> None:
    response = send_request(app, 'GET', '/', **{'Content-Length': length, 'Content-Type': 'text/plain'})
    assert response.status_code == 400
    assert 'content-length header must be an integer' in response.json['errors'][0]['detail']


@pytest.mark.parametrize('length', ['', '0'])
def test_a_request_without_a_body_needs_no_content_type(app: Any, length: str) -> None:
    """uWSGI gives an empty length to such requests."""
    assert send_request(app, 'GET', '/', **{'Content-Length': length}).status_code == 200


def _post(app: deploy.Application, body: bytes, *, chunked: bool) -> webob.Response:
    req = webob.Request.blank('/resource_providers', method='POST', content_type='application/json')
    req.headers['X-Auth-Token'] = 'admin'
    if chunked:
        req.environ.update({'wsgi.input': io.BytesIO(body), 'wsgi.input_terminated': True})
        req.environ.pop('CONTENT_LENGTH', None)
    else:
        req.body = body
    return req.get_response(app)


@pytest.mark.parametrize('chunked', [True, False])
def test_a_body_above_the_limit_is_413(load: Load, chunked: bool) -> None:
    app = load(api={'max_request_body_size': 1024})
    fits = b'{"name": "a"}'.ljust(1024)
    assert _post(app, fits, chunked=chunked).status_code == 201
    response = _post(app, fits + b' ', chunked=chunked)
    assert response.status_code == 413
    assert '1024 bytes' in response.json['errors'][0]['detail']


def test_a_large_body_is_kept_in_memory(load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    app = load()
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'missing'))
    response = _post(app, b'{"name": "a"}'.ljust(100_000), chunked=True)
    assert response.status_code == 201


class _Broken(io.BytesIO):
    def read(self, _size: int | None = -1) -> bytes:
        raise OSError('the connection is broken, or a chunk malformed')


def test_a_truncated_body_is_400(app: Any) -> None:
    req = webob.Request.blank('/resource_providers', method='POST', content_type='application/json')
    req.headers['X-Auth-Token'] = 'admin'
    req.environ.update({'wsgi.input': io.BytesIO(b'{"na'), 'CONTENT_LENGTH': '10', 'webob.is_body_seekable': False})
    assert req.get_response(app).status_code == 400
    req.environ['wsgi.input'] = _Broken()
    assert req.get_response(app).status_code == 400
    req.environ['wsgi.input_terminated'] = True
    del req.environ['CONTENT_LENGTH']
    assert req.get_response(app).status_code == 400


@pytest.mark.parametrize('coding', ['gzip, chunked', 'chunked, gzip', 'identity', ''])
def test_a_transfer_encoding_other_than_chunked_is_rejected(app: Any, coding: str) -> None:
    response = send_request(app, 'GET', '/', **{'Transfer-Encoding': coding})
    assert response.status_code == 400
    assert response.json['errors'][0]['detail'].endswith(
        '\n\n transfer-encoding header must be chunked, and nothing else'
    )
    assert send_request(app, 'GET', '/', **{'Transfer-Encoding': 'Chunked'}).status_code == 200


# The application ----------------------------------------------------------------------------------------------


def test_two_applications_in_one_process_share_nothing(load: Load, tmp_path: pathlib.Path) -> None:
    policy_file = tmp_path / 'policy.yaml'
    policy_file.write_text('"placement:resource_providers:list": ""\n')
    first = load(cors={'allowed_origin': ['*']}, placement={'policy_file': str(policy_file)})
    other = load()
    assert send_request(first, 'GET', '/resource_providers', **{'X-Auth-Token': 'user'}).status_code == 200
    assert send_request(other, 'GET', '/resource_providers', **{'X-Auth-Token': 'user'}).status_code == 403
    assert (
        send_request(first, 'GET', '/', Origin='https://dashboard.example.com').headers['Access-Control-Allow-Origin']
        == '*'
    )
    assert (
        'Access-Control-Allow-Origin'
        not in send_request(other, 'GET', '/', Origin='https://dashboard.example.com').headers
    )
    assert _post(first, b'{"name": "a"}', chunked=False).status_code == 201
    assert len(send_request(first, 'GET', '/resource_providers').json['resource_providers']) == 1
    assert send_request(other, 'GET', '/resource_providers').json['resource_providers'] == []


def test_a_policy_file_replaced_by_one_of_equal_size_and_time_is_read(load: Load, tmp_path: pathlib.Path) -> None:
    file, other = tmp_path / 'policy.yaml', tmp_path / 'other.yaml'
    for path, role in ((file, 'role_a'), (other, 'role_b')):
        path.write_text(f'"placement:resource_providers:list": "role:{role} or user_id:{role}"\n')
        os.utime(path, ns=(10**18, 10**18))
    app = load(placement={'policy_file': str(file)})
    assert send_request(app, 'GET', '/resource_providers', **{'X-Auth-Token': 'role_a'}).status_code == 200
    other.replace(file)
    wait_until(lambda: send_request(app, 'GET', '/resource_providers', **{'X-Auth-Token': 'role_a'}).status_code == 403)
    assert send_request(app, 'GET', '/resource_providers', **{'X-Auth-Token': 'role_b'}).status_code == 200


def test_proxy_headers_count_only_when_enabled(load: Load) -> None:
    headers = {
        'X-Forwarded-Proto': 'https',
        'X-Forwarded-Host': 'api.example.com',
        'X-Forwarded-Prefix': '/placement',
    }
    plain = send_request(load(), 'PUT', '/traits/CUSTOM_A', **headers)
    assert plain.headers['Location'] == 'http://localhost/traits/CUSTOM_A'
    app = load(oslo_middleware={'enable_proxy_headers_parsing': True})
    proxied = send_request(app, 'PUT', '/traits/CUSTOM_A', **headers)
    assert proxied.headers['Location'] == 'https://api.example.com/placement/traits/CUSTOM_A'


def test_libraries_of_what_is_not_configured_are_not_imported() -> None:
    unwanted = {'keystonemiddleware', 'prometheus_client'}
    code = f'import sys, placement.wsgi; sys.exit(not {unwanted}.isdisjoint(sys.modules))'
    environ = {name: value for name, value in os.environ.items() if not name.startswith('OS_')}
    environ |= {'OS_PLACEMENT_DATABASE__CONNECTION': 'sqlite://', 'OS_API__AUTH_STRATEGY': 'noauth2'}
    environ['PYTHONWARNINGS'] = servers.STRICT_WARNINGS
    command = [sys.executable, '-c', code]
    assert subprocess.run(command, check=False, env=environ, timeout=120).returncode == 0


@pytest.mark.parametrize('url', [None, 'nonsense', 'nosuch://host/db', 'postgresql+nosuch://host/db'])
def test_an_invalid_database_url_stops_the_start(url: str | None) -> None:
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': url},
        'api': {'auth_strategy': 'noauth2'},
    }
    conf = configuration.load(config_files=[], overrides=overrides)
    with pytest.raises(exception.ConfigurationInvalid, match=r'\[placement_database\] connection'):
        deploy.loadapp(conf)


def test_a_file_that_is_no_database_stops_the_start(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement.sqlite').write_text('this is not a database, not at all' * 100)
    with pytest.raises(exception.DatabaseUnavailable) as stopped:
        deploy.loadapp(conf)
    assert 'file is not a database' in stopped.value.for_operators


def _faulty(fault: Exception) -> Operation:
    def fail(_req: webob.Request, _context: RequestContext) -> webob.Response:
        raise fault

    return Operation(fail, checks=())


@pytest.mark.parametrize(
    ('fault', 'status', 'title'),
    [
        (RuntimeError('secret'), 500, 'Internal Server Error'),
        (exception.PolicyNotAuthorized(action='placement:usages'), 403, 'Forbidden'),
        (exception.DatabaseUnavailable(), 503, 'Service Unavailable'),
    ],
)
def test_exceptions_of_handlers_are_error_documents(
    load: Load, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, title: str
) -> None:
    declared = operation.Dispatcher({'/usages': {'GET': _faulty(fault)}})
    monkeypatch.setattr(operation, 'Dispatcher', lambda _declarations: declared)
    response = send_request(load(), 'GET', '/usages')
    (error,) = response.json['errors']
    assert (response.status_code, error['status'], error['title']) == (status, status, title)
    assert error['code'] == 'placement.undefined_code'
    assert error['request_id'] == response.headers['x-openstack-request-id']
    assert 'secret' not in response.text
    assert response.headers['OpenStack-API-Version'] == 'placement 1.29'
    assert response.headers['Vary'] == 'openstack-api-version'
    assert ('Retry-After' in response.headers) == (status == 503)


def test_a_query_string_that_is_too_long_is_rejected(app: Any) -> None:
    request = webob.Request.blank('/resource_providers?name=' + 'x' * 65536, headers={'X-Auth-Token': 'admin'})
    response = request.get_response(app)
    assert response.status_int == 400
    assert 'Invalid query string parameters: longer than 65536 bytes.' in response.json['errors'][0]['detail']


def test_a_schema_of_a_later_release_is_not_upgraded_and_the_service_says_so_at_its_start(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / 'placement.sqlite'
    problem = (
        'The schema of the database is at revision 999, which this release does not have (its newest is'
        f' {migration.head()}): a later release has upgraded it. Install that release here, or restore a backup from'
        ' before the upgrade.'
    )
    with applications.database(file) as db:
        db.sync()
        with db.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE placement_alembic_version SET version_num = '999'")
        for call in (db.sync, lambda: migration.check_revision(db.engine)):
            with pytest.raises(migration.NewerSchema, match=re.escape(problem)):
                call()
        options = {'sync_on_startup': False}
        deploy.loadapp(applications.options(file, placement_database=options)).db.dispose()
    assert [record.getMessage() for record in caplog.records if record.levelname == 'WARNING'] == [problem]


@pytest.mark.parametrize('is_read_only', [False, True])
def test_standard_names_of_upgraded_packages_are_inserted_at_the_start(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, is_read_only: bool
) -> None:
    """As after ``pip install -U os-traits os-resource-classes``. A read-only database stays as it is."""
    file = tmp_path / 'placement.sqlite'
    with applications.database(file) as db:
        db.sync()
    corruption.plant(
        f'sqlite:///{file}',
        "DELETE FROM placement_traits WHERE name = 'HW_CPU_X86_VMX'",
        "DELETE FROM placement_resource_classes WHERE name = 'NET_PACKET_RATE_KILOPACKET_PER_SEC'",
    )
    connection = f'sqlite:///file:{file}?mode=ro&uri=true' if is_read_only else f'sqlite:///{file}'
    options = {'sync_on_startup': False, 'connection': connection}
    app = deploy.loadapp(applications.options(file, placement_database=options))
    names = ('/traits/HW_CPU_X86_VMX', '/resource_classes/NET_PACKET_RATE_KILOPACKET_PER_SEC')
    statuses = [send_request(app, 'GET', path).status_int for path in names]
    app.db.dispose()
    assert statuses == ([404, 404] if is_read_only else [204, 200])
    warnings = [record.getMessage() for record in caplog.records if record.levelname == 'WARNING']
    reason = 'The database is read-only, so the standard names that it lacks were not inserted.'
    assert warnings == ([reason] if is_read_only else [])
