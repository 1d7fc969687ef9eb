"""The worked examples, tested on the search alone and on the oracle of other tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.search.assignments import search
from placement.search.budget import SearchBudget
from placement.search.requirements import compile_request
from placement.search.selection import select
from tests.support.search.examples import EXAMPLES, REJECTIONS, TOPOLOGIES, Example, Rejection, bodies
from tests.support.search.oracle import Oracle, Query, assert_candidates
from tests.support.search.query_strings import RejectedError, parse, uuid_of, with_uuids
from tests.support.search.topologies import Rows, request_of

CLASSES = {rc for topology in TOPOLOGIES.values() for rp in topology for rc in rp.inventory}
TRAITS = {trait for topology in TOPOLOGIES.values() for rp in topology for trait in rp.traits}
AGGREGATES = {aggregate for topology in TOPOLOGIES.values() for rp in topology for aggregate in rp.aggregates} | {
    'unused'
}

#: Every name of the page.
NAMES = [*(rp.name for topology in TOPOLOGIES.values() for rp in topology), *AGGREGATES]


def parsed(text: str, minor: int) -> Query:
    """Parse a query string of the examples, whose aggregates and providers are names."""
    return parse(with_uuids(text), minor, classes=CLASSES, traits=TRAITS, names={uuid_of(name): name for name in NAMES})


@pytest.mark.parametrize('example', [example for example in EXAMPLES if example.minor <= 29], ids=str)
def test_search_finds_the_candidates_of_the_table(example: Example) -> None:
    rows = Rows(TOPOLOGIES[example.topology])
    request = request_of(parsed(example.query, example.minor))
    assert_candidates(rows.search(request), bodies(example.candidates))


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_oracle_agrees_with_the_table(example: Example) -> None:
    oracle = Oracle(TOPOLOGIES[example.topology])
    query = parsed(example.query, example.minor)
    entries = oracle.entries(query)
    assert entries == example.entries()
    assert set(oracle.summaries(query, {entry.body for entry in entries})) == set(example.summaries.split())


@pytest.mark.parametrize('rejection', REJECTIONS, ids=str)
def test_oracle_rejects_the_rejected_queries(rejection: Rejection) -> None:
    with pytest.raises(RejectedError) as caught:
        parsed(rejection.query, rejection.minor)
    assert caught.value.code == rejection.code
    assert rejection.phrase in ' '.join(caught.value.phrases)


def test_limit_of_one_gives_one_of_the_table() -> None:
    rows = Rows(TOPOLOGIES['X4'])
    request = request_of(parsed('resources=SRIOV_NET_VF:1', 29))
    [candidate] = select(
        search(rows.search_units(), compile_request(request), SearchBudget()), replace(request, limit=1), SearchBudget()
    )
    assert rows.bodies([candidate])[0] in bodies('pf0{SRIOV_NET_VF:1}; pf1{SRIOV_NET_VF:1}')
