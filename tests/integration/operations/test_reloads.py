"""Reload and restart under load, as doc/deployment.md tells: no request is lost."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import signal
import socket
import sys
import threading
import uuid
from typing import Self

import pytest
import requests

from tests.integration import services
from tests.support import servers
from tests.support.pages import ROOT
from tests.support.waiting import wait_until

HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
CLIENTS = 4
ENOUGH = 40
WORKERS = 2
#: Replaces itself by the program in its arguments, with a socket as file descriptor 3, as systemd passes it.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.close(int(sys.argv[1]))
os.environ |= {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""


class Load:
    """Clients that create one provider after another while the context lasts, or until ``stop``. None is sent twice.

    :param keep_alive: whether each client keeps its connection between requests, or opens one for each.
    """

    def __init__(self, url: str, keep_alive: bool) -> None:
        #: The number of answers by status, and of exceptions by text.
        self.outcomes: collections.Counter[str] = collections.Counter()
        #: The uuids of the providers that the server answered as created.
        self.created: set[str] = set()
        self._url = f'{url}/resource_providers'
        self._keep_alive = keep_alive
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the clients; return when each has its last answer."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        """Return once the clients have received ``count`` more answers."""
        goal = self.outcomes.total() + count
        wait_until(lambda: self.outcomes.total() >= goal, 'the answers stopped coming')

    def assert_nothing_lost(self) -> None:
        """Stop the clients. Every request succeeded, and every created provider exists."""
        self.stop()
        assert set(self.outcomes) == {'200'}, self.outcomes
        listed = requests.get(self._url, headers=HEADERS, timeout=60).json()['resource_providers']
        assert {provider['uuid'] for provider in listed} >= self.created

    def _work(self) -> None:
        with requests.Session() as session:
            while not self._stopped.is_set():
                if not self._keep_alive:
                    session.close()
                name = str(uuid.uuid4())
                body = {'name': name, 'uuid': name}
                try:
                    outcome = str(session.post(self._url, json=body, headers=HEADERS, timeout=60).status_code)
                except requests.RequestException as error:
                    outcome = f'{type(error).__name__}: {error}'
                self.outcomes[outcome] += 1
                if outcome == '200':
                    self.created.add(name)


# placement-api ---------------------------------------------------------------------------------------------


def _serving_on(listener: socket.socket, directory: pathlib.Path) -> contextlib.AbstractContextManager[servers.Server]:
    """Run the service on a listening socket."""
    host, port = listener.getsockname()
    program = [servers.PROGRAM, f'--workers={WORKERS}']
    command = [sys.executable, '-c', HAND_OVER, str(listener.fileno()), *program]
    environ = servers.clean_environ(**servers.settings(f'sqlite:///{directory}/placement.sqlite', directory))
    log = directory / 'placement-api.log'
    return servers.ready(servers.start(command, f'http://{host}:{port}', log, environ, (listener.fileno(),)))


def _reload(server: servers.Server) -> None:
    """Replace the workers, and wait until the old ones have ended."""
    ended = server.log.read_text().count('Worker exiting')
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log.read_text().count('Worker exiting') == ended + WORKERS, server.tail)


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_reload_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    database = f'sqlite:///{tmp_path}/placement.sqlite'
    with (
        servers.serving(database, tmp_path, workers=WORKERS, metrics=False) as server,
        Load(server.url, keep_alive) as load,
    ):
        for _ in range(3):
            load.wait_for_more(ENOUGH)
            _reload(server)
            load.wait_for_more(ENOUGH)
        load.assert_nothing_lost()


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_restart_with_a_socket_that_stays_open_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    """As with placement-api.socket: the socket stays open during the restart, and requests wait in its queue."""
    with socket.create_server(('127.0.0.1', 0), backlog=128) as listener, contextlib.ExitStack() as first_life:
        url = f'http://127.0.0.1:{listener.getsockname()[1]}'
        first_life.enter_context(_serving_on(listener, tmp_path))
        with Load(url, keep_alive) as load:
            load.wait_for_more(ENOUGH)
            first_life.close()
            with _serving_on(listener, tmp_path):
                load.wait_for_more(ENOUGH)
                load.assert_nothing_lost()


# uWSGI, with the sample of its configuration ------------------------------------------------------------------


def _ini(home: pathlib.Path, port: int, programs: pathlib.Path) -> pathlib.Path:
    """The sample with other paths, and HTTP on a port of the test instead of the protocol of uWSGI on a socket."""
    text = (ROOT / 'etc' / 'uwsgi' / 'placement.ini').read_text()
    for sample, ours in (
        ('socket = /run/placement/uwsgi.sock\n', f'http-socket = 127.0.0.1:{port}\n'),
        ('chown-socket = placement:www-data\nchmod-socket = 660\n', ''),
        ('/run/placement/uwsgi.fifo', f'{home}/uwsgi.fifo'),
        ('/opt/placement/bin/python', f'{programs}/python'),
    ):
        assert text.count(sample) == 1, sample
        text = text.replace(sample, ours)
    home.joinpath('placement.ini').write_text(text)
    return home / 'placement.ini'


def test_reloads_of_uwsgi_lose_no_request(tmp_path: pathlib.Path) -> None:
    """Its workers are replaced one by one, and all at once after SIGHUP, as ``systemctl reload`` sends it."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    port = servers.free_port()
    # uWSGI has a virtual environment of its own; the application is in that of the tests.
    settings = servers.settings(f'sqlite:///{tmp_path}/placement.sqlite', tmp_path)
    environ = servers.clean_environ(**settings, PYTHONPATH=services.import_path())
    command = [str(programs / 'uwsgi'), '--ini', str(_ini(tmp_path, port, programs))]
    log = tmp_path / 'uwsgi.log'

    def wait_for_loads(count: int) -> None:
        # A worker that is still loading does not notice that it shall end.
        wait_until(lambda: log.read_text().count('(default app)') >= count, 'the workers do not load the application')
        load.wait_for_more(ENOUGH)

    url = f'http://127.0.0.1:{port}/placement'
    with servers.running(command, url, log, environ) as server, Load(url, keep_alive=False) as load:
        wait_for_loads(4)
        (tmp_path / 'uwsgi.fifo').write_text('c')
        server.wait_for_line('chain reloading complete')
        wait_for_loads(8)
        server.process.send_signal(signal.SIGHUP)
        wait_for_loads(12)
        load.assert_nothing_lost()
