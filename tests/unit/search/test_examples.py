"""The worked examples, by which the oracle of other tests is tested."""

from __future__ import annotations

import pytest

from placement.search.requirements import compile_request
from tests.support.search.cached import snapshot_of
from tests.support.search.examples import EXAMPLES, REJECTIONS, TOPOLOGIES, Example, Rejection
from tests.support.search.oracle import Oracle, Query
from tests.support.search.query_strings import RejectedError, parse, uuid_of, with_uuids
from tests.support.search.topologies import request_of

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


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_oracle_agrees_with_the_table(example: Example) -> None:
    oracle = Oracle(TOPOLOGIES[example.topology])
    query = parsed(example.query, example.minor)
    entries = oracle.entries(query)
    assert entries == example.entries()
    assert set(oracle.summaries(query, {entry.body for entry in entries})) == set(example.summaries.split())


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_requirements_accept_the_providers_that_they_match(example: Example) -> None:
    """Both evaluations of a requirement agree on each provider in its own tree."""
    snapshot = snapshot_of(TOPOLOGIES[example.topology])
    compiled = compile_request(request_of(parsed(example.query, example.minor)), snapshot.root_id_of)
    for partition in snapshot.partitions:
        roots = partition.providers.at(partition.starts[partition.tree_numbers].tolist())
        trees = list(zip(partition.providers, roots, strict=True))
        for requirement in compiled.requirements:
            accepted = [requirement.accepts(provider, root) for provider, root in trees]
            assert accepted == requirement.matches(partition).tolist()


@pytest.mark.parametrize('rejection', REJECTIONS, ids=str)
def test_oracle_rejects_the_rejected_queries(rejection: Rejection) -> None:
    with pytest.raises(RejectedError):
        parsed(rejection.query, rejection.minor)
