"""A database that rejects changes: a server that was demoted, that is in maintenance, or whose disk is full."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
import webob

from placement import deploy
from placement.cache.refresh import ProviderCache
from placement.db.health import TimedCheck
from placement.observability.metrics import Metrics
from placement.ops.page.application import Page
from placement.ops.page.view import Sources
from tests.integration import races
from tests.support import applications, databases, local_servers
from tests.support.event_hooks import listening
from tests.support.http_client import create_provider, send_request

READ_ONLY = 'The database is read-only'


@dataclasses.dataclass
class Demotable:
    """A database whose sessions can be made read-only, by ``demote``, and writable again, by ``promote``."""

    url: sa.URL
    demote: Callable[[], None]
    promote: Callable[[], None]


@pytest.fixture
def demotable(setting: databases.Setting, tmp_path: pathlib.Path) -> Iterator[Demotable]:
    """A database on a server of each kind."""
    makers = {'sqlite': on_sqlite, 'postgresql': on_postgresql, 'mariadb': on_mariadb}
    with makers[setting.server](tmp_path) as database:
        yield database


@contextlib.contextmanager
def on_sqlite(directory: pathlib.Path) -> Iterator[Demotable]:
    """A file that new connections cannot change. Root may write to a file without permission."""
    modes = ['OFF']

    def set_up(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
        connection.cursor().execute(f'PRAGMA query_only = {modes[-1]}')

    url = sa.make_url(f'sqlite:///{directory}/placement.sqlite')
    with listening(sa.pool.Pool, 'connect', set_up):
        yield Demotable(url, lambda: modes.append('ON'), lambda: modes.append('OFF'))


@contextlib.contextmanager
def on_postgresql(_directory: pathlib.Path) -> Iterator[Demotable]:
    """A database of which new sessions are read-only, and existing ones stay as they are."""
    administrator = databases.server_url('postgresql')
    with databases.fresh(administrator) as url:
        option = f'ALTER DATABASE {url.database} SET default_transaction_read_only'
        yield Demotable(
            url,
            lambda: databases.execute(administrator, f'{option} = on'),
            lambda: databases.execute(administrator, f'{option} = off'),
        )


@contextlib.contextmanager
def on_mariadb(_directory: pathlib.Path) -> Iterator[Demotable]:
    """A server of its own, as the option applies to all databases, and an account that may not ignore the option."""
    with local_servers.running('mariadb') as server, databases.fresh(server.url) as url:
        databases.execute(server.url, "CREATE USER placement@'%'")
        databases.execute(server.url, f"GRANT ALL ON {url.database}.* TO placement@'%'")
        yield Demotable(
            url.set(username='placement'),
            lambda: databases.execute(server.url, 'SET GLOBAL read_only = ON'),
            lambda: databases.execute(server.url, 'SET GLOBAL read_only = OFF'),
        )


def claim(app: deploy.Application, host: str) -> tuple[int, str | None]:
    """Claim a unit for a new consumer; return the status and Retry-After."""
    response = send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', races.claim([host], None))
    return response.status_int, response.headers.get('Retry-After')


def readiness(app: deploy.Application) -> tuple[int, str]:
    """Return the status and the text of the readiness check."""
    response = send_request(app, 'GET', '/healthcheck/ready')
    return response.status_int, response.text.strip()


def shown_as_read_only(app: deploy.Application) -> tuple[float | None, bool, bool]:
    """Return the metric, and whether the views Health and Overview of a page with the metrics of the service say it.

    The page has a database of its own, which has changed nothing.
    """
    assert isinstance(app.db.metrics, Metrics)
    registry = app.db.metrics.registry
    conf = applications.options(app.db.engine.url)
    with applications.database(app.db.engine.url) as db:
        page = Page(Sources(conf, db, ProviderCache(db), TimedCheck(db), metrics=registry))
        health, overview = (
            webob.Request.blank(f'{path}?format=json').get_response(page).json for path in ('/health', '/')
        )
    shown = (health['database']['read_only'], overview['problems']['database_read_only'])
    return registry.get_sample_value('placement_database_read_only'), *shown


@databases.EVERYWHERE
def test_a_read_only_database_rejects_writes_and_answers_reads(
    demotable: Demotable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successful read does not end the outage, whenever it happens. The metrics and the page show it."""
    monkeypatch.setattr('placement.db.availability._QUIET_SECONDS', 0.0)
    options = {'healthcheck': {'path': '/healthcheck'}, 'metrics': {'bind': '127.0.0.1:9178'}}
    with applications.application(demotable.url, **options) as app:
        host = create_provider(app, VCPU=100)
        assert claim(app, host) == (204, None)
        assert shown_as_read_only(app) == (0, False, False)
        demotable.demote()
        # A connection from before that would not know.
        app.db.engine.dispose()
        caplog.clear()
        assert [claim(app, host) for _ in range(10)] == [(503, '2')] * 10
        assert send_request(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': 1}
        search = send_request(app, 'GET', '/allocation_candidates?resources=VCPU:1')
        assert list(search.json['provider_summaries']) == [host]
        assert readiness(app) == (200, f'{READ_ONLY}.')
        lines = [record.getMessage() for record in caplog.records if record.levelname == 'ERROR']
        assert len(lines) == 1, lines
        assert lines[0].startswith(READ_ONLY)
        assert not [record for record in caplog.records if record.exc_info]
        # After the log was read, because the database of the page has an outage of its own.
        assert shown_as_read_only(app) == (1, True, True)
        demotable.promote()
        # A success directly after a failure does not end the outage either.
        monkeypatch.setattr('placement.db.availability._QUIET_SECONDS', 3600.0)
        assert [claim(app, host) for _ in range(10)] == [(204, None)] * 10
        assert readiness(app) == (200, f'{READ_ONLY}.')
        monkeypatch.setattr('placement.db.availability._QUIET_SECONDS', 0.0)
        assert claim(app, host) == (204, None)
        assert readiness(app) == (200, 'OK')
        assert shown_as_read_only(app) == (0, False, False)


@databases.EVERYWHERE
def test_no_connection_to_a_demoted_server_is_used_again(demotable: Demotable) -> None:
    """PostgreSQL and SQLite keep such a connection read-only when new ones are not, as after a failover."""
    opened: list[sa.engine.interfaces.DBAPIConnection] = []
    closed: list[sa.engine.interfaces.DBAPIConnection] = []
    with applications.application(demotable.url, placement_database={'max_pool_size': 4}) as app:
        host = create_provider(app, VCPU=100)
        demotable.demote()
        app.db.engine.dispose()
        sa.event.listen(app.db.engine, 'connect', lambda connection, _record: opened.append(connection))
        sa.event.listen(app.db.engine, 'close', lambda connection, _record: closed.append(connection))
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(app.db.reader())
        assert len(opened) == 4
        demoted = list(opened)
        if demotable.url.get_backend_name() == 'mysql':
            assert claim(app, host) == (503, '2')
            demotable.promote()
        else:
            demotable.promote()
        # The first one finds out, and is retried on a connection to the new primary.
        assert claim(app, host) == (204, None)
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(app.db.reader())
        assert all(any(connection is other for other in closed) for connection in demoted)


@databases.ON_MARIADB
def test_a_server_that_was_demoted_before_a_commit_rolls_back(
    demotable: Demotable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence for ``errors.ERRORS``: it checks the option at COMMIT, too."""
    failures: list[Exception] = []
    with applications.application(demotable.url) as app:
        host = create_provider(app, VCPU=100)
        assert claim(app, host) == (204, None)
        commit = app.db.engine.dialect.do_commit

        def demote_and_commit(connection: sa.PoolProxiedConnection) -> None:
            monkeypatch.undo()
            demotable.demote()
            try:
                commit(connection)
            except Exception as error:
                failures.append(error)
                raise

        monkeypatch.setattr(app.db.engine.dialect, 'do_commit', demote_and_commit)
        assert claim(app, host) == (503, '2')
        assert [error.args[0] for error in failures] == [1290]
        demotable.promote()
        assert send_request(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': 1}
        assert claim(app, host) == (204, None)


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A directory on a file system of 3 MB. SQLite notices only at COMMIT that the disk is full."""
    mounted = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', tmp_path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f'no file system can be mounted here: {mounted.stderr.decode()}')
    yield tmp_path
    subprocess.run(['umount', '--lazy', tmp_path], check=True)


@pytest.mark.parametrize(
    ('idle', 'reason', 'statuses'),
    [
        (
            False,
            'The database is read-only at the moment. (sqlite3.OperationalError) database or disk is full',
            (200, 503),
        ),
        # Without any connection, the files beside the database do not exist, and even readers have to create them.
        (True, 'The database is not available at the moment. (sqlite3.OperationalError) disk I/O error', (503, 503)),
    ],
)
def test_a_full_disk_below_sqlite_is_one_line(
    small_disk: pathlib.Path, idle: bool, reason: str, statuses: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with applications.application(small_disk / 'placement.sqlite') as app:
        host = create_provider(app, VCPU=100)
        if idle:
            app.db.dispose()
        full = small_disk / 'full'
        with contextlib.suppress(OSError), full.open('wb', buffering=0) as file:
            while True:
                file.write(b'0' * 1024)
        caplog.clear()
        for _ in range(10):
            assert send_request(app, 'GET', f'/resource_providers/{host}/usages').status_int == statuses[0]
            assert claim(app, host) == (statuses[1], '2')
        assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == [reason]
        full.unlink()
        assert claim(app, host) == (204, None)
        assert app.db.fetch_all(sa.text('SELECT used FROM placement_inventories')) == [(1,)]


@databases.ON_MARIADB
@pytest.mark.parametrize('number', [1021, 1114, 1836])
def test_a_full_disk_is_reported_as_read_only(database: sa.URL, number: int) -> None:
    with applications.application(database) as app:
        host = create_provider(app, VCPU=100)
        databases.execute(
            database,
            'CREATE TRIGGER full_disk BEFORE INSERT ON placement_allocations FOR EACH ROW'
            f" SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'full'",
        )
        try:
            assert claim(app, host) == (503, '2')
        finally:
            databases.execute(database, 'DROP TRIGGER full_disk')
        assert claim(app, host) == (204, None)
