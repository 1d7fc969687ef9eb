"""What a client, the log and the metrics show of a claim whose COMMIT fails, for each kind of error.

The database is SQLite; tests/integration/test_change_log_slots.py has what the log says of a transaction on servers.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from oslo_config import cfg

from placement import exception
from placement.db import change_log, commit_outcome
from tests.support import logs
from tests.support.http_client import claim_body, create_provider, send_request

CONSUMER = 'c0000001-0000-4000-8000-000000000000'

#: Makes the next COMMITs fail: the names of their errors, and whether each is done before.
FailCommits = Callable[..., None]


@pytest.fixture
def conf(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Options of an application with metrics."""
    conf.set_override('bind', '127.0.0.1:1', group='metrics')
    return conf


@pytest.fixture
def host(app: Any) -> str:
    """The uuid of a provider with 8 VCPUs; creating it has taken a slot of the change log."""
    return create_provider(app, VCPU=8)


@pytest.fixture
def fail_commits(app: Any, host: str, monkeypatch: pytest.MonkeyPatch) -> FailCommits:
    """Make the next COMMITs fail."""
    dialect = app.db.engine.dialect
    commit = dialect.do_commit

    def fail(*errors: str, done: bool = False, after: Callable[[], object] = lambda: None) -> None:
        remaining = list(errors)

        def failing(connection: Any) -> None:
            name = remaining.pop(0)
            if not remaining:
                monkeypatch.setattr(dialect, 'do_commit', commit)
            if done:
                commit(connection)
            after()
            error = sqlite3.OperationalError(f'failed with {name}')
            error.sqlite_errorname = name
            raise error

        monkeypatch.setattr(dialect, 'do_commit', failing)

    return fail


def claim(app: Any, host: str) -> Any:
    return send_request(app, 'PUT', f'/allocations/{CONSUMER}', claim_body({host: {'VCPU': 2}}), '1.28')


def used(app: Any, host: str) -> int:
    usages: dict[str, int] = send_request(app, 'GET', f'/resource_providers/{host}/usages').json['usages']
    return usages['VCPU']


def counted(app: Any) -> dict[str, float]:
    """The claims by result and the retries by reason."""
    samples = [sample for family in app.db.metrics.registry.collect() for sample in family.samples]
    names = {'placement_claims_total': 'result', 'placement_transaction_retries_total': 'reason'}
    return {
        sample.labels[names[sample.name]]: sample.value for sample in samples if sample.name in names and sample.value
    }


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_transaction_that_was_rolled_back_is_repeated_silently(
    app: Any, host: str, fail_commits: FailCommits, caplog: pytest.LogCaptureFixture
) -> None:
    fail_commits('SQLITE_LOCKED')
    assert claim(app, host).status_int == 204
    assert used(app, host) == 2
    assert counted(app) == {'OperationalError': 1, 'accepted': 1}
    assert warnings(caplog) == []


def test_a_lock_that_stays_is_a_conflict(app: Any, host: str, fail_commits: FailCommits) -> None:
    fail_commits('SQLITE_BUSY')
    response = claim(app, host)
    assert response.status_int == 409
    assert response.json['errors'][0]['code'] == 'placement.concurrent_update'
    assert used(app, host) == 0
    assert counted(app) == {'concurrent_update': 1}


@pytest.mark.parametrize('error', ['SQLITE_FULL', 'SQLITE_READONLY'])
def test_a_database_that_rejects_changes(
    app: Any, host: str, fail_commits: FailCommits, caplog: pytest.LogCaptureFixture, error: str
) -> None:
    """The claim is repeated once, on a new connection."""
    fail_commits(error)
    assert claim(app, host).status_int == 204
    assert warnings(caplog) == []
    fail_commits(error, error)
    response = send_request(app, 'DELETE', f'/allocations/{CONSUMER}')
    assert (response.status_int, response.headers['retry-after']) == (503, '2')
    assert 'The database is read-only at the moment.' in response.json['errors'][0]['detail']
    assert used(app, host) == 2
    assert counted(app) == {'accepted': 1}
    (line,) = warnings(caplog)
    assert line.startswith('The database is read-only at the moment.')


@pytest.mark.parametrize(
    ('done', 'outcome', 'counts'),
    [(True, 'committed', {'accepted': 1}), (False, 'not committed', {'RetryTransaction': 1, 'accepted': 1})],
)
def test_a_commit_whose_outcome_the_log_knows(
    app: Any,
    host: str,
    fail_commits: FailCommits,
    caplog: pytest.LogCaptureFixture,
    done: bool,
    outcome: str,
    counts: dict[str, float],
) -> None:
    fail_commits('SQLITE_IOERR', done=done)
    assert claim(app, host).status_int == 204
    assert used(app, host) == 2
    assert counted(app) == counts
    (line,) = warnings(caplog)
    assert line.startswith(f'A COMMIT failed. According to the change log, its outcome is: {outcome}. (')
    assert line.endswith('failed with SQLITE_IOERR')


def test_a_commit_that_is_known_without_its_entries(app: Any, host: str, fail_commits: FailCommits) -> None:
    """Somebody has deleted the entries of the log meanwhile. The slot has the number and the token."""

    def delete_entries() -> None:
        with contextlib.closing(sqlite3.connect(app.db.engine.url.database)) as connection, connection:
            assert connection.execute('DELETE FROM placement_change_log').rowcount

    fail_commits('SQLITE_IOERR', done=True, after=delete_entries)
    assert claim(app, host).status_int == 204
    assert used(app, host) == 2
    assert counted(app) == {'accepted': 1}


@pytest.mark.parametrize(
    ('error', 'done'),
    [
        *((error, False) for error in ('SQLITE_LOCKED', 'SQLITE_BUSY', 'SQLITE_FULL', 'SQLITE_READONLY')),
        *(('SQLITE_IOERR', done) for done in (False, True)),
    ],
)
def test_no_slot_is_lost_or_given_twice(app: Any, host: str, fail_commits: FailCommits, error: str, done: bool) -> None:
    """Otherwise the process would insert another one, or two of its transactions would conflict."""
    slots = logs.idle_slots(app.db)
    for _ in range(3):
        fail_commits(error, done=done)
        # SQLITE_BUSY is not retried.
        with contextlib.suppress(exception.ConcurrentProviderUpdate):
            app.db.write(change_log.record_names)
        app.db.write(change_log.record_names)
    assert logs.idle_slots(app.db) == slots


def test_a_commit_whose_outcome_nobody_knows(
    app: Any, host: str, fail_commits: FailCommits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has deleted the log meanwhile."""
    monkeypatch.setattr(commit_outcome, '_SETTLE_SECONDS', 0.2)

    def delete_log() -> None:
        with contextlib.closing(sqlite3.connect(app.db.engine.url.database)) as connection, connection:
            connection.execute('DELETE FROM placement_writer_slots')

    fail_commits('SQLITE_IOERR', done=True, after=delete_log)
    response = claim(app, host)
    assert (response.status_int, response.headers['retry-after']) == (503, '2')
    detail = response.json['errors'][0]['detail']
    assert 'The change may have been made, or may still be made: read before you repeat it.' in detail
    assert 'failed with' not in detail
    assert counted(app) == {'commit_unknown': 1}
    outcome, outage = warnings(caplog)
    assert 'its outcome is: unknown. (' in outcome
    assert outage.endswith('failed with SQLITE_IOERR')


def test_a_claim_that_clears_nothing(
    app: Any, host: str, fail_commits: FailCommits, caplog: pytest.LogCaptureFixture
) -> None:
    """It records nothing, so the log cannot tell what became of it."""
    slots = logs.idle_slots(app.db)
    fail_commits('SQLITE_IOERR')
    response = send_request(app, 'PUT', f'/allocations/{CONSUMER}', claim_body({}), '1.28')
    assert response.status_int == 503
    assert 'The change may have been made' in response.json['errors'][0]['detail']
    assert counted(app) == {'commit_unknown': 1}
    (outage,) = warnings(caplog)
    assert outage.endswith('failed with SQLITE_IOERR')
    assert logs.idle_slots(app.db) == slots


def test_a_search_whose_refresh_fails_at_commit(
    app: Any, host: str, fail_commits: FailCommits, caplog: pytest.LogCaptureFixture
) -> None:
    """It has changed nothing, and the next one refreshes the cache."""
    search = '/allocation_candidates?resources=VCPU:1'
    fail_commits('SQLITE_IOERR')
    response = send_request(app, 'GET', search)
    assert response.status_int == 503
    assert 'may have been made' not in response.json['errors'][0]['detail']
    assert len(warnings(caplog)) == 1
    assert host in send_request(app, 'GET', search).json['provider_summaries']


def test_a_bug_in_the_look_up(
    app: Any, host: str, fail_commits: FailCommits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not repeated, and the client gets the same as without the log."""
    calls: list[int] = []

    def fail(*_arguments: Any) -> None:
        calls.append(1)
        raise AttributeError('a bug')

    monkeypatch.setattr(commit_outcome, '_outcome', fail)
    fail_commits('SQLITE_IOERR')
    response = claim(app, host)
    assert response.status_int == 503
    assert 'The change may have been made' in response.json['errors'][0]['detail']
    assert len(calls) == 1
    assert counted(app) == {'commit_unknown': 1}
    bug, _outcome, _outage = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert bug.exc_info
