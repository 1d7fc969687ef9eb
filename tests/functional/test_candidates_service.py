"""GET /allocation_candidates as a service: extreme queries, settings, what it costs, and what is logged of searches."""

from __future__ import annotations

import logging
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import orjson
import pytest
from oslo_config import cfg
from oslo_context import context as oslo_context

from placement import deploy, observability
from placement.ops import empty_searches
from placement.ops.explain import explanation, searches_in_text, sentences
from placement.search import find_candidates, parsing
from placement.search.budget import SearchBudget
from tests.support.http_client import send_request
from tests.support.search import hard
from tests.support.search.examples import TOPOLOGIES
from tests.support.search.oracle import RP, flat, record, rp
from tests.support.search.query_strings import uuid_of
from tests.support.search.store import Stored
from tests.support.waiting import wait_until


def test_capacity_beyond_64_bits(app: Any) -> None:
    stored = Stored(app, [rp('big', VCPU={'total': 2147483647, 'allocation_ratio': 1e30})])
    summary = stored.candidates('resources=VCPU:1')['provider_summaries'][uuid_of('big')]
    assert summary['resources']['VCPU']['capacity'] == int(2147483647 * 1e30)


def test_a_query_with_256_groups_and_queries_with_1500_classes(app: Any) -> None:
    names = [f'CUSTOM_C{number}' for number in range(1500)]
    inventory = {name: record(5) for name in names} | {'VCPU': record(1000)}
    stored = Stored(app, [RP('host', inventory=inventory)])
    groups = '&'.join(f'resources{number}=VCPU:1' for number in range(1, 257))
    response = stored.candidates(f'{groups}&group_policy=none')
    assert response['allocation_requests'] == [{'allocations': {uuid_of('host'): {'resources': {'VCPU': 256}}}}]
    wide = ','.join(f'{name}:1' for name in names)
    for parameter in ('resources', 'resources1'):
        [candidate] = stored.candidates(f'{parameter}={wide}')['allocation_requests']
        assert candidate['allocations'][uuid_of('host')]['resources'] == dict.fromkeys(names, 1)


def test_random_order_and_random_samples(app: Any, conf: cfg.ConfigOpts) -> None:
    stored = Stored(app, [*flat(40), *TOPOLOGIES['X4']])
    everything = stored.bodies(stored.candidates('resources=VCPU:1'))
    conf.set_override('randomize_allocation_candidates', True, 'placement')
    orders = [stored.bodies(stored.candidates('resources=VCPU:1')) for _ in range(3)]
    assert all(set(order) == set(everything) and len(order) == len(everything) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    samples = [frozenset(stored.bodies(stored.candidates('resources=VCPU:1&limit=5'))) for _ in range(5)]
    assert all(len(sample) == 5 and sample <= set(everything) for sample in samples)
    assert len(set(samples)) > 1


def test_memory_for_a_symmetric_tree_is_bounded_by_the_limit(app: Any) -> None:
    topology = [
        provider
        for tree in ('east', 'west')
        for provider in [rp(tree, VCPU=64), *(rp(f'{tree}{n}', tree, SRIOV_NET_VF=8) for n in range(16))]
    ]
    stored = Stored(app, topology)
    groups = '&'.join(f'resources{n}=SRIOV_NET_VF:1' for n in range(1, 9))
    path = f'/allocation_candidates?{groups}&group_policy=none&limit=1000'
    assert stored.request(path, 29).status_code == 200
    tracemalloc.start()
    response = stored.request(path, 29)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(response.json['allocation_requests']) == 1000
    assert peak < 50_000_000


# What is logged ---------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    # Its lines are not about searches.
    caplog.set_level(logging.WARNING, logger='placement.cache.refresh')
    caplog.set_level(logging.INFO)


def _empty(caplog: pytest.LogCaptureFixture, count: int = 1) -> list[str]:
    """The lines about empty searches, when there are ``count``."""
    wait_until(lambda: len(_logged(caplog, 'No allocation candidates')) >= count)
    return _logged(caplog, 'No allocation candidates')


def _logged(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if word in record.getMessage()]


def test_the_bound_on_candidates_is_a_setting_and_is_logged_once(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(app, flat(10))
    conf.set_override('max_allocation_candidates', 10, 'placement')
    assert len(stored.candidates('resources=VCPU:1')['allocation_requests']) == 10
    assert not _logged(caplog, 'max_allocation_candidates')
    conf.set_override('max_allocation_candidates', 4, 'placement')
    for query in ('resources=VCPU:1', 'resources=VCPU:1&limit=5'):
        caplog.clear()
        assert len(stored.candidates(query)['allocation_requests']) == 4
        assert len(_logged(caplog, 'max_allocation_candidates')) == 1
    assert 'resources=VCPU%3A1&limit=5' in caplog.text
    caplog.clear()
    assert len(stored.candidates('resources=VCPU:1&limit=3')['allocation_requests']) == 3
    conf.set_override('max_allocation_candidates', -1, 'placement')
    assert len(stored.candidates('resources=VCPU:1')['allocation_requests']) == 10
    assert not _logged(caplog, 'max_allocation_candidates')


def test_the_bound_on_the_size_of_an_answer_is_a_setting_and_is_logged_once(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored(app, flat(600))
    conf.set_override('max_allocation_candidates_size', 200_000, 'placement')
    for random_order in (False, True):
        conf.set_override('randomize_allocation_candidates', random_order, 'placement')
        caplog.clear()
        response = stored.candidates('resources=VCPU:1')
        assert 160_000 < len(orjson.dumps(response)) <= 200_000
        count = len(response['allocation_requests'])
        assert len(response['provider_summaries']) == count
        assert len(_logged(caplog, 'max_allocation_candidates_size = 200000 for resources=VCPU')) == 1
        caplog.clear()
        assert len(stored.candidates(f'resources=VCPU:1&limit={count}')['allocation_requests']) == count
        assert not _logged(caplog, 'Stopped at')


def test_a_search_that_exceeds_its_steps_is_logged_once_with_a_shortened_query(
    app: Any, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    topology, hard_query = hard.packing(0, classes=3)
    stored = Stored(app, topology)
    amounts = {
        group.suffix: ','.join(f'{name}:{n}' for name, n in group.resources.items()) for group in hard_query.groups
    }
    query = '&'.join(f'resources{suffix}={value}' for suffix, value in amounts.items()) + '&group_policy=none&limit=1'
    conf.set_override('max_search_steps_per_tree', 1000, 'placement')
    assert stored.candidates(query)['allocation_requests'] == []
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert 'Stopped at [placement] max_search_steps_per_tree = 1000 for resources1=' in line.getMessage()
    [empty] = _empty(caplog)
    assert ': The search reached a limit before it found a candidate, so candidates may exist. ' in empty
    assert all(len(line) < 2300 for line in _logged(caplog, 'Stopped at'))
    caplog.clear()
    conf.set_override('max_search_steps', 2000, 'placement')
    stored.candidates(query)
    assert len(_logged(caplog, 'Stopped at [placement] max_search_steps = 2000 for')) == 1


# Searches without result ------------------------------------------------------------------------------------


def test_an_empty_answer_is_explained_in_one_line_of_the_log(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(app, TOPOLOGIES['X1'])
    for _ in range(2):
        stored.candidates('resources=VCPU:5,MEMORY_MB:5000')
    stored.candidates('resources=VCPU:1')
    [line] = _empty(caplog)
    assert line == (
        'No allocation candidates for resources=VCPU%3A5%2CMEMORY_MB%3A5000: No host large enough for VCPU:5 has'
        ' MEMORY_MB:5000: max_unit is 2048 (closest: host2).'
    )


def test_a_line_has_the_sentences_of_the_command_and_the_id_of_the_request(
    app: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stored(app, TOPOLOGIES['X1'])
    ids = set()

    def note_id(_record: logging.LogRecord) -> bool:
        current = oslo_context.get_current()
        ids.add(current and current.request_id)
        return True

    monkeypatch.setattr(caplog.handler, 'filter', note_id)
    response = send_request(app, 'GET', '/allocation_candidates?resources=VCPU:500', version='1.29')
    assert response.json['allocation_requests'] == []
    [line] = _empty(caplog)
    request = parsing.parse('resources=VCPU:500', (1, 29))
    result = explanation.explain(app.provider_cache.up_to_date(), request, SearchBudget())
    assert line.endswith(f': {" ".join(sentences.Writer().sentences(result))}')
    assert ids == {response.headers['x-openstack-request-id']}


def test_an_exception_of_an_explanation_is_logged_with_its_traceback_and_the_next_search_is_explained(
    app: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(app, TOPOLOGIES['X1'])
    with monkeypatch.context() as patch:
        patch.setattr(empty_searches, 'explain', lambda *_arguments: int('none'))
        assert stored.candidates('resources=VCPU:500')['allocation_requests'] == []
        wait_until(lambda: _logged(caplog, 'cannot be explained'))
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == 'The search resources=VCPU%3A500 cannot be explained.'
    assert record.exc_info
    assert record.exc_info[0] is ValueError
    stored.candidates('resources=VCPU:501')
    assert len(_empty(caplog)) == 1


def test_searches_that_find_the_queue_full_are_counted(
    conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search does not wait for the explanations of others, and the line is made after the response."""
    conf.set_override('bind', '127.0.0.1:0', 'metrics')
    app = deploy.loadapp(conf)
    Stored(app, TOPOLOGIES['X1'])
    explaining, go_on = threading.Event(), threading.Event()

    def explain(*_arguments: Any) -> Any:
        explaining.set()
        go_on.wait()
        return explanation.Explanation(0)

    monkeypatch.setattr(empty_searches, '_MAX_WAITING', 2)
    monkeypatch.setattr(empty_searches, 'explain', explain)
    searches = empty_searches.EmptySearches(conf, app.db.metrics)
    candidates = find_candidates(
        app.provider_cache.up_to_date(), parsing.parse('resources=VCPU:500', (1, 29)), SearchBudget()
    )
    searches.add('resources=VCPU:0', candidates)
    assert explaining.wait(10)
    for number in range(1, 6):
        searches.add(f'resources=VCPU:{number}', candidates)
    assert _empty(caplog, 0) == []
    go_on.set()
    assert len(_empty(caplog, 3)) == 3
    searches.add('resources=VCPU:5', candidates)
    assert _empty(caplog, 4)[3].endswith('(1 more since the last such line)')
    [family] = [
        family for family in app.db.metrics.registry.collect() if family.name == 'placement_explanations_dropped'
    ]
    assert family.samples[0].value == 3
    app.db.dispose()


def test_a_search_has_its_response_if_no_thread_can_start(
    app: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next search tries it again."""
    stored = Stored(app, TOPOLOGIES['X1'])

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, 'start', start)
        assert stored.candidates('resources=VCPU:500')['allocation_requests'] == []
    stored.candidates('resources=VCPU:501')
    [line] = _empty(caplog)
    assert line.startswith('No allocation candidates for resources=VCPU%3A501:')


def test_a_forked_process_explains_its_own_empty_searches(app: Any, conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    """A thread does not survive a fork, and a lock that it held stays locked."""
    candidates = find_candidates(
        app.provider_cache.up_to_date(), parsing.parse('resources=VCPU:5', (1, 29)), SearchBudget()
    )
    searches = empty_searches.EmptySearches(conf, app.db.metrics)
    searches.add('resources=VCPU:1', candidates)
    with searches._lock:
        child = os.fork()
        if not child:
            status = 1
            try:
                handler = logging.FileHandler(tmp_path / 'log')
                empty_searches.LOG.logger.addHandler(handler)
                searches.add('resources=VCPU:1', candidates)
                wait_until((tmp_path / 'log').read_text)
                status = 0
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (
        tmp_path / 'log'
    ).read_text() == 'No allocation candidates for resources=VCPU:1: No resource providers are stored.\n'


def test_the_same_empty_search_is_explained_once_per_interval(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as many queries as are remembered."""
    monkeypatch.setattr(empty_searches, '_MAX_QUERIES', 2)
    searches = empty_searches.EmptySearches(conf, observability.create(conf))
    assert [searches.count_search(query) for query in ('a', 'b', 'c', 'c', 'c', 'a')] == [0, 0, 0, None, None, 0]
    monkeypatch.setattr(empty_searches, 'LOG_INTERVAL_SECONDS', 0)
    assert searches.count_search('c') == 2


def test_long_queries_of_empty_searches_do_not_stay_in_memory(conf: cfg.ConfigOpts) -> None:
    searches = empty_searches.EmptySearches(conf, observability.create(conf))
    tracemalloc.start()
    try:
        for number in range(100):
            assert searches.count_search(f'resources=VCPU:{number}{"0" * 60_000}') == 0
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_the_explain_command_accepts_lines_of_the_log(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(app, TOPOLOGIES['X1'])
    stored.candidates('resources=VCPU:100&member_of=in:x,y&limit=5')
    _empty(caplog)
    searches = {searches_in_text.find_query(record.getMessage()) for record in caplog.records}
    [query] = {query for query, _ in searches}
    assert parse_qsl(query)[0] == ('resources', 'VCPU:100')
    assert {version for _, version in searches} == {None, '1.29'}
