"""GET /allocation_candidates of the whole application: examples, the oracle, limits and claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from tests.support import applications
from tests.support.search.examples import EXAMPLES, Example
from tests.support.search.oracle import RP, Oracle, Query
from tests.support.search.store import Stored, check_example, check_query
from tests.support.search.topologies import queries as some_queries
from tests.support.search.topologies import thorough, topologies

MINORS = (10, 11, 12, 16, 17, 21, 22, 24, 25, 26, 27, 28, 29, 29, 29)


@pytest.fixture(scope='module')
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application for all tests here, since each replaces all providers."""
    path = tmp_path_factory.mktemp('candidates') / 'placement.sqlite'
    with applications.application(path, placement=applications.EVERY_MICROVERSION) as app:
        yield app


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_worked_example(shared_app: Any, example: Example) -> None:
    check_example(shared_app, example)


@thorough(300)
@given(topologies(), some_queries(MINORS))
def test_the_application_answers_like_the_oracle(shared_app: Any, topology: list[RP], query: Query) -> None:
    check_query(shared_app, topology, query)


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


@thorough(60)
@given(topologies(), some_queries((28, 29)))
def test_limited_answers_are_subsets_with_their_summaries_only(
    shared_app: Any, topology: list[RP], query: Query
) -> None:
    stored = Stored(shared_app, topology)
    oracle = Oracle(topology)
    everything = oracle.candidates(query)
    for query.limit in (1, 2, 5):
        answer = stored.candidates(query)
        bodies = stored.bodies(answer)
        assert set(bodies) <= everything
        assert len(bodies) == len(set(bodies)) == min(query.limit, len(everything))
        assert stored.summaries(answer) == oracle.summaries(query, set(bodies))
        assert stored.candidates(query) == answer
