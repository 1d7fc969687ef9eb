"""GET /allocation_candidates of the whole application against the oracle: random query strings with all parameters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support import applications
from tests.support.search.oracle import RP, Oracle, Query, assert_candidates
from tests.support.search.query_strings import RejectedError
from tests.support.search.random_queries import MINORS, QueryString, parse, query_strings
from tests.support.search.store import Stored
from tests.support.search.topologies import thorough, topologies

# More than ten thousand queries in the thorough profile.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope='module')
def newest_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application that serves the newest microversion there is; each topology replaces all providers."""
    path = tmp_path_factory.mktemp('candidates') / 'placement.sqlite'
    with applications.application(path, placement=applications.EVERY_MICROVERSION) as app:
        yield app


def check(stored: Stored, oracle: Oracle, query_string: QueryString) -> None:
    """The application answers a query string as the oracle does: the candidates and summaries, or with an error."""
    response = stored.request(f'/allocation_candidates?{query_string.text}', query_string.minor)
    try:
        query = parse(query_string)
    except RejectedError:
        event('rejected')
        assert response.status_code == 400, response.text
    else:
        assert response.status_code == 200, response.text
        check_answer(stored, response.json, oracle, query)


def check_answer(stored: Stored, answer: dict[str, Any], oracle: Oracle, query: Query) -> None:
    entries = stored.entries(answer)
    expected = oracle.entries(query)
    event(f'candidates: {min(len(expected), 4)}')
    if query.limit is None:
        assert_candidates(entries, expected)
    else:
        assert set(entries) <= expected
        assert len(entries) == len(set(entries)) == min(query.limit, len(expected))
    assert stored.summaries(answer) == oracle.summaries(query, {entry.body for entry in entries})


@thorough(1200)
@given(topologies(), st.lists(st.sampled_from(MINORS).flatmap(query_strings), min_size=20, max_size=20))
def test_every_microversion_is_answered_like_the_oracle(
    newest_app: Any, topology: list[RP], query_strings: list[QueryString]
) -> None:
    stored, oracle = Stored(newest_app, topology), Oracle(topology)
    for query_string in query_strings:
        check(stored, oracle, query_string)


@thorough(60)
@given(topologies(5), st.sampled_from((12, 28, 29, 34, 36)).flatmap(query_strings))
def test_every_candidate_can_be_claimed(newest_app: Any, topology: list[RP], query: QueryString) -> None:
    stored = Stored(newest_app, topology)
    response = stored.request(f'/allocation_candidates?{query.text}', query.minor)
    for candidate in response.json.get('allocation_requests', [])[:20]:
        path = f'/allocations/{uuid.uuid4()}'
        body = {**candidate, 'project_id': 'project', 'user_id': 'user'}
        if query.minor >= 28:
            body['consumer_generation'] = None
        assert stored.request(path, query.minor, 'PUT', body).status_code == 204
        assert stored.request(path, query.minor, 'DELETE').status_code == 204
