"""The parameters of a search: what a request is parsed into, and values of extreme length; gabbits have the errors."""

from __future__ import annotations

import uuid

import pytest

from placement.exception import BadQuery
from placement.schemas.allocation_candidate import PARAMETERS
from placement.search import parsing
from placement.search.request import CandidateRequest, NameSetFilter

A, B = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


def parse(text: str, minor: int = 29) -> CandidateRequest:
    return parsing.parse(text, (1, minor))


def rejection(text: str, minor: int = 29) -> str:
    with pytest.raises(BadQuery) as caught:
        parse(text, minor)
    return str(caught.value)


def test_no_parameter_reads_as_another_one_with_a_suffix() -> None:
    """Since 1.33 a suffix may begin with any letter, so the schema would have the name of a parameter for two."""
    names = [parameter.name for parameter in PARAMETERS]
    beginnings = [parameter.name for parameter in PARAMETERS if parameter.of_group]
    assert [
        (name, beginning)
        for name in names
        for beginning in beginnings
        if name != beginning and name.startswith(beginning)
    ] == [], 'choose another beginning'


def test_resources_are_amounts_by_class() -> None:
    amounts = parsing.parse_resources('VCPU:2,MEMORY_MB:1024, VCPU :003')
    assert amounts == {'VCPU': 2, 'MEMORY_MB': 1024, ' VCPU ': 3}


@pytest.mark.parametrize('amount', ['2147483647', '0' * 5000 + '2147483647'])
def test_amounts_that_an_inventory_can_hold_are_exact(amount: str) -> None:
    assert parsing.parse_resources(f'VCPU:{amount}') == {'VCPU': 2147483647}


@pytest.mark.parametrize('amount', ['2147483648', '9' * 19, '1' + '0' * 400, '9' * 100000])
def test_amounts_of_any_length_become_one_above_every_inventory(amount: str) -> None:
    assert parsing.parse_resources(f'VCPU:{amount}') == {'VCPU': parsing.BEYOND_ANY_INVENTORY}


def test_a_limit_of_any_length_is_accepted() -> None:
    limit = parse(f'resources=VCPU:1&limit={"9" * 5000}').limit
    assert limit is not None
    assert limit > 10**9


def test_groups_beyond_the_maximum_are_rejected_also_without_resources() -> None:
    max_groups = parsing.MAX_REQUEST_GROUPS
    text = ''.join(f'&required_{number}=A' for number in range(max_groups))
    assert f'more than {max_groups} request groups' in rejection(f'resources=VCPU:1{text}', 36)


def test_an_alternative_of_one_trait_is_a_required_trait() -> None:
    read = parsing.parse_required(['in:A,B', 'C,!D', 'in: B ,A,A', 'in:E', 'in:C,E'], (1, 39))
    assert read == NameSetFilter(tuple(map(frozenset, ('AB', 'C', 'E', 'CE'))), frozenset('D'))


def test_groups_keep_what_they_ask_for() -> None:
    request = parse(
        f'resources_A=VCPU:1&required_A=in:B,A&required_A=C,!D&member_of_A=!in:{A},{B}'
        f'&in_tree_A={B}&in_tree_A= {A.upper()} '
        '&required_N=E&same_subtree=_A, _N ,_A&same_subtree=_N&root_required=R,!S&group_policy=none',
        39,
    )
    group, bare = request.groups
    assert group.traits == NameSetFilter((frozenset('AB'), frozenset('C')), frozenset('D'))
    assert group.aggregates == NameSetFilter(forbidden=frozenset({A, B}))
    assert group.in_tree == A
    assert (bare.suffix, bare.use_same_provider, len(bare.resources)) == ('_N', True, 0)
    assert bare.traits == NameSetFilter.all_of('E')
    assert request.same_subtree == (frozenset({'_A', '_N'}), frozenset({'_N'}))
    assert request.root_traits == NameSetFilter.all_of('R', frozenset('S'))
    assert request.trait_names == set('ABCDERS')


def test_conflicting_traits_are_in_the_order_of_the_url_below_1_30_and_sorted_since() -> None:
    text = 'resources2=VCPU:1&required2=A,!A&resources1=VCPU:1&required1=C,!C'
    assert rejection(text, 29).endswith('keys: required2: (A), required1: (C)')
    assert rejection(text, 30).endswith('keys: required1: (C), required2: (A)')


MALFORMED = {
    'thousands of groups': '&'.join(f'resources{n}=VCPU:1' for n in range(1, 4000)),
    'thousands of limits': 'resources=VCPU:1' + ''.join(f'&limit={n}' for n in range(1, 6000)) + '&limit=x',
    'megabytes': 'resources=VCPU:1&required=' + 'A' * 2_000_000,
    'many ampersands': '&' * 60000,
    'long key': 'x' * 60000,
    'many bad amounts': 'resources=' + ','.join(['VCPU:-1'] * 6000),
    'deep percent': 'resources=' + '%25' * 20000,
    'backtracking': 'resources' + '1' * 60000 + 'x=VCPU:1',
}


@pytest.mark.parametrize('name', MALFORMED)
@pytest.mark.parametrize('minor', [10, 24, 29])
def test_a_long_malformed_query_is_rejected_with_a_shorter_message(name: str, minor: int) -> None:
    assert len(rejection(MALFORMED[name], minor)) < 100_000
