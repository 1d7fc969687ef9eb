"""The query string of GET /allocation_candidates: how each parameter is parsed, and every check."""

from __future__ import annotations

import uuid

import pytest

from placement.exception import BadQuery, BadQueryValue, DuplicateQueryKey, MissingQueryValue
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


def test_of_resources_and_required_the_last_is_used_and_of_limit_and_policy_the_first() -> None:
    request = parse(
        'resources=VCPU:1&resources=VGPU:2&required=A&required=B&limit=5&limit=6&group_policy=none&group_policy=isolate'
    )
    assert request.groups[0].resources == {'VGPU': 2}
    assert request.groups[0].required == {'B'}
    assert (request.limit, request.isolate) == (5, False)


@pytest.mark.parametrize('minor', [10, 16, 17, 28])
def test_below_1_29_trees_are_not_understood(minor: int) -> None:
    request = parse('resources=VCPU:1', minor)
    assert not request.nested_aware
    assert request.with_traits is (minor >= 17)


@pytest.mark.parametrize(
    ('minor', 'text'),
    [
        (15, 'resources=VCPU:1&limit=1'),
        (16, 'resources=VCPU:1&required=A'),
        (20, f'resources=VCPU:1&member_of={A}'),
        (24, 'resources=VCPU:1&resources1=VCPU:1'),
        (24, 'resources=VCPU:1&group_policy=none'),
        (10, 'resources=VCPU:1&x=1'),
    ],
)
def test_key_unknown_at_its_version(minor: int, text: str) -> None:
    message = rejection(text, minor)
    assert 'Invalid query string parameters:' in message
    assert 'Additional properties are not allowed' in message
    assert 'was unexpected' in message


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


def test_resources_are_required_below_1_25() -> None:
    for minor in (10, 16, 24):
        message = rejection('', minor)
        assert 'Invalid query string parameters:' in message
        assert "'resources' is a required property" in message


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


def test_query_that_is_not_utf8() -> None:
    assert 'Invalid query string parameters:' in rejection('resources=VCPU:1&required=%FF')


@pytest.mark.parametrize(
    ('text', 'phrase'),
    [
        (f'resources=VCPU:1&member_of={A},{B}', "Multiple values for 'member_of' must be prefixed with the"),
        ('resources=VCPU:1&member_of=x', "Expected 'member_of' parameter to contain valid UUID(s)."),
        (f'resources=VCPU:1&member_of=!{A}', "Expected 'member_of' parameter to contain valid UUID(s)."),
        ('resources=VCPU:1&member_of=in:', "Expected 'member_of' parameter to contain valid UUID(s)."),
        ('resources=', 'Got: empty string.'),
        ('resources=VCPU:1&resources2=', 'Got: empty string.'),
        ('resources=VCPU', 'Got: VCPU.'),
        ('resources=VCPU:1,', 'Badly formed resources parameter.'),
        ('resources=VCPU:x', 'Requested resource VCPU expected positive integer amount.'),
        ('resources=VCPU:0', 'Requested resource VCPU requires amount >= 1.'),
        ('resources=VCPU:x&resources=VCPU:1', 'Requested resource VCPU expected positive integer amount.'),
        ('resources=VCPU:1&required=', 'HW_CPU_X86_VMX,!CUSTOM_MAGIC.'),
        ('resources=VCPU:1&required=A,,B', "Expected 'required' parameter value of the form:"),
        ('resources=VCPU:1&resources1=VCPU:1&required1=!', "Expected 'required' parameter value of the form:"),
    ],
)
def test_bad_value(text: str, phrase: str) -> None:
    assert phrase in rejection(text)


def test_values_that_depend_on_the_version() -> None:
    assert 'Got: !A' in rejection('resources=VCPU:1&required=!A', 21)
    twice = f'resources=VCPU:1&member_of={A}&member_of={B}'
    assert 'Multiple member_of parameters are not supported' in rejection(twice, 23)
    assert len(parse(twice, 24).groups[0].member_of) == 2


def test_groups_without_resources() -> None:
    assert rejection('required=A&required2=B&resources3=VCPU:1').startswith(
        'All traits parameters must be associated with resources.  '
        'Found the following orphaned traits keys: required, required2'
    )
    assert rejection(f'resources=VCPU:1&member_of1={A}&required2=!A').startswith(
        'All member_of parameters must be associated with resources. '
        'Found the following orphaned member_of keys: member_of1'
    )
    assert rejection('resources=VCPU:1&required2=!A') == 'All request groups must specify resources.'


@pytest.mark.parametrize('text', ['', 'limit=1', 'group_policy=none'])
def test_a_query_without_groups_is_rejected(text: str) -> None:
    assert rejection(text, 25) == 'At least one request group (`resources` or `resources{N}`) is required.'


def test_trait_required_and_forbidden() -> None:
    message = rejection('resources=VCPU:1&required=A,!B&resources2=VCPU:1&required2=!A,A,B')
    assert message == 'Conflicting required and forbidden traits found in the following traits keys: required2: (A)'


def test_two_numbered_groups_need_a_policy() -> None:
    phrase = 'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
    assert rejection('resources1=VCPU:1&resources2=VCPU:1') == phrase
    assert parse('resources=VCPU:1&resources2=VCPU:1').group_policy is None


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


@pytest.mark.parametrize(
    ('key', 'since'),
    [
        ('in_tree', 31),
        ('in_tree1', 31),
        ('resources_A', 33),
        ('in_tree_A', 33),
        ('resources01', 33),
        ('root_required', 35),
        ('same_subtree', 36),
    ],
)
def test_keys_are_unknown_below_their_microversion(key: str, since: int) -> None:
    lead = f"Invalid query string parameters: '{key}' does not match any of the regexes"
    assert rejected(f'resources=VCPU:1&{key}=x', since - 1)[0].startswith(lead)


@pytest.mark.parametrize('suffix', ['%C3%A9', 'A.B', '_A%0A', 'x' * 65, '1' * 65])
def test_suffixes_have_64_characters_of_few_kinds(suffix: str) -> None:
    assert 'does not match any of the regexes' in rejected(f'resources=VCPU:1&resources{suffix}=VCPU:1', 33)[0]


def test_a_suffix_of_digits_has_any_length_below_1_33() -> None:
    assert parse(f'resources{"1" * 65}=VCPU:1', 32).groups[0].suffix == '1' * 65
    assert parse(f'resources{"x" * 64}=VCPU:1', 33).groups[0].suffix == 'x' * 64


@pytest.mark.parametrize('key', ['root_required1', 'same_subtree1', 'limit_A', 'group_policy1'])
def test_parameters_of_the_whole_request_have_no_suffix(key: str) -> None:
    assert 'does not match any of the regexes' in rejected(f'resources=VCPU:1&{key}=1', 39)[0]


@pytest.mark.parametrize(
    ('text', 'phrase', 'error'),
    [
        ('root_required=T&root_required=', 'may be specified only once.', DuplicateQueryKey),
        ('root_required=', "'required' parameter value of the form: HW_CPU_X86_VMX,!CUSTOM_MAGIC.", BadQuery),
        ('root_required=in:A,B', 'Invalid query string parameters: ', BadQuery),
        ('root_required=B,A,!A,!B', 'traits found in root_required: A, B', BadQueryValue),
        ('', '(unsuffixed group) can not be specified in `same_subtree`', BadQueryValue),
    ],
)
def test_roots_and_subtrees_are_checked_before_groups(text: str, phrase: str, error: type[BadQuery]) -> None:
    message, raised = rejected(f'resources=VCPU:x&in_tree=x&same_subtree=_A,,_B&{text}'.rstrip('&'), 36)
    assert phrase in message
    assert raised is error


def test_in_tree_is_a_uuid() -> None:
    text = "Invalid query string parameters: Expected 'in_tree' parameter to be a format of uuid."
    assert rejected('resources=VCPU:1&in_tree=', 31)[0].startswith(text)
    assert rejected(f'resources1=VCPU:1&in_tree1=x&in_tree1={A}', 31)[0].startswith(text)


@pytest.mark.parametrize(
    ('text', 'phrase', 'error'),
    [
        (
            f'in_tree={A}&required_N=A',
            'There must be at least one resources or resources[$S] parameter.',
            MissingQueryValue,
        ),
        ('', 'There must be at least one resources or resources[$S] parameter.', MissingQueryValue),
        ('same_subtree=_X', 'There must be at least one resources or resources[$S] parameter.', MissingQueryValue),
        ('resources_C=VCPU:1&required_N=A&required=B', "bad group(s) - ['_N', ''].", BadQueryValue),
        ('resources_C=VCPU:1&required_N=A&same_subtree=_X', "bad group(s) - ['_N'].", BadQueryValue),
        ("resources_C=VCPU:1&same_subtree=_C,_X,it's", "`same_subtree`: no group has '_X', 'it's'.", BadQueryValue),
    ],
)
def test_groups_without_resources_since_1_36(text: str, phrase: str, error: type[BadQuery]) -> None:
    message, raised = rejected(text, 36)
    assert phrase in message
    assert raised is error


@pytest.mark.parametrize(
    ('text', 'phrase'),
    [
        ('resources=VCPU:1&required_N=A', 'All traits parameters must be associated with resources.'),
        (f'resources=VCPU:1&member_of_N=!{A}', 'All member_of parameters must be associated with resources.'),
        (f'resources=VCPU:1&in_tree_N={A}', 'All request groups must specify resources.'),
        ('group_policy=none', 'At least one request group (`resources` or `resources{$S}`) is required.'),
    ],
)
def test_groups_without_resources_below_1_36(text: str, phrase: str) -> None:
    assert rejected(text, 35)[0].startswith(phrase)


def test_the_text_about_no_group_below_1_33() -> None:
    assert '`resources{N}`' in rejected('group_policy=none', 32)[0]


def test_parameters_are_read_in_the_order_of_the_url_since_1_30() -> None:
    text = 'resources=VCPU:x&member_of=x&required='
    assert 'amount' in rejected(text, 30)[0]
    assert 'member_of' in rejected(text, 29)[0]
    # A parameter of which all occurrences count is read where it first stands, the others each at its place.
    assert 'member_of' in rejected(f'member_of={A}&resources=VCPU:x&member_of=x', 31)[0]
    assert 'amount' in rejected(f'in_tree={A}&resources=VCPU:x&in_tree=x', 31)[0]


def test_conflicting_traits_since_1_30() -> None:
    text = 'resources2=VCPU:1&required2=A,!A&resources1=VCPU:1&required1=C,!C'
    assert rejected(text, 29)[0].endswith('keys: required2: (A), required1: (C)')
    assert rejected(text, 30)[0].endswith('keys: required1: (C), required2: (A)')
    assert rejected('resources=VCPU:1&required=in:B,A&required=!A,!B', 39)[0].endswith('keys: required: (A, B)')
    assert parse('resources=VCPU:1&required=in:B,A&required=!A', 39).groups[0].required_any == {frozenset('AB')}


def test_groups_without_resources_need_a_policy_too() -> None:
    text = 'resources_C=VCPU:1&required_N=A&same_subtree=_N'
    assert 'The "group_policy" parameter is required' in rejected(text, 36)[0]
    assert parse(f'{text}&group_policy=isolate', 36).isolate


def test_groups_without_resources_count_as_groups() -> None:
    max_groups = parsing.MAX_REQUEST_GROUPS
    text = ''.join(f'&required_{n}=A' for n in range(max_groups))
    assert f'more than {max_groups} request groups' in rejected(f'resources=VCPU:1{text}', 36)[0]
