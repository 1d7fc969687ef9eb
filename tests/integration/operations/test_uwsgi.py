"""placement.wsgi:application under uWSGI, with the sample ini (etc/uwsgi/placement.ini)."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.integration import services
from tests.integration.operations import load
from tests.support import servers
from tests.support.servers import Server
from tests.support.waiting import wait_until

SAMPLE = pathlib.Path(services.ROOT) / 'etc' / 'uwsgi' / 'placement.ini'


def _ini(home: pathlib.Path, port: int, programs: pathlib.Path) -> pathlib.Path:
    """The sample with other paths, and HTTP on a port of the test instead of the protocol of uWSGI on a socket."""
    text = SAMPLE.read_text()
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


@pytest.fixture(scope='module')
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory with the database, the ini file and the log of uWSGI."""
    return tmp_path_factory.mktemp('uwsgi')


@pytest.fixture(scope='module')
def server(home: pathlib.Path) -> Iterator[Server]:
    """uWSGI, with the URL of the mount point."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    port = servers.free_port()
    # uWSGI has a virtual environment of its own; the application is in that of the tests.
    settings = servers.settings(f'sqlite:///{home}/placement.sqlite', home)
    environ = servers.clean_environ(**settings, PYTHONPATH=services.import_path())
    command = [str(programs / 'uwsgi'), '--ini', str(_ini(home, port, programs))]
    address = f'http://127.0.0.1:{port}/placement'
    with servers.running(command, address, home / 'uwsgi.log', environ) as started:
        yield started


def test_replacing_workers_one_by_one_loses_no_request(server: Server, home: pathlib.Path) -> None:
    with load.Load(server.url, keep_alive=False) as requests:
        requests.wait_for_more(40)
        (home / 'uwsgi.fifo').write_text('c')
        server.wait_for_line('chain reloading complete')
        requests.wait_for_more(40)
        requests.stop()
        load.assert_nothing_lost(server.url, requests)


def test_reloads_lose_no_request(server: Server) -> None:
    """SIGHUP, as ``systemctl reload`` sends it: the master executes itself again, and loads the ini once more."""
    with load.Load(server.url, keep_alive=False) as requests:
        for count in (1, 2, 3):
            # Of four workers. A worker that is still loading does not notice that it shall end.
            wait_until(
                lambda count=count: server.log.read_text().count('(default app)') >= 4 * count,  # type: ignore[misc]
                'the workers did not load the application',
            )
            requests.wait_for_more(40)
            if count < 3:
                server.process.send_signal(signal.SIGHUP)
        requests.stop()
        load.assert_nothing_lost(server.url, requests)


def test_the_log_of_the_start_has_no_warnings(server: Server) -> None:
    log = server.log.read_text()
    assert 'no app loaded' not in log
    assert 'Warning' not in log
    assert 'Traceback' not in log
