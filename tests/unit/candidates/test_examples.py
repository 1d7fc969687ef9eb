"""The worked examples, tested on the search alone and on the oracle of other tests."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from placement.candidates.budget import Budget
from placement.candidates.search import chosen, search
from tests.support.candidates.examples import EXAMPLES, WORLDS, Example, bodies
from tests.support.candidates.oracle import Group, Oracle, Query, assert_candidates
from tests.support.candidates.worlds import Rows, request_of


def parsed(text: str, minor: int) -> Query:
    """Parse a query string of the examples; they are all valid, so nothing is checked."""
    groups: dict[str, Group] = {}
    query = Query([], None, None, minor)
    for key, value in parse_qsl(text):
        if key == 'group_policy':
            query.policy = value
            continue
        [(kind, number)] = re.findall(r'^([a-z_]+?)(\d*)$', key)
        group = groups.setdefault(number, Group(number, {}))
        if kind == 'resources':
            group.resources = {rc: int(n) for rc, n in (item.split(':') for item in value.split(','))}
        elif kind == 'required':
            group.required = {name for name in value.split(',') if name[0] != '!'}
            group.forbidden = {name[1:] for name in value.split(',') if name[0] == '!'}
        else:
            group.member_of.append(set(value.removeprefix('in:').split(',')))
    query.groups = list(groups.values())
    return query


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_search_finds_the_candidates_of_the_table(example: Example) -> None:
    rows = Rows(WORLDS[example.world])
    request = request_of(parsed(example.query, example.minor))
    found = [rows.body(one) for one in search(rows.sites(), request, Budget())]
    assert_candidates(found, bodies(example.candidates))


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_oracle_agrees_with_the_table(example: Example) -> None:
    oracle = Oracle(WORLDS[example.world])
    query = parsed(example.query, example.minor)
    found = oracle.candidates(query)
    assert found == bodies(example.candidates)
    assert set(oracle.summaries(query, found)) == set(example.summaries.split())


def test_limit_of_one_gives_one_of_the_table() -> None:
    rows = Rows(WORLDS['X4'])
    request = request_of(parsed('resources=SRIOV_NET_VF:1', 29))
    [candidate] = chosen(search(rows.sites(), request, Budget()), replace(request, limit=1), Budget())
    assert rows.body(candidate) in bodies('pf0{SRIOV_NET_VF:1}; pf1{SRIOV_NET_VF:1}')
