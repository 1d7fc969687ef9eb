"""placement.wsgi:application under uWSGI, with the sample ini (etc/uwsgi/placement.ini)."""

from __future__ import annotations

import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration import services
from tests.integration.operations import load, placement_server
from tests.support import servers
from tests.support.waiting import wait_until


@pytest.fixture(scope='module')
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory with the configuration, the ini file and the log of uWSGI."""
    return placement_server.write_configuration(tmp_path_factory.mktemp('uwsgi'))


@pytest.fixture(scope='module')
def server(home: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The URL of the mount point, and the master process."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    port = servers.free_port()
    # uWSGI has a virtual environment of its own; the application is in that of the tests.
    environ = placement_server.environ(home, PYTHONPATH=services.import_path())
    command = [str(programs / 'uwsgi'), '--ini', str(placement_server.uwsgi_ini(home, port, programs))]
    address = f'http://127.0.0.1:{port}/placement'
    with services.running(command, address, home / 'uwsgi.log', environ) as process:
        yield address, process


@pytest.fixture(scope='module')
def url(server: tuple[str, subprocess.Popen[bytes]]) -> str:
    """The URL of the mount point."""
    return server[0]


def test_replacing_workers_one_by_one_loses_no_request(url: str, home: pathlib.Path) -> None:
    log = home / 'uwsgi.log'
    with load.Load(url, keep_alive=False) as requests:
        requests.wait_for_more(40)
        (home / 'uwsgi.fifo').write_text('c')
        wait_until(lambda: 'chain reloading complete' in log.read_text(), 'the workers were not replaced')
        requests.wait_for_more(40)
        requests.stop()
        load.assert_nothing_lost(url, requests)


def test_reloads_lose_no_request(server: tuple[str, subprocess.Popen[bytes]], home: pathlib.Path) -> None:
    """SIGHUP, as ``systemctl reload`` sends it: the master executes itself again, and loads the ini once more."""
    url, master = server
    log = home / 'uwsgi.log'
    with load.Load(url, keep_alive=False) as requests:
        for count in (1, 2, 3):
            # Of four workers. A worker that is still loading does not notice that it shall end.
            wait_until(
                lambda count=count: log.read_text().count('(default app)') >= 4 * count,  # type: ignore[misc]
                'the workers did not load the application',
            )
            requests.wait_for_more(40)
            if count < 3:
                master.send_signal(signal.SIGHUP)
        requests.stop()
        load.assert_nothing_lost(url, requests)


@pytest.mark.usefixtures('url')
def test_the_log_of_the_start_has_no_warnings(home: pathlib.Path) -> None:
    log = (home / 'uwsgi.log').read_text()
    assert 'no app loaded' not in log
    assert 'Warning' not in log
    assert 'Traceback' not in log
