"""The work of the largest queries, in evaluations: a provider, or a distinct set of names, against one condition."""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from placement.cache.dictionary_columns import NameSetColumn
from placement.cache.providers import Provider
from placement.cache.snapshot import KnownNames, Snapshot
from placement.capacity import InventoryRecord
from placement.ops.explain.explanation import explain
from placement.search import conditions, filter_providers, find_candidates, parsing
from placement.search.budget import Limit, SearchBudget
from placement.search.conditions import ProviderCondition
from tests.support.applications import NEWEST_VERSION
from tests.support.search.cached import snapshot_of
from tests.support.search.oracle import SHARES, rp

HOSTS, MAX_STEPS = 300, 5_000
CLASSES = ['VCPU', 'MEMORY_MB', 'DISK_GB']
TRAITS = [f'CUSTOM_T{number}' for number in range(40)]
AGGREGATES = [str(uuid.UUID(int=number)) for number in range(50)]


@pytest.fixture(scope='module')
def snapshot() -> Snapshot:
    """Hosts of which no two have the same traits, aggregates or free capacity, and ten that share their disks."""
    rng = random.Random(1)
    providers = [
        Provider(
            id=number,
            uuid=str(uuid.UUID(int=10**6 + number)),
            root_id=number,
            parent_id=None,
            inventories={
                name: InventoryRecord(1000, used=rng.randrange(900)) for name in CLASSES[-1 if shares else 0 :]
            },
            traits=frozenset([*rng.sample(TRAITS, 8), *([SHARES] if shares else [])]),
            aggregates=frozenset(rng.sample(AGGREGATES, 5)),
        )
        for number, shares in enumerate([True] * 10 + [False] * HOSTS, start=1)
    ]
    names = KnownNames(dict(enumerate(CLASSES)), frozenset([*TRAITS, SHARES]))
    return Snapshot.build(names, providers, size=100)


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of evaluations, in columns and of single providers."""
    counts: Counter[str] = Counter()
    where = NameSetColumn.where

    def counted_where(column: NameSetColumn, predicate: Callable[[frozenset[str]], bool]) -> Any:
        counts['columns'] += len(column.values)
        return where(column, predicate)

    monkeypatch.setattr(NameSetColumn, 'where', counted_where)
    for kind in vars(conditions).values():
        # Others inherit it.
        if not (isinstance(kind, type) and issubclass(kind, ProviderCondition) and 'accepts' in vars(kind)):
            continue
        accepts: Callable[..., Any] = kind.accepts

        def counted(self: Any, *providers: Any, accepts: Callable[..., Any] = accepts) -> Any:
            counts['providers'] += 1
            return accepts(self, *providers)

        monkeypatch.setattr(kind, 'accepts', counted)
    return counts


def _repeated(parameter: str, value: Callable[[int], str], count: int) -> str:
    return ''.join(f'&{parameter}={value(number)}' for number in range(count))


def _absent(number: int) -> str:
    return str(uuid.UUID(int=2**100 + number))


#: Nothing in these matters but the number of conditions: every host satisfies nearly all of those of groups.
CONDITIONS = {
    'forbidden aggregates': _repeated('member_of', lambda number: f'!{_absent(number)}', 1000),
    'sets of aggregates': _repeated(
        'member_of', lambda number: 'in:' + ','.join([_absent(number), *AGGREGATES[:-1]]), 30
    ),
    'traits of roots': '&root_required=' + ','.join([*TRAITS[20:22], *(f'!{name}' for name in TRAITS[:20])]),
    'forbidden traits': '&required=' + ','.join(f'!{name}' for name in TRAITS[:20]),
    'sets of traits': _repeated(
        'required', lambda number: f'in:{TRAITS[number // 39]},{",".join(TRAITS[number % 39 - 19 :])}', 200
    ),
}
GROUPS = {
    'groups with conditions of their own': ''.join(
        f'&resources{number}=VCPU:{number % 7 + 1}&required{number}=!{TRAITS[number % 40]}'
        f'&member_of{number}=!{_absent(number)}&member_of{number}=in:{",".join(AGGREGATES[number % 40 :])}'
        for number in range(20)
    ),
    'subtrees': ''.join(f'&resources{number}=VCPU:1' for number in range(60))
    + ''.join(f'&same_subtree={number},{number + 1},{other}' for number in range(58) for other in range(number)),
}


@pytest.mark.parametrize('name', CONDITIONS)
def test_the_conditions_of_a_search_are_evaluated_once(
    snapshot: Snapshot, evaluations: Counter[str], name: str
) -> None:
    text = f'resources=VCPU:1,MEMORY_MB:1,DISK_GB:1{CONDITIONS[name]}&resources1=VCPU:1&group_policy=none'
    request = parsing.parse(text, NEWEST_VERSION)
    find_candidates(snapshot, request, SearchBudget())
    # Each tree has a class of its own, and its provider and the sharing ones satisfy some five conditions each.
    assert evaluations['columns'] <= 10 * (HOSTS + 10)
    assert evaluations['providers'] <= 30 * (HOSTS + 10) * 8


@pytest.mark.parametrize('name', GROUPS)
def test_a_search_ends_when_its_steps_are_used_wherever_that_is(
    snapshot: Snapshot, evaluations: Counter[str], name: str
) -> None:
    budget = SearchBudget(max_steps=MAX_STEPS)
    find_candidates(snapshot, parsing.parse(f'group_policy=none{GROUPS[name]}', NEWEST_VERSION), budget)
    assert budget.reached == {Limit.REQUEST_STEPS}
    assert evaluations.total() <= 2 * MAX_STEPS


@pytest.mark.parametrize('name', CONDITIONS)
def test_the_conditions_of_a_list_are_evaluated_once(snapshot: Snapshot, evaluations: Counter[str], name: str) -> None:
    [group] = parsing.parse(f'resources=VCPU:1{CONDITIONS[name]}', NEWEST_VERSION).groups
    list(filter_providers(snapshot, dataclasses.replace(group, use_same_provider=True)))
    assert evaluations.total() <= 2 * (HOSTS + 10)


@pytest.mark.parametrize('name', [*GROUPS, *CONDITIONS])
def test_an_explanation_ends_when_its_steps_are_used(snapshot: Snapshot, evaluations: Counter[str], name: str) -> None:
    text = (
        f'resources=DISK_GB:2000&group_policy=none{GROUPS[name]}'
        if name in GROUPS
        else f'resources=DISK_GB:2000{CONDITIONS[name]}'
    )
    budget = SearchBudget(max_steps=MAX_STEPS)
    result = explain(snapshot, parsing.parse(text, NEWEST_VERSION), budget)
    assert result.candidates == 0
    assert result.limits_reached <= {Limit.REQUEST_STEPS}
    assert evaluations.total() <= 2 * MAX_STEPS


def test_an_explanation_compares_only_pools_with_hosts_that_could_reach_them(evaluations: Counter[str]) -> None:
    hosts = [rp(f'host{number}', aggregates=f'rack{number}', VCPU=8) for number in range(HOSTS)]
    others = [rp(f'storage{number}', aggregates=f'other{number}', DISK_GB=100) for number in range(HOSTS)]
    snapshot = snapshot_of([*hosts, *others])
    result = explain(snapshot, parsing.parse('resources=VCPU:1,DISK_GB:50', NEWEST_VERSION), SearchBudget())
    assert (result.placeable, list(result.pools)) == (0, [])
    assert evaluations.total() <= 10 * 2 * HOSTS
