"""The message about parameters of a query for candidates that a microversion lacks."""

from __future__ import annotations

import pytest

from placement.ops.explain import pasted_search


@pytest.mark.parametrize(
    ('query', 'message'),
    [
        ('resources=VCPU:1&in_tree=x', 'in_tree requires microversion 1.31'),
        ('resources1=VCPU:1&in_tree1=x', 'in_tree1 requires microversion 1.31'),
        ('resources=VCPU:1&member_of=!in:x', '! in member_of requires microversion 1.32'),
        ('resources1=VCPU:1&member_of1=%21x', '! in member_of1 requires microversion 1.32'),
        ('resources_NET1=VCPU:1', 'resources_NET1 requires microversion 1.33'),
        ('resources1=VCPU:1&required_a=b', 'required_a requires microversion 1.33'),
        ('resources=VCPU:1&in_tree_COMPUTE=x', 'in_tree_COMPUTE requires microversion 1.33'),
        ('resources=VCPU:1&root_required=A', 'root_required requires microversion 1.35'),
        ('resources1=VCPU:1&same_subtree=1,2', 'same_subtree requires microversion 1.36'),
        ('resources=VCPU:1&required=in:A,B', 'in: in required requires microversion 1.39'),
    ],
)
def test_parameters_of_later_microversions(query: str, message: str) -> None:
    assert (
        pasted_search.unknown_parameter(query, (1, 29), (1, 29)) == f'{message}, and this service supports up to 1.29.'
    )


@pytest.mark.parametrize(
    ('query', 'minor', 'message'),
    [
        ('resources=VCPU:1&limit=5', 15, 'limit requires microversion 1.16'),
        ('resources=VCPU:1&required=A', 16, 'required requires microversion 1.17'),
        ('resources=VCPU:1&member_of=a', 20, 'member_of requires microversion 1.21'),
        ('resources=VCPU:1&required=!A', 21, '! in required requires microversion 1.22'),
        ('resources=VCPU:1&member_of=a&member_of=b', 23, 'member_of given twice requires microversion 1.24'),
        ('resources1=VCPU:1', 24, 'resources1 requires microversion 1.25'),
        ('resources=VCPU:1&group_policy=none', 24, 'group_policy requires microversion 1.25'),
    ],
)
def test_parameters_above_the_microversion_of_the_request(query: str, minor: int, message: str) -> None:
    expected = f'{message}, and the request has 1.{minor}.'
    assert pasted_search.unknown_parameter(query, (1, minor), (1, 29)) == expected
    assert pasted_search.unknown_parameter(query, (1, minor + 1), (1, 29)) is None


def test_an_unknown_parameter() -> None:
    assert (
        pasted_search.unknown_parameter('unknown=1', (1, 29), (1, 29))
        == 'unknown is not a parameter of GET /allocation_candidates.'
    )
    assert (
        pasted_search.unknown_parameter(
            'resources=VCPU%3A4&required=HW_CPU_X86_AVX2,!CUSTOM_A&limit=10', (1, 29), (1, 29)
        )
        is None
    )
