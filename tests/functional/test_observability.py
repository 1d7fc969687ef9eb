"""Metrics and health checks: what is counted and timed, what is answered, and that both are off unless configured."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import webob
import webob.exc
from oslo_config import cfg
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from placement import deploy, exception, observability, release
from placement.cache.refresh import ProviderCache
from placement.cmd import exporter
from placement.db import migration
from placement.db.api import Database
from placement.db.errors import RetryTransaction
from placement.db.health import TimedCheck
from placement.observability import processes
from placement.observability.metrics import Metrics
from placement.ops import background_query
from placement.ops.background_query import BackgroundQuery, refresh
from placement.ops.database_collector import DatabaseCollector
from placement.web.authentication import RequestContext
from placement.web.health_check import HealthCheck
from tests.support import applications, http_client
from tests.support.http_client import send_request
from tests.support.objects import claim, create_provider, set_aggregates
from tests.support.pages import section
from tests.support.waiting import wait_until

AGGREGATE = 'a0000000-0000-4000-8000-000000000000'

Load = Callable[..., cfg.ConfigOpts]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Make a configuration on SQLite with ``noauth2``: ``load(metrics={'bind': ...}, ...)``."""

    return functools.partial(applications.options, tmp_path / 'placement.sqlite')


@pytest.fixture
def conf(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Options of an application with metrics, and with one connection to its database."""
    conf.set_override('bind', '127.0.0.1:1', group='metrics')
    for name, value in {'max_pool_size': 1, 'max_overflow': 0, 'pool_timeout': 1}.items():
        conf.set_override(name, value, group='placement_database')
    return conf


def _values(app: deploy.Application, name: str) -> dict[tuple[str, ...], float]:
    """The samples called ``name`` by the values of their labels."""
    assert isinstance(app.db.metrics, Metrics)
    return {
        tuple(sample.labels.values()): sample.value
        for family in app.db.metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def _beyond_zero(app: deploy.Application, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in _values(app, name).items() if value}


def test_requests_are_counted_by_route_method_microversion_and_status(app: deploy.Application) -> None:
    send_request(app, 'GET', '/')
    for uuid in ('a', 'b'):
        send_request(app, 'GET', f'/resource_providers/{uuid}')
    send_request(app, 'POST', '/traits')
    # Values that clients invent are no labels.
    send_request(app, 'GET', '/no/such/thing')
    send_request(app, 'PURR', '/traits')
    webob.Request.blank('/traits').get_response(app)
    assert _values(app, 'placement_requests_total') == {
        ('/', 'GET', '1.29', '200'): 1,
        ('/resource_providers/{uuid}', 'GET', '1.29', '404'): 2,
        ('/traits', 'POST', '1.29', '405'): 1,
        ('none', 'GET', '1.29', '404'): 1,
        ('/traits', 'none', '1.29', '405'): 1,
        ('none', 'GET', 'none', '401'): 1,
    }
    assert _values(app, 'placement_request_duration_seconds_count')['/resource_providers/{uuid}', 'GET'] == 2


def test_claims_and_searches_are_counted(app: deploy.Application, conf: cfg.ConfigOpts) -> None:
    conf.set_override('max_allocation_candidates', 1, 'placement')
    provider, _other = (http_client.create_provider(app, VCPU=4) for _ in range(2))
    #: By result: the consumer, the class and the amount. The last one says that the consumer is new, too.
    claims = {
        'accepted': (1, 'VCPU', 3),
        'capacity': (2, 'VCPU', 3),
        'units': (2, 'VCPU', 2**31),
        'no_inventory': (2, 'DISK_GB', 1),
        'no_resource_class': (2, 'CUSTOM_NOTHING', 1),
        'consumer_generation': (1, 'VCPU', 1),
    }
    for consumer, name, amount in claims.values():
        body = http_client.claim_body({provider: {name: amount}})
        send_request(app, 'PUT', f'/allocations/00000000-0000-4000-8000-{consumer:012}', body)
    assert _beyond_zero(app, 'placement_claims_total') == {(result,): 1 for result in claims}
    for amount in (1, 2):
        http_client.demand(app, 'GET', f'/allocation_candidates?resources=VCPU:{amount}')
    assert _values(app, 'placement_allocation_candidates_returned_sum') == {(): 2}
    assert _values(app, 'placement_allocation_candidates_duration_seconds_count') == {(): 2}
    assert _beyond_zero(app, 'placement_allocation_candidates_truncated_total') == {('candidates',): 1}


def test_retries_are_counted(app: deploy.Application) -> None:
    attempts: list[int] = []

    def work(_connection: object) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise RetryTransaction

    app.db.write(work)
    assert sum(_values(app, 'placement_transaction_retries_total').values()) == 2


def test_without_configuration_nothing_is_counted(load: Load) -> None:
    assert not isinstance(observability.create(load()), Metrics)


# The listener of the metrics ------------------------------------------------------------------------------


def _listener(db: Database, conf: cfg.ConfigOpts, registry: CollectorRegistry | None = None) -> Any:
    registry = registry or CollectorRegistry()
    check = TimedCheck(db)
    registry.register(DatabaseCollector(db, ProviderCache(db), conf.metrics, check))
    return exporter.application(check.problem, registry)


def _scrape(app: Any, path: str = '/metrics') -> webob.Response:
    return webob.Request.blank(path).get_response(app)


def _samples(response: webob.Response) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of a scrape: by name, then by the values of their labels in the order of their names."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels[name] for name in sorted(sample.labels))] = (
                sample.value
            )
    return samples


def test_a_scrape_takes_few_statements_and_none_within_the_interval(
    app: deploy.Application, db: Database, load: Load, queries: Any
) -> None:
    # The database of the application, through the engine of which ``queries`` counts the statements.
    listener = _listener(db, load(metrics={'plan_interval': 0}))
    for _ in range(3):
        http_client.create_provider(app, VCPU=8)
    with queries(at_most=13):
        samples = _samples(_scrape(listener))
    assert samples['placement_inventory_units']['capacity', 'VCPU'] == 24
    assert samples['placement_database_up'] == {(): 1}
    http_client.create_provider(app)
    with queries(at_most=1):
        assert _samples(_scrape(listener))['placement_resource_providers'] == {(): 3}


def test_an_aggregate_that_is_named_twice_is_shown_once(app: deploy.Application, load: Load) -> None:
    listener = _listener(app.db, load(metrics={'aggregates': [AGGREGATE, AGGREGATE.upper()]}))
    assert _scrape(listener).text.count('\nplacement_aggregate_trees{') == 1


def test_a_scrape_during_an_outage_of_the_database_has_the_counts(load: Load) -> None:
    conf = load(placement_database={'connection': 'sqlite:////nowhere/at/all.sqlite'})
    counts = Metrics()
    with counts.claim():
        pass
    response = _scrape(_listener(Database(conf), conf, counts.registry))
    assert response.status_code == 200
    samples = _samples(response)
    assert samples['placement_database_up'] == {(): 0}
    assert samples['placement_claims_total']['accepted',] == 1
    assert 'placement_inventory_units' not in samples
    collectors = {('allocation',): 0, ('inventory',): 0, ('plan',): 0}
    assert samples['placement_collector_last_success_timestamp_seconds'] == collectors
    assert samples['placement_build_info'] == {(migration.head(), release()): 1}


def test_other_paths_of_the_listener_are_404(app: deploy.Application) -> None:
    listener = exporter.application(TimedCheck(app.db).problem, CollectorRegistry())
    assert _scrape(listener, '/healthcheck').text == 'OK\n'
    assert _scrape(listener, '/healthcheck/ready').status_code == 200
    for path in ('/resource_providers', '/'):
        response = _scrape(listener, path)
        assert (response.status_code, response.content_type) == (404, 'text/plain')
        assert response.text == 'Not found. Try /metrics, /healthcheck, /healthcheck/ready.\n'


# Health checks ----------------------------------------------------------------------------------------------


def test_health_paths_are_unknown_unless_configured(app: deploy.Application) -> None:
    assert webob.Request.blank('/healthcheck').get_response(app).status_code == 401
    assert send_request(app, 'GET', '/healthcheck').status_code == 404


@pytest.mark.parametrize('method', ['GET', 'HEAD'])
@pytest.mark.parametrize('path', ['/health', '/health/ready'])
def test_health_is_answered_without_token(tmp_path: Path, method: str, path: str) -> None:
    with applications.application(tmp_path / 'placement.sqlite', healthcheck={'path': '/health'}) as app:
        response = webob.Request.blank(path, method=method).get_response(app)
        assert webob.Request.blank(path, method='POST').get_response(app).status_code == 401
    assert (response.status_code, response.text) == (200, 'OK\n' if method == 'GET' else '')
    assert response.headers['Content-Length'] == '3'


#: Options of an application that does not create its schema, and whose health can be requested.
CHECKED: dict[str, dict[str, Any]] = {
    'placement_database': {'sync_on_startup': False},
    'healthcheck': {'path': '/health'},
}


@pytest.mark.parametrize(
    ('file', 'problem'),
    [
        ('not/there', 'The database cannot be reached.\n'),
        ('empty', 'The database does not have the expected tables.\n'),
    ],
)
def test_not_ready_without_database_or_tables_but_alive(tmp_path: Path, file: str, problem: str) -> None:
    with applications.application(tmp_path / file, **CHECKED) as app:
        ready = webob.Request.blank('/health/ready').get_response(app)
        assert (ready.status_code, ready.text) == (503, problem)
        assert webob.Request.blank('/health').get_response(app).status_code == 200


def test_not_ready_while_the_providers_cannot_be_loaded(app: deploy.Application, tmp_path: Path) -> None:
    with app.db.engine.begin() as tx:
        tx.exec_driver_sql('ALTER TABLE placement_aggregates RENAME TO away')
    with applications.application(tmp_path / 'placement.sqlite', **CHECKED) as unready:
        ready = webob.Request.blank('/health/ready').get_response(unready)
        assert (ready.status_code, ready.text) == (503, 'The provider cache cannot be loaded.\n')
        with app.db.engine.begin() as tx:
            tx.exec_driver_sql('ALTER TABLE away RENAME TO placement_aggregates')
        assert webob.Request.blank('/health/ready').get_response(unready).status_code == 200


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """Let no thread start in the block: there is no memory for its stack."""
    size = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(size)


def test_ready_again_after_a_moment_without_threads(
    app: deploy.Application, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with applications.application(tmp_path / 'placement.sqlite', **CHECKED) as checked:
        with no_threads():
            for _ in range(2):
                ready = webob.Request.blank('/health/ready').get_response(checked)
                problem = "The database cannot be checked: can't start new thread."
                assert (ready.status_code, ready.text) == (503, f'{problem}\n')
        assert caplog.messages.count(problem) == 1
        ready = webob.Request.blank('/health/ready').get_response(checked)
        assert (ready.status_code, ready.text) == (200, 'OK\n')


def test_a_request_is_processed_without_a_thread_for_the_metrics(app: deploy.Application) -> None:
    with no_threads():
        assert send_request(app, 'GET', '/traits').status_code == 200
    name, labels = 'placement_database_connections', {'pool': 'database', 'field': 'limit'}
    assert _metrics(app).registry.get_sample_value(name, labels) is None
    assert send_request(app, 'GET', '/traits').status_code == 200
    wait_until(lambda: _metrics(app).registry.get_sample_value(name, labels) == 1)


def test_a_collector_reads_again_after_a_moment_without_threads(caplog: pytest.LogCaptureFixture) -> None:
    query = BackgroundQuery('numbers', _counter(), 1000)
    with no_threads():
        for _ in range(2):
            refresh([query])
    assert caplog.messages == ["Collector numbers failed; its last values stay: can't start new thread"]
    refresh([query])
    assert query.result == 1


def test_ready_with_a_read_only_database() -> None:
    """Reads and searches go on, so load balancers must not take the process out."""
    health = HealthCheck(webob.exc.HTTPNotFound(), '/health', lambda: None, is_read_only=lambda: True)
    ready = webob.Request.blank('/health/ready').get_response(health)
    assert (ready.status_code, ready.text) == (200, 'The database is read-only.\n')


def test_files_that_a_starting_process_has_not_filled_are_skipped(tmp_path: Path) -> None:
    (tmp_path / 'counter_0.db').touch()
    assert list(processes.registry(str(tmp_path)).collect()) == []


def test_metrics_and_their_labels_are_documented(context: RequestContext, load: Load, tmp_path: Path) -> None:
    provider = create_provider(context, VCPU=8)
    set_aggregates(provider, [AGGREGATE], increment_generation=False)
    number = processes.ProcessNumber(tmp_path)
    assert number() == 0
    # Each metric counts something, so that it has its labels.
    counts = Metrics()
    counts.initialize([('/', 'GET')], ['candidates'])
    counts.instrument(context.db.engine, 1)
    counts.request_started()
    counts.request_finished('/', 'GET', '1.0', 200, 0.1)
    counts.update_saturation()
    exported = [
        *counts.registry.collect(),
        *DatabaseCollector(
            context.db,
            ProviderCache(context.db),
            load(metrics={'aggregates': [AGGREGATE]}).metrics,
            TimedCheck(context.db),
        ).collect(),
        *processes.Processes(tmp_path).collect(),
    ]
    labels = {family.name: {name for sample in family.samples for name in sample.labels} for family in exported}
    assert all(family.samples for family in exported)
    rows = re.findall(r'^\| `([^`]+)` \| [^|]+ \|([^|]*)\|', section('observability.md', 'Metrics'), re.MULTILINE)
    documented = {name: set(re.findall(r'`([a-z_]+)`', cell)) for name, cell in rows}
    assert documented == {name: names - {'le'} for name, names in labels.items()}


# The parts of the time of a request, how busy a process is, and the processes -------------------------------------


SLOW = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i) FROM n'


def _metrics(app: deploy.Application) -> Metrics:
    assert isinstance(app.db.metrics, Metrics)
    return app.db.metrics


def _value(app: deploy.Application, name: str, **labels: str) -> float:
    value = _metrics(app).registry.get_sample_value(name, labels)
    assert value is not None, (name, labels)
    return value


def _phase(app: deploy.Application, phase: str) -> float:
    return _value(app, 'placement_request_phase_seconds_total', route='/traits', method='GET', phase=phase)


def _answered(app: deploy.Application) -> None:
    app.db.metrics.request_finished('/traits', 'GET', '1.29', 200, 0.1)


@pytest.mark.parametrize('kind', ['question', 'transaction'])
def test_the_time_of_statements_is_spent_on_the_database(app: deploy.Application, kind: str) -> None:
    app.db.metrics.request_started()
    started = time.perf_counter()
    if kind == 'question':
        app.db.fetch_all(sa.text(SLOW))
    else:
        with app.db.reader() as connection:
            connection.execute(sa.text(SLOW))
    elapsed = time.perf_counter() - started
    _answered(app)
    assert 0.5 * elapsed < _phase(app, 'database') <= elapsed


def test_the_time_of_a_commit_is_spent_on_the_database(
    app: deploy.Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_self: Any, connection: Any) -> None:
        time.sleep(0.1)
        connection.commit()

    monkeypatch.setattr(type(app.db.engine.dialect), 'do_commit', slow)
    app.db.metrics.request_started()
    with app.db.reader() as connection:
        connection.exec_driver_sql('SELECT 1')
    _answered(app)
    assert _phase(app, 'database') >= 0.1


def test_waiting_for_a_connection_is_shown_while_it_lasts_and_counted_separately(app: deploy.Application) -> None:
    def waits() -> None:
        app.db.metrics.request_started()
        with pytest.raises(exception.DatabaseUnavailable):
            app.db.fetch_all(sa.text('SELECT 1'))
        _answered(app)

    metrics = _metrics(app)
    with app.db.engine.connect():
        waiter = threading.Thread(target=waits)
        waiter.start()
        wait_until(lambda: metrics.waiting_threads.count)
        metrics.update_saturation()
        assert _value(app, 'placement_database_connections_waiting', pool='database') == 1
        assert _value(app, 'placement_database_connections', pool='database', field='in_use') == 1
        assert _value(app, 'placement_database_connections', pool='database', field='limit') == 1
        assert _value(app, 'placement_threads_busy') == 1
        waiter.join()
    metrics.update_saturation()
    assert _value(app, 'placement_database_connections_waiting', pool='database') == 0
    assert _value(app, 'placement_database_connections', pool='database', field='in_use') == 0
    assert _value(app, 'placement_threads_busy') == 0
    assert _phase(app, 'connection') >= 0.9
    assert _phase(app, 'database') < 0.5


def test_the_load_is_sampled_by_a_thread_and_server_errors_are_counted(app: deploy.Application) -> None:
    registry, labels = _metrics(app).registry, {'pool': 'database', 'field': 'in_use'}
    with app.db.engine.connect():
        response = send_request(app, 'GET', '/allocation_candidates?resources=VCPU:1')
        wait_until(lambda: registry.get_sample_value('placement_database_connections', labels) == 1)
    assert response.status_code == 503
    assert _value(app, 'placement_server_errors_total', route='/allocation_candidates', status='503') == 1


def test_counts_begin_at_zero_where_the_labels_are_known(app: deploy.Application) -> None:
    assert _value(app, 'placement_server_errors_total', route='/allocations', status='503') == 0
    assert _value(app, 'placement_request_duration_seconds_count', route='/allocations', method='POST') == 0
    assert _value(app, 'placement_claims_total', result='capacity') == 0
    assert _value(app, 'placement_transaction_retries_total', reason='DBDeadlock') == 0
    assert _value(app, 'placement_allocation_candidates_truncated_total', limit='request_steps') == 0
    assert _phase(app, 'keystone') == 0


def test_the_gauges_of_an_ended_process_are_removed_and_its_counts_continue(tmp_path: Path) -> None:
    for name in ('0.lock', 'counter_0.db', 'gauge_livesum_0.db'):
        (tmp_path / name).touch()
    assert list(processes.Processes(tmp_path).collect()) == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ['0.lock', 'counter_0.db']
    assert processes.ProcessNumber(tmp_path)() == 0


# What is read for a scrape: at most once per interval, without making the scrape wait -----------------------------


def _counter() -> Callable[[], int]:
    calls = iter(range(1, 100))
    return lambda: next(calls)


@pytest.mark.parametrize(('interval', 'values'), [(0, [1, 2, 3]), (1000, [1, 1, 1]), (-1, [None, None, None])])
def test_values_are_read_again_after_the_interval(interval: float, values: list[int | None]) -> None:
    query = BackgroundQuery('numbers', _counter(), interval)
    seen = []
    for _ in range(3):
        refresh([query])
        seen.append(query.result)
    assert seen == values
    assert (query.succeeded_at > 0) == (interval >= 0)


def test_a_scrape_does_not_wait_for_a_slow_read_and_has_the_last_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, values = threading.Event(), _counter()

    def slow() -> int:
        value = values()
        if value > 1:
            may_end.wait(60)
        return value

    query, other = BackgroundQuery('slow', slow, 0), BackgroundQuery('fast', _counter(), 0)
    refresh([query, other])
    succeeded_at = query.succeeded_at
    monkeypatch.setattr(background_query, 'MAX_WAIT_SECONDS', 0.2)
    started = time.monotonic()
    for _ in range(2):
        refresh([query, other])
        other.wait(60)
        assert (query.result, query.succeeded_at) == (1, succeeded_at)
    assert time.monotonic() - started < 30
    assert other.result == 3
    may_end.set()
    query.wait(60)
    assert query.result == 2
    assert query.succeeded_at > succeeded_at


@pytest.mark.parametrize('error', [exception.DatabaseUnavailable, ZeroDivisionError])
def test_a_failed_read_keeps_the_value_and_is_repeated_before_the_interval_is_over(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    outcomes: Iterator[Any] = iter([error, error, 1])

    def read() -> int:
        outcome = next(outcomes)
        if not isinstance(outcome, int):
            raise outcome
        return outcome

    query = BackgroundQuery('numbers', read, 1000)
    for _ in range(5):
        refresh([query])
    assert (query.result, query.succeeded_at > 0) == (1, True)
    assert [record.levelname for record in caplog.records] == ['WARNING', 'INFO']
    assert caplog.messages[0].startswith('Collector numbers failed; its last values stay: ')


# Failing hosts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(('consumers', 'expected'), [({'one': 3}, (1, 0)), ({'one': 3, 'two': 3}, (0, 2))])
def test_hosts_that_cannot_be_evacuated_are_counted(
    context: RequestContext, conf: cfg.ConfigOpts, consumers: dict[str, int], expected: tuple[int, int]
) -> None:
    hosts = [create_provider(context, VCPU=4) for _ in range(2)]
    for host, amount in zip(hosts, consumers.values(), strict=False):
        claim(context, {host.uuid: {'VCPU': amount}})
    samples = _samples(_scrape(_listener(context.db, conf)))
    names = ('placement_tolerated_failures', 'placement_hosts_not_evacuable')
    assert tuple(samples[name][()] for name in names) == expected
    assert samples['placement_collector_last_success_timestamp_seconds'][('plan',)] > 0


def test_failing_hosts_are_not_checked_without_an_interval(db: Database, load: Load) -> None:
    samples = _samples(_scrape(_listener(db, load(metrics={'plan_interval': 0}))))
    assert 'placement_hosts_not_evacuable' not in samples
    assert ('plan',) not in samples['placement_collector_last_success_timestamp_seconds']
