"""The command placement-api and the module placement.wsgi, as processes of their own."""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest

from placement import release
from tests.support import keystone, preforked, servers
from tests.support.raw_http import request
from tests.support.servers import SECONDS, Server
from tests.support.waiting import wait_until


def _environment(**variables: str) -> dict[str, str]:
    """The environment of this process without settings of the service, and with warnings turned into errors."""
    # gunicorn does not close its copy of an inherited socket.
    warnings = f'{servers.STRICT_WARNINGS},ignore::ResourceWarning'
    return servers.clean_environ(**{'PYTHONWARNINGS': warnings, **variables})


def _settings(directory: pathlib.Path) -> dict[str, str]:
    return servers.settings(f'sqlite:///{directory}/placement.sqlite', directory)


def _rejects(*arguments: str, cwd: pathlib.Path, **variables: str) -> str:
    """Run placement-api, which must not start, and return the one line that it prints."""
    ended = preforked.run('placement-api', arguments, _environment(**variables), cwd)
    assert (ended.returncode, ended.stdout) == (1, '')
    (line,) = ended.stderr.splitlines()
    return line


def _run(directory: pathlib.Path, *arguments: str, **variables: str) -> contextlib.AbstractContextManager[Server]:
    return servers.ready(servers.start_api(directory, *arguments, environ=_environment(**variables)))


@pytest.fixture(scope='module')
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """placement-api --dev in an empty directory."""
    with _run(tmp_path_factory.mktemp('dev'), '--dev') as service:
        yield service


def test_dev_prints_no_warnings(dev: Server) -> None:
    text = dev.log.read_text()
    for word in ('Warning', 'WARNING', 'ERROR', 'Traceback', 'gunicorn'):
        assert word not in text


@pytest.fixture(scope='module')
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """placement-api with one worker of one thread, and the headers of CORS and of proxies."""
    directory = tmp_path_factory.mktemp('service')
    settings = {
        **_settings(directory),
        'OS_CORS__ALLOWED_ORIGIN': 'http://dashboard',
        'OS_OSLO_MIDDLEWARE__ENABLE_PROXY_HEADERS_PARSING': 'true',
    }
    with _run(directory, '--workers', '1', '--threads', '1', **settings) as service:
        yield service


def test_lines_have_one_format_with_the_id_of_the_request_and_nothing_that_its_headers_forge(service: Server) -> None:
    """Also lines of gunicorn, and of requests that no user sent: a malformed one, and a preflight of CORS."""
    forwarded = 'X-Forwarded-For: 2001:db8::7 "GET /forged" status: 200'
    responses = [
        service.send(request('GET', '/traits', b'', forwarded)),
        service.send(b'GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n'),
        service.send(request('GET', '/usages')),
        service.send(request('OPTIONS', '/traits', b'', 'Origin: http://dashboard')),
    ]
    assert [response.status for response in responses] == [200, 400, 400, 200]
    service.wait_for_line('"OPTIONS /traits" status: 200')
    log = service.log.read_text().splitlines()
    form = re.compile(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ (INFO|WARNING|ERROR) [a-z_.]+ \[.*\] \S.*')
    assert [line for line in log if not form.fullmatch(line)] == []
    lines = [line for line in log if ' status: ' in line][-4:]
    ids = [response.getheader('x-openstack-request-id') for response in responses]
    contexts = [re.search(r'\[None (\S+) (.*?)\] \S* "', line) for line in lines]
    assert [match and match[1] for match in contexts] == ids
    users = [match and match[2].startswith('admin') for match in contexts]
    assert users == [True, False, True, False]
    assert '] 2001:db8::7%20%22GET%20/forged%22%20status:%20200 "GET /traits" status: 200' in lines[0]


@pytest.mark.parametrize('sent', [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_has_just_been_forked_ends_on_a_signal(service: Server, sent: int) -> None:
    """The signal arrives before the worker handles any itself; the master starts another one."""
    for _ in range(3):
        (worker,) = service.workers()
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda worker=worker: set(service.workers()) - {worker}, pause=0)  # type: ignore[misc]
        (just_forked,) = set(service.workers()) - {worker}
        os.kill(just_forked, sent)
        service.wait_for_line(f'Worker exiting (pid: {just_forked})')
        wait_until(service.answers)


def test_the_data_can_be_in_another_directory_and_is_kept(tmp_path: pathlib.Path) -> None:
    database = tmp_path / 'my data?.sqlite'
    for status in (200, 409):
        with _run(tmp_path, '--dev', '--database', str(database)) as service:
            assert service.send(request('POST', '/resource_providers', b'{"name": "a"}')).status == status
            service.stop()
    assert database.exists()
    assert not (tmp_path / 'placement-dev.sqlite').exists()


_CHUNKED = ('Content-Type: application/json', 'Transfer-Encoding: chunked')


@pytest.mark.parametrize(
    ('request_bytes', 'status'),
    [
        (request('GET', '/' + 'x' * 1_000_000), 431),
        (request('\xff', '/'), 405),
        (request('POST', '/resource_providers', b'100001\r\n' + b' ' * 0x100001 + b'\r\n0\r\n\r\n', *_CHUNKED), 413),
        (request('POST', '/resource_providers', b'd\r\n{"name": "c1"\r\n1\r\n}\r\n0\r\n\r\n', *_CHUNKED), 200),
    ],
    ids=range(4),
)
def test_malformed_requests_leave_no_traceback(dev: Server, request_bytes: bytes, status: int) -> None:
    assert dev.send(request_bytes).status == status
    assert dev.answers()
    assert 'Traceback' not in dev.log.read_text()


def test_a_reload_reads_the_named_configuration_again_and_ignores_an_invalid_one(tmp_path: pathlib.Path) -> None:
    """The processes of the requests and of the metrics have it. An option that does not exist is reported once."""
    file, directory = tmp_path / 'any.conf', tmp_path / 'conf.d'
    directory.mkdir()
    metrics = servers.free_port()
    file.write_text(f'[metrics]\nbind = 127.0.0.1:{metrics}\n[placement_database]\nmax_retries = 1\n')
    good = (
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/db.sqlite\nsync_on_startup = true\n'
        '[api]\nauth_strategy = noauth2\nmax_request_body_size = {size}\n'
    )
    changed = directory / 'more.conf'
    changed.write_text(good.format(size=2000))
    large = request('POST', '/resource_providers', b'{"name": "a"}'.ljust(3000))
    named = ['--config-file', str(file), '--config-dir', str(directory)]
    with _run(tmp_path, '--workers', '2', *named, OS_PLACEMENT_CONFIG_DIR='/') as service:
        assert service.send(large).status == 413
        exporter = Server(service.process, service.log, f'http://127.0.0.1:{metrics}')
        wait_until(lambda: exporter.answers('/healthcheck/ready'), service.log.read_text)
        changed.write_text('[api]\nauth_strategy = nonsense\n')
        service.process.send_signal(signal.SIGHUP)
        service.wait_for_line('The previous configuration stays in use')
        assert service.send(large).status == 413
        changed.write_text(good.format(size=4000))
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: service.send(large).status != 413)
        service.stop()
    warning = f'This service does not have the option [placement_database] max_retries in {file}: '
    assert service.log.read_text().count(warning) == 1


def test_a_start_and_a_reload_ask_keystone_once_and_do_not_wait_for_it(tmp_path: pathlib.Path) -> None:
    """Workers that are started later do not ask again. No password is logged."""
    file = tmp_path / 'placement.conf'
    credentials = (
        '[keystone_authtoken]\nauth_type = password\nauth_url = {url}/v3\nusername = placement\npassword = {password}\n'
        'project_name = service\nuser_domain_name = Default\nproject_domain_name = Default\nhttp_connect_timeout = 60\n'
    )
    settings = {**_settings(tmp_path), 'OS_API__AUTH_STRATEGY': 'keystone'}
    rejected = 'Keystone rejects the user in [keystone_authtoken], so requests with a token get 503. wrong password'
    unreachable = 'Keystone cannot be asked, so requests with a token get 503. '
    with keystone.keystone() as url, socket.create_server(('127.0.0.1', 0)) as silent:
        file.write_text(credentials.format(url=url, password=keystone.WRONG_PASSWORD))
        with _run(tmp_path, '--workers', '2', '--config-file', str(file), **settings) as service:
            service.wait_for_line(rejected)
            assert service.send(request('GET', '/traits', b'', 'X-Auth-Token: good-admin')).status == 503
            ended, *_ = service.workers()
            os.kill(ended, signal.SIGTERM)
            wait_until(lambda: len(set(service.workers()) - {ended}) == 2)
            # The correct password, and a Keystone that accepts connections and never responds.
            for host in (url, f'http://127.0.0.1:{silent.getsockname()[1]}'):
                file.write_text(credentials.format(url=host, password='secret'))
                old = set(service.workers())
                service.process.send_signal(signal.SIGHUP)
                wait_until(lambda old=old: len(service.workers()) == 2 and not old & set(service.workers()))  # type: ignore[misc]
                assert service.answers()
            assert unreachable not in service.log.read_text()
            service.wait_for_line('ready: Keystone accepts the user of the service')
            # This resets the connections.
            silent.close()
            service.wait_for_line(unreachable)
    lines = service.log.read_text().splitlines()
    assert [' INFO ' in line for line in lines if 'ready' in line] == [True]
    assert [' ERROR ' in line for line in lines if rejected in line] == [True]
    assert [' WARNING ' in line for line in lines if unreachable in line] == [True]
    assert 'secret' not in '\n'.join(lines)


def test_a_worker_that_starts_while_the_policy_file_is_away_has_its_rules(tmp_path: pathlib.Path) -> None:
    """As when a configuration tool removes and writes the file, and a worker is started again in between."""
    policy = tmp_path / 'policy.yaml'
    policy.write_text('"placement:traits:list": "role:nobody"\n')
    # Of several workers, the first may be ready before the others are started.
    with _run(tmp_path, '--workers', '1', **_settings(tmp_path)) as service:
        (killed,) = service.workers()
        policy.unlink()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: set(service.workers()) - {killed})
        service.wait_until_ready()
        assert [service.send(request('GET', '/traits')).status for _ in range(3)] == [403] * 3
        assert service.send(request('GET', '/resource_providers')).status == 200


def test_a_policy_file_that_is_copied_again_and_again_stays_in_force(tmp_path: pathlib.Path) -> None:
    """While cp writes it, it is empty, and the default rules would allow the requests."""
    policy, source = tmp_path / 'policy.yaml', tmp_path / 'source.yaml'
    source.write_text('# A comment\n' * 1000 + '"admin_or_service_api": "role:nobody"\n')
    shutil.copy(source, policy)
    with _run(tmp_path, **_settings(tmp_path)) as service:
        statuses = collections.Counter[int]()
        command = f'for i in $(seq 150); do cp {source} {policy}; sleep 0.01; done'
        with subprocess.Popen(['sh', '-c', command]) as copies:
            while copies.poll() is None:
                statuses[service.send(request('GET', '/traits')).status] += 1
        assert set(statuses) == {403}
        assert statuses.total() > 20
        source.write_text('{}\n')
        shutil.copy(source, policy)
        wait_until(lambda: service.send(request('GET', '/traits')).status == 200)


def test_a_unix_socket_is_for_the_user_and_the_group(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement.conf').write_text(
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/db.sqlite\nsync_on_startup = true\n'
        f'[api]\nauth_strategy = noauth2\n[server]\nworkers = 1\nthreads = 3\n'
    )
    (tmp_path / 'placement.conf.d').mkdir()
    (tmp_path / 'placement.conf.d' / 'a.conf').write_text('[server]\nworkers = 2\n')
    environ = _environment(OS_PLACEMENT_CONFIG_DIR=str(tmp_path))
    with servers.ready(servers.start_api(tmp_path, environ=environ, unix=True)) as service:
        path = pathlib.Path(service.socket_path or '')
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        wait_until(lambda: len(service.workers()) == 2)
    text = service.log.read_text()
    version = re.escape(f'placement {release()}, configuration: {tmp_path}/placement.conf, ')
    version += re.escape(f'{tmp_path}/placement.conf.d/a.conf, ')
    assert re.search(rf'INFO placement.cmd.api .*{version}ready on unix:{path}$', text, flags=re.MULTILINE), text
    assert text.count('Booting worker') == 2


# Rejections to start ----------------------------------------------------------------------------------------------


def test_a_port_in_use_is_one_line(tmp_path: pathlib.Path) -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        address = f'127.0.0.1:{taken.getsockname()[1]}'
        line = _rejects('--dev', '--bind', address, cwd=tmp_path)
    assert line == f'placement-api: Cannot listen on {address}: Address already in use.'


def test_without_authentication_it_listens_on_the_loopback_interface_only(tmp_path: pathlib.Path) -> None:
    assert '--allow-insecure-noauth' in _rejects('--dev', '--bind', '0.0.0.0:0', cwd=tmp_path)
    database = f'sqlite:///{tmp_path}/x.sqlite'
    options = {'OS_API__AUTH_STRATEGY': 'noauth2', 'OS_PLACEMENT_DATABASE__CONNECTION': database}
    assert '--allow-insecure-noauth' in _rejects('--bind', '[::]:0', cwd=tmp_path, **options)


@pytest.mark.parametrize(
    ('arguments', 'word'),
    [
        (['--bind', 'nowhere.invalid:1'], 'nowhere.invalid'),
        (['--bind', '127.0.0.1:http'], 'port'),
        (['--database', 'x.sqlite'], '--dev'),
        (['--dev', '--bind', '127.0.0.1:0', '--database', 'missing/x.sqlite'], 'database'),
        (['--dev', '--config-file', 'placement.conf'], '--dev does not accept a configuration'),
        (['--config-file', 'missing.conf'], 'missing.conf'),
        (['--config-dir', 'missing.d'], 'missing.d'),
    ],
)
def test_invalid_arguments_are_one_line(tmp_path: pathlib.Path, arguments: list[str], word: str) -> None:
    assert word in _rejects(*arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    ('text', 'word'),
    [
        ('', 'connection'),
        ('[placement_database]\nconnection = sqlite://\n[api]\nauth_strategy = x\n', 'auth_strategy'),
        ('[placement\n', 'placement.conf'),
        ('[placement_database]\nconnection = nonsense\n', 'connection'),
        ('[placement_database]\nconnection = sqlite://\n[oslo_policy]\npolicy_file = list.yaml\n', 'list.yaml'),
    ],
)
def test_a_bad_configuration_is_one_line(tmp_path: pathlib.Path, text: str, word: str) -> None:
    (tmp_path / 'placement.conf').write_text(text)
    (tmp_path / 'list.yaml').write_text('- a\n')
    assert word in _rejects('--bind', '127.0.0.1:0', cwd=tmp_path, OS_PLACEMENT_CONFIG_DIR=str(tmp_path))


# placement.wsgi -------------------------------------------------------------------------------------------------


def _import_wsgi(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-c', program],
        check=False,
        env=_environment(**{'OS_PLACEMENT_CONFIG_DIR': '/', **variables}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_wsgi_has_an_application_in_its_namespace(tmp_path: pathlib.Path) -> None:
    # mod_wsgi and uWSGI read the dictionary of the module, so the attribute cannot be made on demand.
    ended = _import_wsgi(
        'import sys, placement.wsgi.api, webob\n'
        'application = vars(placement.wsgi.api)["application"]\n'
        'assert vars(placement.wsgi)["application"] is application\n'
        'request = webob.Request.blank("/resource_providers", headers={"X-Auth-Token": "admin"})\n'
        'response = request.get_response(application)\n'
        'print(response.status_code, "eventlet" in sys.modules)\n',
        **_settings(tmp_path),
    )
    assert ended.stdout.splitlines()[-1] == f'200 {servers.IMPORTS_EVENTLET}', ended.stderr


def test_wsgi_that_cannot_start_reports_it_in_one_line() -> None:
    ended = _import_wsgi('import placement.wsgi')
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith('placement: [placement_database] connection is not set')


@pytest.mark.parametrize('has_log', [False, True])
def test_wsgi_that_cannot_start_under_uwsgi_responds_with_500(tmp_path: pathlib.Path, has_log: bool) -> None:
    """uWSGI's module exists only in its processes. test_deployment_tools.py has the real one."""
    (tmp_path / 'uwsgi.py').touch()
    option = 'connection = nonsense' if has_log else 'max_pool_size = many'
    (tmp_path / 'placement.conf').write_text(f'[placement_database]\n{option}\n[DEFAULT]\nlog_file = {tmp_path}/log\n')
    ended = _import_wsgi(
        f'import sys; sys.path.append({str(tmp_path)!r}); import uwsgi, placement.wsgi.api, webob\n'
        'for path in ("/", "/healthcheck", "/resource_providers"):\n'
        '    response = webob.Request.blank(path).get_response(placement.wsgi.api.application)\n'
        '    (error,) = response.json["errors"]\n'
        '    assert error["request_id"] == response.headers["x-openstack-request-id"], response\n'
        '    print(response.status_code, error["detail"].splitlines()[-1])\n',
        OS_PLACEMENT_CONFIG_DIR=str(tmp_path),
    )
    assert (
        ended.stdout.splitlines()
        == ['500  The service cannot start with its configuration. The log of its start has the reason.'] * 3
    )
    reports = (tmp_path / 'log').read_text() if has_log else ended.stderr
    problem = 'connection cannot be used' if has_log else f'max_pool_size in {tmp_path}/placement.conf'
    assert reports.count(f'placement: [placement_database] {problem}') == 1
    assert reports.count('\n') == (4 if has_log else 1)
    assert ended.stderr == '' if has_log else reports
