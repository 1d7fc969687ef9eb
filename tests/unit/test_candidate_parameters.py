"""The message about parameters of a query for candidates that a microversion lacks."""

from __future__ import annotations

import pytest

from placement.handlers import candidate_parameters


@pytest.mark.parametrize(
    ('query', 'told'),
    [
        ('resources=VCPU:1&in_tree=x', 'in_tree needs 1.31'),
        ('resources1=VCPU:1&in_tree1=x', 'in_tree1 needs 1.31'),
        ('resources=VCPU:1&member_of=!in:x', '! in member_of needs 1.32'),
        ('resources1=VCPU:1&member_of1=%21x', '! in member_of1 needs 1.32'),
        ('resources_NET1=VCPU:1', 'resources_NET1 needs 1.33'),
        ('resources1=VCPU:1&required_a=b', 'required_a needs 1.33'),
        ('resources=VCPU:1&in_tree_COMPUTE=x', 'in_tree_COMPUTE needs 1.33'),
        ('resources=VCPU:1&root_required=A', 'root_required needs 1.35'),
        ('resources1=VCPU:1&same_subtree=1,2', 'same_subtree needs 1.36'),
        ('resources=VCPU:1&required=in:A,B', 'in: in required needs 1.39'),
    ],
)
def test_parameters_of_later_microversions(query: str, told: str) -> None:
    assert candidate_parameters.unknown(query, (1, 29), (1, 29)) == f'{told}, this service speaks 1.29.'


@pytest.mark.parametrize(
    ('query', 'minor', 'told'),
    [
        ('resources=VCPU:1&limit=5', 15, 'limit needs 1.16'),
        ('resources=VCPU:1&required=A', 16, 'required needs 1.17'),
        ('resources=VCPU:1&member_of=a', 20, 'member_of needs 1.21'),
        ('resources=VCPU:1&required=!A', 21, '! in required needs 1.22'),
        ('resources=VCPU:1&member_of=a&member_of=b', 23, 'member_of given twice needs 1.24'),
        ('resources1=VCPU:1', 24, 'resources1 needs 1.25'),
        ('resources=VCPU:1&group_policy=none', 24, 'group_policy needs 1.25'),
    ],
)
def test_parameters_above_the_microversion_of_the_request(query: str, minor: int, told: str) -> None:
    expected = f'{told}, the request is one of 1.{minor}.'
    assert candidate_parameters.unknown(query, (1, minor), (1, 29)) == expected
    assert candidate_parameters.unknown(query, (1, minor + 1), (1, 29)) is None


def test_an_unknown_parameter() -> None:
    assert (
        candidate_parameters.unknown('unknown=1', (1, 29), (1, 29))
        == 'unknown is no parameter of GET /allocation_candidates.'
    )
    assert (
        candidate_parameters.unknown('resources=VCPU%3A4&required=HW_CPU_X86_AVX2,!CUSTOM_A&limit=10', (1, 29), (1, 29))
        is None
    )
