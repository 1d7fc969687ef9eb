"""GET /allocation_candidates of the whole application: the oracle up to 1.29, and claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from tests.support import applications
from tests.support.search.oracle import RP, Oracle, Query, assert_candidates
from tests.support.search.store import Stored
from tests.support.search.topologies import queries as some_queries
from tests.support.search.topologies import thorough, topologies

MINORS = (10, 11, 12, 16, 17, 21, 22, 24, 25, 26, 27, 28, 29, 29, 29)


@pytest.fixture(scope='module')
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application for all tests here, since each replaces all providers."""
    path = tmp_path_factory.mktemp('candidates') / 'placement.sqlite'
    with applications.application(path, placement=applications.EVERY_MICROVERSION) as app:
        yield app


@thorough(300)
@given(topologies(), some_queries(MINORS))
def test_the_application_answers_like_the_oracle(shared_app: Any, topology: list[RP], query: Query) -> None:
    stored, oracle = Stored(shared_app, topology), Oracle(topology)
    response, expected = stored.candidates(query), oracle.entries(query)
    assert_candidates(stored.entries(response), expected)
    assert stored.summaries(response) == oracle.summaries(query, {entry.body for entry in expected})


@thorough(60)
@given(topologies(max_providers=5), some_queries((12, 28, 29, 34, 36)))
def test_every_candidate_can_be_claimed(shared_app: Any, topology: list[RP], query: Query) -> None:
    stored = Stored(shared_app, topology)
    for candidate in stored.candidates(query)['allocation_requests'][:20]:
        path = f'/allocations/{uuid.uuid4()}'
        body = {**candidate, 'project_id': 'project', 'user_id': 'user'}
        if query.minor >= 28:
            body['consumer_generation'] = None
        assert stored.request(path, query.minor, 'PUT', body).status_code == 204
        assert stored.request(path, query.minor, 'DELETE').status_code == 204
