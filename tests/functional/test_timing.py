"""Metrics of the parts of a request's time, of how busy a process is, and of the processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc

from placement import deploy, exception
from placement.observability.metrics import Metrics
from placement.observability.processes import Processes, ProcessNumber
from tests.support.http_client import send_request
from tests.support.waiting import wait_until

SLOW = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i){} FROM n'


@pytest.fixture
def counted(conf: cfg.ConfigOpts) -> Iterator[deploy.Application]:
    """An application with metrics."""
    conf.set_override('bind', '127.0.0.1:1', group='metrics')
    conf.set_override('max_pool_size', 1, group='placement_database')
    conf.set_override('max_overflow', 0, group='placement_database')
    conf.set_override('pool_timeout', 1, group='placement_database')
    application = deploy.loadapp(conf)
    yield application
    application.db.dispose()


def _metrics(app: deploy.Application) -> Metrics:
    assert isinstance(app.db.metrics, Metrics)
    return app.db.metrics


def _value(app: deploy.Application, name: str, **labels: str) -> float:
    value = _metrics(app).registry.get_sample_value(name, labels)
    assert value is not None, (name, labels)
    return value


def _phase(app: deploy.Application, phase: str, route: str = '/traits') -> float:
    return _value(app, 'placement_request_phase_seconds_total', route=route, method='GET', phase=phase)


def _answered(app: deploy.Application, seconds: float = 0.1) -> None:
    app.db.metrics.request_finished('/traits', 'GET', '1.29', 200, seconds)


@pytest.mark.parametrize('fails', [False, True])
@pytest.mark.parametrize('kind', ['question', 'transaction'])
def test_the_time_of_statements_is_spent_on_the_database(counted: deploy.Application, kind: str, fails: bool) -> None:
    # The overflow is found with the row, after the slow part.
    statement = sa.text(SLOW.format(' + abs(-9223372036854775807 - 1)' if fails else ''))

    def read_slowly() -> None:
        if kind == 'question':
            counted.db.fetch_all(statement)
        else:
            with counted.db.reader() as connection:
                connection.execute(statement)

    counted.db.metrics.request_started()
    started = time.perf_counter()
    with pytest.raises((sa.exc.DBAPIError, db_exc.DBError)) if fails else contextlib.nullcontext():
        read_slowly()
    elapsed = time.perf_counter() - started
    _answered(counted)
    assert 0.5 * elapsed < _phase(counted, 'database') <= elapsed


def test_the_time_of_a_commit_is_spent_on_the_database(
    counted: deploy.Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_self: Any, connection: Any) -> None:
        time.sleep(0.1)
        connection.commit()

    monkeypatch.setattr(type(counted.db.engine.dialect), 'do_commit', slow)
    counted.db.metrics.request_started()
    with counted.db.reader() as connection:
        connection.exec_driver_sql('SELECT 1')
    _answered(counted)
    assert _phase(counted, 'database') >= 0.1


def test_waiting_for_a_connection_is_shown_while_it_lasts_and_counted_separately(counted: deploy.Application) -> None:
    def waits() -> None:
        counted.db.metrics.request_started()
        with pytest.raises(exception.DatabaseUnavailable):
            counted.db.fetch_all(sa.text('SELECT 1'))
        _answered(counted)

    metrics = _metrics(counted)
    with counted.db.engine.connect():
        waiter = threading.Thread(target=waits)
        waiter.start()
        wait_until(lambda: metrics.waiting_threads.count)
        metrics.update_saturation()
        assert _value(counted, 'placement_database_connections_waiting', pool='database') == 1
        assert _value(counted, 'placement_database_connections', pool='database', field='in_use') == 1
        assert _value(counted, 'placement_database_connections', pool='database', field='limit') == 1
        assert _value(counted, 'placement_threads_busy') == 1
        waiter.join()
    metrics.update_saturation()
    assert _value(counted, 'placement_database_connections_waiting', pool='database') == 0
    assert _value(counted, 'placement_database_connections', pool='database', field='in_use') == 0
    assert _value(counted, 'placement_threads_busy') == 0
    assert _phase(counted, 'connection') >= 0.9
    assert _phase(counted, 'database') < 0.5


def test_the_load_is_sampled_by_a_thread_and_server_errors_are_counted(counted: deploy.Application) -> None:
    registry, labels = _metrics(counted).registry, {'pool': 'database', 'field': 'in_use'}
    with counted.db.engine.connect():
        response = send_request(counted, 'GET', '/allocation_candidates?resources=VCPU:1')
        wait_until(lambda: registry.get_sample_value('placement_database_connections', labels) == 1)
    assert response.status_code == 503
    assert _value(counted, 'placement_server_errors_total', route='/allocation_candidates', status='503') == 1


def test_counts_begin_at_zero_where_the_labels_are_known(counted: deploy.Application) -> None:
    assert _value(counted, 'placement_server_errors_total', route='/allocations', status='503') == 0
    assert _value(counted, 'placement_request_duration_seconds_count', route='/allocations', method='POST') == 0
    assert _value(counted, 'placement_claims_total', result='capacity') == 0
    assert _value(counted, 'placement_transaction_retries_total', reason='DBDeadlock') == 0
    assert _value(counted, 'placement_allocation_candidates_truncated_total', limit='request_steps') == 0
    assert _phase(counted, 'keystone') == 0


def test_the_gauges_of_an_ended_process_are_removed_and_its_counts_continue(tmp_path: Path) -> None:
    take = f"""
import pathlib
from placement.observability.processes import ProcessNumber
print(ProcessNumber(pathlib.Path({str(tmp_path)!r}))())
"""
    number = ProcessNumber(tmp_path)
    assert number() == 0
    assert subprocess.check_output([sys.executable, '-c', take]) == b'1\n'
    tmp_path.joinpath('gauge_livesum_1.db').touch()
    tmp_path.joinpath('counter_1.db').touch()
    memory = {
        sample.labels['pid']: sample.labels['process']
        for family in Processes(tmp_path).collect()
        for sample in family.samples
        if sample.name == 'placement_process_resident_memory_bytes' and sample.value > 0
    }
    assert memory == {str(os.getpid()): 'exporter'}
    assert not tmp_path.joinpath('gauge_livesum_1.db').exists()
    assert tmp_path.joinpath('counter_1.db').exists()
    assert subprocess.check_output([sys.executable, '-c', take]) == b'1\n'
    assert number() == 0
