"""GET /allocation_candidates of the whole application against the oracle: random query strings with all parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import webob
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support import applications
from tests.support.search.oracle import RP, SHARES, Oracle, Query, assert_candidates
from tests.support.search.query_strings import RejectedError, parse, uuid_of
from tests.support.search.random_queries import (
    AGGREGATES,
    CLASSES,
    MINORS,
    TRAITS,
    QueryString,
    deep_topologies,
    query_strings,
)
from tests.support.search.store import Stored
from tests.support.search.topologies import thorough

# More than ten thousand queries in the thorough profile.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope='module')
def newest_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application that serves the newest microversion there is; each topology replaces all providers."""
    path = tmp_path_factory.mktemp('candidates') / 'placement.sqlite'
    with applications.application(path, placement=applications.EVERY_MICROVERSION) as app:
        yield app


def check(stored: Stored, oracle: Oracle, query_string: QueryString) -> None:
    """The application answers a query string as the oracle does: the candidates and summaries, or the error."""
    minor, text = query_string
    names = {uuid_of(name): name for name in [*oracle.rps, *AGGREGATES]}
    response = stored.request(f'/allocation_candidates?{text}', minor)
    try:
        query = parse(text, minor, classes=CLASSES, traits=[*TRAITS, SHARES], names=names)
    except RejectedError as rejected:
        check_error(response, rejected)
    else:
        assert response.status_code == 200, response.text
        check_answer(stored, response.json, oracle, query)


def check_error(response: webob.Response, rejected: RejectedError) -> None:
    event('rejected')
    assert response.status_code == 400, (rejected.phrases, response.text)
    [error] = response.json['errors']
    assert error['code'] == rejected.code, error
    for phrase in rejected.phrases:
        assert phrase in error['detail']


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


def check_all(app: Any, topology: list[RP], queries: list[QueryString]) -> None:
    stored, oracle = Stored(app, topology), Oracle(topology)
    for query_string in queries:
        check(stored, oracle, query_string)


@thorough(400)
@given(deep_topologies(), st.lists(st.sampled_from(MINORS).flatmap(query_strings), min_size=1, max_size=20))
def test_every_microversion_is_answered_like_the_oracle(
    newest_app: Any, topology: list[RP], queries: list[QueryString]
) -> None:
    check_all(newest_app, topology, queries)


@pytest.mark.parametrize('minor', [36, 39])
@thorough(600)
@given(topology=deep_topologies(), data=st.data())
def test_the_whole_search_is_answered_like_the_oracle(
    newest_app: Any, minor: int, topology: list[RP], data: st.DataObject
) -> None:
    check_all(newest_app, topology, data.draw(st.lists(query_strings(minor), min_size=20, max_size=20)))
