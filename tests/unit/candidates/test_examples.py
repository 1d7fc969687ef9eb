"""The worked examples, tested on the search alone and on the oracle of other tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.candidates.limits import SearchLimits
from placement.candidates.requirements import compile_request
from placement.candidates.search import search
from placement.candidates.selection import select
from tests.support.candidates.examples import EXAMPLES, REJECTIONS, WORLDS, Example, Rejection, bodies
from tests.support.candidates.oracle import Oracle, Query, assert_candidates
from tests.support.candidates.query_strings import RejectedError, parse, uuid_of, with_uuids
from tests.support.candidates.topologies import Rows, request_of

CLASSES = {rc for topology in WORLDS.values() for rp in topology for rc in rp.inventory}
TRAITS = {trait for topology in WORLDS.values() for rp in topology for trait in rp.traits}
AGGREGATES = {aggregate for topology in WORLDS.values() for rp in topology for aggregate in rp.aggregates} | {'unused'}

#: Every name of the page.
NAMES = [*(rp.name for topology in WORLDS.values() for rp in topology), *AGGREGATES]


def parsed(text: str, minor: int) -> Query:
    """Parse a query string of the examples, whose aggregates and providers are names."""
    return parse(with_uuids(text), minor, classes=CLASSES, traits=TRAITS, names={uuid_of(name): name for name in NAMES})


@pytest.mark.parametrize('example', [one for one in EXAMPLES if one.minor <= 29], ids=str)
def test_search_finds_the_candidates_of_the_table(example: Example) -> None:
    rows = Rows(WORLDS[example.topology])
    request = request_of(parsed(example.query, example.minor))
    found = [rows.body(one) for one in search(rows.search_units(), compile_request(request), SearchLimits())]
    assert_candidates(found, bodies(example.candidates))


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_oracle_agrees_with_the_table(example: Example) -> None:
    oracle = Oracle(WORLDS[example.topology])
    query = parsed(example.query, example.minor)
    found = oracle.entries(query)
    assert found == example.entries()
    assert set(oracle.summaries(query, {entry.body for entry in found})) == set(example.summaries.split())


@pytest.mark.parametrize('rejection', REJECTIONS, ids=str)
def test_oracle_rejects_the_rejected_queries(rejection: Rejection) -> None:
    with pytest.raises(RejectedError) as caught:
        parsed(rejection.query, rejection.minor)
    assert caught.value.code == rejection.code
    assert rejection.phrase in ' '.join(caught.value.phrases)


def test_limit_of_one_gives_one_of_the_table() -> None:
    rows = Rows(WORLDS['X4'])
    request = request_of(parsed('resources=SRIOV_NET_VF:1', 29))
    [candidate] = select(
        search(rows.search_units(), compile_request(request), SearchLimits()), replace(request, limit=1), SearchLimits()
    )
    assert rows.body(candidate) in bodies('pf0{SRIOV_NET_VF:1}; pf1{SRIOV_NET_VF:1}')
