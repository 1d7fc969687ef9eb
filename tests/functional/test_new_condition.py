"""A new kind of condition is explained as soon as it has its texts and its words (CONTRIBUTING.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition
from placement.cache.providers import Provider
from placement.ops.explain import explanation, sentences
from placement.ops.explain.checks import RequestChecks, checks_of
from placement.ops.explain.explanation import Explanation, explain
from placement.ops.explain.sentences import ARE, Phrase, Words, Writer
from placement.search import parsing
from placement.search.budget import SearchBudget
from placement.search.conditions import ProviderCondition
from placement.search.request import CompiledRequest, compile_request
from tests.support.applications import NEWEST_VERSION
from tests.support.search.cached import snapshot_of
from tests.support.search.oracle import RP, rp


@dataclass(frozen=True)
class NameSuffixCondition(ProviderCondition):
    """The name of the provider ends with a text, as if a query had ``name_suffix=a``."""

    suffix: str

    parameter = 'name_suffix'

    @property
    def subject(self) -> str:
        return self.suffix

    def accepts(self, provider: Provider, _root: Provider | None) -> bool:
        return provider.display_name.endswith(self.suffix)

    def matches(self, partition: Partition) -> Flags:
        return np.array([self.accepts(provider, None) for provider in partition.providers], np.bool_)


class OfWholeRequest(NameSuffixCondition):
    """The same, if the root and every provider have to satisfy it."""

    of_whole_request = True


class StateOfName(NameSuffixCondition):
    """Another rule, which a query cannot tell from the first one."""

    is_state = True


class ForbiddenState(NameSuffixCondition):
    """The same, if a name must not have the suffix, and names change like states."""

    forbidden = True
    is_state = True


@pytest.fixture
def suffix() -> str:
    return '-a'


@pytest.fixture(autouse=True)
def _condition(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Each group also has the new condition, and the condition has its words."""
    condition = NameSuffixCondition(suffix)

    def compile_with_condition(*arguments: Any) -> CompiledRequest:
        compiled = compile_request(*arguments)
        requirements = [
            replace(requirement, conditions=(*requirement.conditions, condition))
            for requirement in compiled.requirements
        ]
        return replace(compiled, requirements=tuple(requirements))

    monkeypatch.setattr(explanation, 'compile_request', compile_with_condition)
    words = Words(Phrase(ARE, 'called {subject}'), Phrase(ARE, 'called otherwise'))
    monkeypatch.setitem(sentences.WORDS, 'name_suffix', words)


def explained(topology: list[RP], query: str) -> Explanation:
    return explain(snapshot_of(topology), parsing.parse(query, NEWEST_VERSION), SearchBudget())


def test_it_is_a_near_miss_and_has_a_row() -> None:
    topology = [rp('host-a', VCPU=4), *(rp(f'host-b{number}', VCPU=64) for number in range(3))]
    result = explained(topology, 'resources=VCPU:32')
    assert [(stage.rule.parameter, stage.rule.subject, stage.trees) for stage in result.stages] == [
        ('resources', 'VCPU:32', 3),
        ('name_suffix', '-a', 0),
    ]
    assert Writer().sentences(result) == [
        'No host large enough for VCPU:32 is called -a.',
        '1 host too small for VCPU:32 is.',
    ]


def test_suitable_hosts_are_told_apart_by_it() -> None:
    topology = [rp('host-a', VCPU={'total': 8, 'used': 6}), rp('host-b', VCPU=8)]
    assert Writer().sentences(explained(topology, 'resources1=VCPU:4')) == [
        '1 host is called -a for group 1.',
        '1 lacks VCPU:4 for group 1 (closest: host-a, 2 free).',
    ]


def test_a_search_with_it_finds_what_satisfies_it() -> None:
    assert explained([rp('host-a', VCPU=8), rp('host-b', VCPU=8)], 'resources=VCPU:4').candidates == 1


@pytest.mark.parametrize('suffix', ['CUSTOM_RED'])
def test_its_text_may_be_that_of_a_trait(suffix: str) -> None:
    topology = [rp('host', traits=['CUSTOM_REED'], VCPU=8)]
    assert Writer().sentences(explained(topology, f'resources=VCPU:4&required={suffix}')) == [
        'No provider is called CUSTOM_RED.',
        'No provider has CUSTOM_RED. The closest name in use is CUSTOM_REED.',
        'The closest one is called otherwise and lacks CUSTOM_RED.',
    ]


def test_the_words_of_disabled_hosts_are_not_for_other_forbidden_states(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Words(Phrase(ARE, 'called otherwise'), Phrase(ARE, 'called {subject}'))
    monkeypatch.setitem(sentences.WORDS, '!name_suffix', words)
    [check] = checks_of(ForbiddenState('-a'), ('',))
    assert Writer().words(check).fails.rest == 'called -a'


def test_it_is_one_rule_if_it_belongs_to_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    condition = OfWholeRequest('-b')

    def compile_with_condition(*arguments: Any) -> CompiledRequest:
        compiled = compile_request(*arguments)
        root, *requirements = (
            replace(requirement, conditions=(*requirement.conditions, condition))
            for requirement in (compiled.root, *compiled.requirements)
        )
        return replace(compiled, requirements=tuple(requirements), root=root)

    monkeypatch.setattr(explanation, 'compile_request', compile_with_condition)
    result = explained(
        [rp('host-a', VCPU=8), rp('host-b', VCPU=8)], 'resources1=VCPU:4&resources2=VCPU:16&group_policy=none'
    )
    assert [(stage.rule.parameter, stage.rule.suffixes, stage.trees) for stage in result.stages] == [
        ('name_suffix', (), 1),
        ('resources', ('1',), 1),
        ('resources', ('2',), 0),
    ]


def test_different_conditions_of_a_group_need_different_subjects() -> None:
    compiled = compile_request(parsing.parse('resources1=VCPU:4', NEWEST_VERSION), snapshot_of([]))
    [requirement] = compiled.requirements

    def checks(*conditions: ProviderCondition) -> RequestChecks:
        return RequestChecks(replace(compiled, requirements=(replace(requirement, conditions=conditions),)))

    different = [NameSuffixCondition('-a'), NameSuffixCondition('-b'), ForbiddenState('-a'), OfWholeRequest('-a')]
    assert [check.condition for check in checks(*different, different[0]).in_order] == different
    with pytest.raises(ValueError, match='same parameter, subject and fault'):
        checks(different[0], StateOfName('-a'))
