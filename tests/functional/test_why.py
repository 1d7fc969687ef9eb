"""Why a search finds nothing: scenarios, each with a cloud, a query and the sentences."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import os_resource_classes
import os_traits
import pytest
import yaml

from placement.cache.snapshot import KnownNames, Snapshot
from placement.ops.explain.checks import RequestChecks
from placement.ops.explain.explanation import Explanation, explain
from placement.ops.explain.sentences import Writer
from placement.search import conditions, parsing
from placement.search.budget import SearchBudget
from placement.search.conditions import NameSetCondition, ProviderCondition
from placement.search.request import compile_request
from tests.support.applications import NEWEST_MICROVERSION, NEWEST_VERSION
from tests.support.search.cached import records_of
from tests.support.search.oracle import RP, rp
from tests.support.search.query_strings import uuid_of, with_uuids

DIRECTORY = Path(__file__).parent / 'why'
EXPLAIN = Path(__file__).parents[2] / 'doc' / 'explain.md'
SCENARIOS = {
    f'{path.stem}: {scenario["title"]}': scenario
    for path in sorted(DIRECTORY.glob('*.yaml'))
    for scenario in yaml.safe_load(path.read_text())
}
#: The kinds of conditions that a request can have.
KINDS = {
    kind for kind in vars(conditions).values() if isinstance(kind, type) and issubclass(kind, ProviderCondition)
} - {ProviderCondition, NameSetCondition}


def cloud(entries: list[dict[str, Any]]) -> list[RP]:
    topology = []
    for entry in entries:
        count, name, parent = entry.pop('count', None), entry.pop('name'), entry.pop('parent', None)
        aggregates = ' '.join(uuid_of(aggregate) for aggregate in entry.pop('aggregates', []))
        suffixes = [f'-{number}' for number in range(1, count + 1)] if count else ['']
        topology += [rp(f'{name}{suffix}', parent and f'{parent}{suffix}', aggregates, **entry) for suffix in suffixes]
    return topology


def snapshot(scenario: dict[str, Any]) -> Snapshot:
    """The cloud, with all standard classes and traits; the uuids are those that ``with_uuids`` has."""
    topology = cloud(copy.deepcopy(scenario['cloud']))
    classes = list(dict.fromkeys([*os_resource_classes.STANDARDS, *(name for rp in topology for name in rp.inventory)]))
    traits = {*os_traits.get_traits(), *scenario.get('traits', []), *itertools.chain(*(rp.traits for rp in topology))}
    providers = [
        dataclasses.replace(provider, uuid=uuid_of(provider.display_name)) for provider in records_of(topology, classes)
    ]
    return Snapshot.build(KnownNames(dict(enumerate(classes)), frozenset(traits)), providers, 10)


def explained(scenario: dict[str, Any]) -> Explanation:
    minor = int(scenario.get('microversion', NEWEST_MICROVERSION).partition('.')[2])
    request = parsing.parse(with_uuids(scenario['query']), (1, minor))
    return explain(snapshot(scenario), request, SearchBudget())


@pytest.mark.parametrize('title', SCENARIOS)
def test_the_sentences_name_what_has_to_change(title: str) -> None:
    scenario = SCENARIOS[title]
    shown = Writer().sentences(explained(scenario))
    expected = scenario.get('sentences') or [scenario['sentence']]
    # Aggregates and providers are given by name.
    expected = [re.sub(r'{([\w-]+)}', lambda match: uuid_of(match[1]), sentence) for sentence in expected]
    compared = shown[: len(expected)] if 'sentence' in scenario else shown
    assert compared == expected


def test_each_recorded_explanation_of_the_documentation_is_a_scenario() -> None:
    recorded = re.findall(
        r"^    \$ placement-manage explain (?:--microversion ([0-9.]+) )?'([^']+)'\n    (.+)$",
        EXPLAIN.read_text(),
        re.MULTILINE,
    )
    assert len(recorded) > 8
    for version, query, text in recorded:
        texts = [
            ' '.join(Writer().sentences(explained(scenario)))
            for scenario in SCENARIOS.values()
            if unquote(with_uuids(scenario['query'])) == query and (not version or scenario['microversion'] == version)
        ]
        assert text in texts, query


def test_a_pool_is_listed_with_the_aggregates_that_it_would_need() -> None:
    [scenario] = [scenario for title, scenario in SCENARIOS.items() if 'a larger one is in another aggregate' in title]
    [pool] = Writer().document(explained(scenario))['pools']
    missing = f'but is in none of their aggregates (aggregate {uuid_of("rack")})'
    assert pool['text'] == f'has 8,192 free, {missing}'


def test_every_condition_has_words() -> None:
    """Required and forbidden. Of a part without words, the log would only have a traceback."""
    of_group = 'resources{0}=VCPU:1&required{0}=A,!B,!COMPUTE_STATUS_DISABLED&member_of{0}=north&member_of{0}=!south'
    query = f'{of_group.format("")}&{of_group.format("1")}&in_tree1=host&root_required=A,!B,!COMPUTE_STATUS_DISABLED'
    compiled = compile_request(parsing.parse(with_uuids(query), NEWEST_VERSION), snapshot({'cloud': []}))
    polarities = {kind: {False, True} if issubclass(kind, NameSetCondition) else {False} for kind in KINDS}
    of_query = [
        condition for requirement in (compiled.root, *compiled.requirements) for condition in requirement.conditions
    ]
    assert polarities == {
        kind: {condition.forbidden for condition in of_query if type(condition) is kind} for kind in KINDS
    }, 'the query needs a parameter for each'
    for check in RequestChecks(compiled).in_order:
        words = Writer().words(check)
        assert words.passes != words.fails
        assert '{' not in f'{words}'


def test_the_parameter_of_every_condition_is_in_the_documentation_of_the_tables() -> None:
    _, _, text = EXPLAIN.read_text().partition('## The tables')
    assert [kind.parameter for kind in KINDS if not re.search(rf'\b{kind.parameter}', text)] == []


def test_the_members_of_the_json_output_are_documented() -> None:
    text = EXPLAIN.read_text()
    for scenario in SCENARIOS.values():
        assert [name for name in Writer().document(explained(scenario)) if f'`{name}`' not in text] == []
