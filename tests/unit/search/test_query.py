"""The query string of GET /allocation_candidates: how each parameter is parsed, and every check."""

from __future__ import annotations

import uuid

import pytest

from placement.exception import BadQuery
from placement.search import parsing
from placement.search.request import CandidateRequest

A, B = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


def parse(text: str, minor: int = 29) -> CandidateRequest:
    return parsing.parse(text, (1, minor))


def rejection(text: str, minor: int = 29) -> str:
    with pytest.raises(BadQuery) as caught:
        parse(text, minor)
    return str(caught.value)


def test_groups_keep_what_they_ask_for() -> None:
    request = parse(
        f'resources=VCPU:2,MEMORY_MB:512&required=A,!B&resources7=VGPU:1&required7=!!C&member_of7=in:{A},{B}'
        f'&member_of7={A}&member_of={B}&limit=3&group_policy=isolate'
    )
    unnumbered, seventh = request.groups
    assert (unnumbered.suffix, unnumbered.use_same_provider) == ('', False)
    assert unnumbered.resources == {'VCPU': 2, 'MEMORY_MB': 512}
    assert (unnumbered.required, unnumbered.forbidden) == (frozenset('A'), frozenset('B'))
    assert unnumbered.member_of == (frozenset({B}),)
    assert (seventh.suffix, seventh.use_same_provider) == ('7', True)
    assert seventh.forbidden == {'C'}
    assert seventh.member_of == (frozenset({A, B}), frozenset({A}))
    assert (request.limit, request.group_policy, request.isolate) == (3, 'isolate', True)


@pytest.mark.parametrize(
    'key', ['x', 'resources0', 'resources01', 'resources1a', 'resources_x', 'limit1', 'resources1%0A']
)
def test_key_unknown_from_1_25(key: str) -> None:
    message = rejection(f'resources=VCPU:1&{key}=VCPU:1', 25)
    assert 'Invalid query string parameters:' in message
    assert 'does not match any of the regexes' in message


@pytest.mark.parametrize(
    ('minor', 'text', 'phrase'),
    [
        (16, 'limit=0', "'resources' is a required property"),
        (16, 'resources=VCPU:1&limit=0&x=1', "'x' was unexpected"),
        (25, 'resources=VCPU:1&limit=0&x=1', "'x' does not match any of the regexes"),
        (25, 'group_policy=bob&x=1', "'x' does not match any of the regexes"),
        (25, 'group_policy=bob&limit=0', "Failed validating 'pattern'"),
    ],
)
def test_missing_and_unknown_keys_are_reported_before_bad_values(minor: int, text: str, phrase: str) -> None:
    assert phrase in rejection(text, minor)


@pytest.mark.parametrize('value', ['0', '-1', '+1', '', 'x', '1x', '01', '1%0A', '%D9%A1', '1.0'])
@pytest.mark.parametrize('minor', [16, 29])
def test_bad_limit(value: str, minor: int) -> None:
    for text in (f'limit={value}', f'limit={value}&limit=5', f'limit=5&limit={value}'):
        message = rejection(f'resources=VCPU:1&{text}', minor)
        assert 'Invalid query string parameters:' in message
        assert "Failed validating 'pattern'" in message


@pytest.mark.parametrize('value', ['', 'None', 'isolate%0A', 'both'])
def test_bad_group_policy(value: str) -> None:
    for text in (
        f'group_policy={value}',
        f'group_policy={value}&group_policy=none',
        f'group_policy=none&group_policy={value}',
    ):
        message = rejection(f'resources=VCPU:1&{text}')
        assert 'Invalid query string parameters:' in message
        assert "is not one of ['none', 'isolate']" in message


def test_a_limit_of_any_length_is_accepted() -> None:
    limit = parse(f'resources=VCPU:1&limit={"9" * 5000}').limit
    assert limit is not None
    assert limit > 10**9


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
def test_malformed_query_is_rejected(name: str, minor: int) -> None:
    assert len(rejection(MALFORMED[name], minor)) < 100_000


# From 1.30 on ---------------------------------------------------------------------------------------------------


def rejected(text: str, minor: int) -> tuple[str, type[BadQuery]]:
    with pytest.raises(BadQuery) as caught:
        parse(text, minor)
    return str(caught.value), type(caught.value)


def test_what_groups_ask_for_since_1_39() -> None:
    request = parse(
        f'resources_A=VCPU:1&required_A=in:B,A&required_A=C,!D&member_of_A=!in:{A},{B}'
        f'&in_tree_A={B}&in_tree_A= {A.upper()} '
        '&required_N=E&same_subtree=_A, _N ,_A&same_subtree=_N&root_required=R,!S&group_policy=none',
        39,
    )
    group, bare = request.groups
    assert group.required == {'C'}
    assert group.forbidden == {'D'}
    assert group.required_any == {frozenset('AB')}
    assert group.forbidden_aggregates == {A, B}
    assert group.in_tree == A
    assert (bare.suffix, bare.use_same_provider, len(bare.resources)) == ('_N', True, 0)
    assert bare.required == {'E'}
    assert request.same_subtree == (frozenset({'_A', '_N'}), frozenset({'_N'}))
    assert request.root_required == {'R'}
    assert request.root_forbidden == {'S'}
    assert request.with_mappings
    assert request.traits == set('ABCDERS')


@pytest.mark.parametrize('suffix', ['%C3%A9', 'A.B', '_A%0A', 'x' * 65, '1' * 65])
def test_suffixes_have_64_characters_of_few_kinds(suffix: str) -> None:
    assert 'does not match any of the regexes' in rejected(f'resources=VCPU:1&resources{suffix}=VCPU:1', 33)[0]


def test_a_suffix_of_digits_has_any_length_below_1_33() -> None:
    assert parse(f'resources{"1" * 65}=VCPU:1', 32).groups[0].suffix == '1' * 65
    assert parse(f'resources{"x" * 64}=VCPU:1', 33).groups[0].suffix == 'x' * 64


@pytest.mark.parametrize('key', ['root_required1', 'same_subtree1', 'limit_A', 'group_policy1'])
def test_parameters_of_the_whole_request_have_no_suffix(key: str) -> None:
    assert 'does not match any of the regexes' in rejected(f'resources=VCPU:1&{key}=1', 39)[0]


def test_conflicting_traits_since_1_30() -> None:
    text = 'resources2=VCPU:1&required2=A,!A&resources1=VCPU:1&required1=C,!C'
    assert rejected(text, 29)[0].endswith('keys: required2: (A), required1: (C)')
    assert rejected(text, 30)[0].endswith('keys: required1: (C), required2: (A)')
    assert rejected('resources=VCPU:1&required=in:B,A&required=!A,!B', 39)[0].endswith('keys: required: (A, B)')
    assert parse('resources=VCPU:1&required=in:B,A&required=!A', 39).groups[0].required_any == {frozenset('AB')}


def test_groups_without_resources_count_as_groups() -> None:
    max_groups = parsing.MAX_REQUEST_GROUPS
    text = ''.join(f'&required_{n}=A' for n in range(max_groups))
    assert f'more than {max_groups} request groups' in rejected(f'resources=VCPU:1{text}', 36)[0]
