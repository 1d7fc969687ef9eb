"""The sentences of explanations, for each kind of cause and reason; and the request without some of its rules."""

from __future__ import annotations

import pytest

from placement.ops.explain.blockers import Cause, CauseKind
from placement.ops.explain.rules import Kind, Rule, without
from placement.ops.explain.sentences import cause_text, rejection_texts
from placement.ops.explain.stages import Shortfall, ShortfallKind
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.requirements import ResourceCondition, TraitCondition, TreeCondition

TRAIT = Rule(Kind.REQUIRED, ('1', '2'), 'CUSTOM_RED', TraitCondition((frozenset({'CUSTOM_RED'}),)))
ROOT = Rule(Kind.ROOT_REQUIRED, (), '!CUSTOM_RED', TraitCondition((frozenset({'CUSTOM_RED'}),), forbidden=True))
AMOUNT = Rule(Kind.RESOURCES, ('',), 'MEMORY_MB:2048', ResourceCondition('MEMORY_MB', 2048))
SHORTFALLS = [
    Shortfall('MEMORY_MB', ShortfallKind.MAX_UNIT, 512, 2048, 1),
    Shortfall('MEMORY_MB', ShortfallKind.STEP_SIZE, 3, 2048, 1200, max_value=5),
    Shortfall('MEMORY_MB', ShortfallKind.TOTAL_CAPACITY, 1024, 2048, 2),
    Shortfall('MEMORY_MB', ShortfallKind.FREE_CAPACITY, 0, 2048, 3),
]
AMOUNTS_AND_REASONS = (
    'max_unit is 512 MiB, requested 2 GiB: 1 provider; step_size is 3 MiB to 5 MiB, requested 2 GiB: 1,200 providers;'
    ' total capacity below 2 GiB (max 1 GiB): 2 providers; free capacity below 2 GiB (max 0): 3 providers'
)
REST = 'but not together with the rest of the request'
COMMON = 'an aggregate in common with the trees that satisfy the other rules'

CAUSES = [
    (Cause(CauseKind.NONE_EXISTS, TRAIT), 'No provider has the trait CUSTOM_RED.'),
    (Cause(CauseKind.NONE_EXISTS, AMOUNT), 'No provider has inventory of MEMORY_MB.'),
    (Cause(CauseKind.NONE_LEFT, TRAIT), 'No provider satisfies the other rules of group 1.'),
    (
        Cause(CauseKind.REJECTED, TRAIT, 3),
        'Each provider that satisfies the other rules of group 1 lacks the trait CUSTOM_RED: 3 providers.',
    ),
    (
        Cause(CauseKind.ROOTS_REJECTED, ROOT, 1),
        'The root of each tree that satisfies the other rules has the forbidden trait CUSTOM_RED: 1 tree.',
    ),
    (
        Cause(CauseKind.NOT_TOGETHER, TRAIT, 3, 1),
        (
            'Providers that satisfy the other rules of group 1 also satisfy required1,2 CUSTOM_RED,'
            f' {REST}: 1 of 3 providers.'
        ),
    ),
    (
        Cause(CauseKind.ROOTS_NOT_TOGETHER, ROOT, 3, 2),
        f'Roots of trees that satisfy the other rules also satisfy root_required !CUSTOM_RED, {REST}: 2 of 3 trees.',
    ),
    (
        Cause(CauseKind.NOT_IN_TREES, AMOUNT, 12),
        (
            '12 trees can satisfy the other rules, but cannot supply MEMORY_MB, because no own or shared provider of it'
            ' satisfies them.'
        ),
    ),
    (
        Cause(CauseKind.INSUFFICIENT, AMOUNT, shortfalls=SHORTFALLS),
        f'No provider that satisfies the other rules can allocate MEMORY_MB:2048: {AMOUNTS_AND_REASONS}.',
    ),
    (
        Cause(CauseKind.INSUFFICIENT_ANYWHERE, AMOUNT, shortfalls=SHORTFALLS[:1]),
        'No provider can allocate MEMORY_MB:2048: max_unit is 512 MiB, requested 2 GiB: 1 provider.',
    ),
    (
        Cause(CauseKind.UNSHARED_WITHOUT_TRAIT, AMOUNT, 5, names=['a', 'b', 'c']),
        'a, b, c (and 2 more) could provide MEMORY_MB:2048 with the trait MISC_SHARES_VIA_AGGREGATE.',
    ),
    (
        Cause(CauseKind.UNSHARED_WITHOUT_AGGREGATE, AMOUNT, 1, names=['a']),
        f'a could provide MEMORY_MB:2048 with {COMMON}.',
    ),
]


@pytest.mark.parametrize(('cause', 'text'), CAUSES)
def test_causes(cause: Cause, text: str) -> None:
    assert cause_text(cause) == text


def test_every_kind_of_cause_has_a_sentence() -> None:
    assert {cause.kind for cause, _ in CAUSES} == set(CauseKind)


def test_rejected_inventories_by_number() -> None:
    rejected = {'max_unit': 1, 'total_capacity': 2, 'free_capacity': 4300}
    assert rejection_texts(rejected) == ['4,300 full', '2 with too little total capacity', '1 limited by max_unit']


@pytest.mark.parametrize('kind', [Kind.ROOT_REQUIRED, Kind.IN_TREE, Kind.GROUP_POLICY])
def test_rule_of_the_whole_request_that_nobody_can_leave_out_is_an_error(kind: Kind) -> None:
    """A new parameter that is a condition but belongs to no group needs a case of its own."""
    request = CandidateRequest(groups=(RequestGroup('', False, {'VCPU': 1}),))
    with pytest.raises(TypeError, match=kind.name):
        without(request, Rule(kind, (), 'uuid', TreeCondition(None, False, 'uuid')))
