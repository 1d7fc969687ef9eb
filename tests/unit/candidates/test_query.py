"""The query string of GET /allocation_candidates: how each parameter is parsed, and every check."""

from __future__ import annotations

import uuid

import pytest

from placement import conf as placement_conf
from placement.candidates.request import CandidateRequest
from placement.handlers import candidate_query
from placement.web.query import BadQuery

A, B = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
CONF = placement_conf.load(environ={}, config_files=[])


def parse(text: str, minor: int = 29) -> CandidateRequest:
    return candidate_query.parse(text, (1, minor), CONF)


def refusal(text: str, minor: int = 29) -> str:
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
    message = refusal(text, minor)
    assert 'Invalid query string parameters:' in message
    assert 'Additional properties are not allowed' in message
    assert 'was unexpected' in message


@pytest.mark.parametrize(
    'key', ['x', 'resources0', 'resources01', 'resources1a', 'resources_x', 'limit1', 'resources1%0A']
)
def test_key_unknown_from_1_25(key: str) -> None:
    message = refusal(f'resources=VCPU:1&{key}=VCPU:1', 25)
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
    assert phrase in refusal(text, minor)


def test_resources_are_required_below_1_25() -> None:
    for minor in (10, 16, 24):
        message = refusal('', minor)
        assert 'Invalid query string parameters:' in message
        assert "'resources' is a required property" in message


@pytest.mark.parametrize('value', ['0', '-1', '+1', '', 'x', '1x', '01', '1%0A', '%D9%A1', '1.0'])
@pytest.mark.parametrize('minor', [16, 29])
def test_bad_limit(value: str, minor: int) -> None:
    for text in (f'limit={value}', f'limit={value}&limit=5', f'limit=5&limit={value}'):
        message = refusal(f'resources=VCPU:1&{text}', minor)
        assert 'Invalid query string parameters:' in message
        assert "Failed validating 'pattern'" in message


@pytest.mark.parametrize('value', ['', 'None', 'isolate%0A', 'both'])
def test_bad_group_policy(value: str) -> None:
    for text in (
        f'group_policy={value}',
        f'group_policy={value}&group_policy=none',
        f'group_policy=none&group_policy={value}',
    ):
        message = refusal(f'resources=VCPU:1&{text}')
        assert 'Invalid query string parameters:' in message
        assert "is not one of ['none', 'isolate']" in message


def test_query_that_is_not_utf8() -> None:
    assert 'Invalid query string parameters:' in refusal('resources=VCPU:1&required=%FF')


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
    assert phrase in refusal(text)


def test_values_that_depend_on_the_version() -> None:
    assert 'Got: !A' in refusal('resources=VCPU:1&required=!A', 21)
    twice = f'resources=VCPU:1&member_of={A}&member_of={B}'
    assert 'Multiple member_of parameters are not supported' in refusal(twice, 23)
    assert len(parse(twice, 24).groups[0].member_of) == 2


def test_groups_without_resources() -> None:
    assert refusal('required=A&required2=B&resources3=VCPU:1').startswith(
        'All traits parameters must be associated with resources.  '
        'Found the following orphaned traits keys: required, required2'
    )
    assert refusal(f'resources=VCPU:1&member_of1={A}&required2=!A').startswith(
        'All member_of parameters must be associated with resources. '
        'Found the following orphaned member_of keys: member_of1'
    )
    assert refusal('resources=VCPU:1&required2=!A') == 'All request groups must specify resources.'


@pytest.mark.parametrize('text', ['', 'limit=1', 'group_policy=none'])
def test_a_query_without_groups_is_refused(text: str) -> None:
    assert refusal(text, 25) == 'At least one request group (`resources` or `resources{N}`) is required.'


def test_trait_required_and_forbidden() -> None:
    message = refusal('resources=VCPU:1&required=A,!B&resources2=VCPU:1&required2=!A,A,B')
    assert message == 'Conflicting required and forbidden traits found in the following traits keys: required2: (A)'


def test_two_numbered_groups_need_a_policy() -> None:
    phrase = 'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
    assert refusal('resources1=VCPU:1&resources2=VCPU:1') == phrase
    assert parse('resources=VCPU:1&resources2=VCPU:1').group_policy is None


def test_a_limit_of_any_length_is_accepted() -> None:
    limit = parse(f'resources=VCPU:1&limit={"9" * 5000}').limit
    assert limit is not None
    assert limit > 10**9


HOSTILE = {
    'thousands of groups': '&'.join(f'resources{n}=VCPU:1' for n in range(1, 4000)),
    'thousands of limits': 'resources=VCPU:1' + ''.join(f'&limit={n}' for n in range(1, 6000)) + '&limit=x',
    'megabytes': 'resources=VCPU:1&required=' + 'A' * 2_000_000,
    'many ampersands': '&' * 60000,
    'long key': 'x' * 60000,
    'many bad amounts': 'resources=' + ','.join(['VCPU:-1'] * 6000),
    'deep percent': 'resources=' + '%25' * 20000,
    'backtracking': 'resources' + '1' * 60000 + 'x=VCPU:1',
}


@pytest.mark.parametrize('name', HOSTILE)
@pytest.mark.parametrize('minor', [10, 24, 29])
def test_hostile_query_is_refused(name: str, minor: int) -> None:
    assert len(refusal(HOSTILE[name], minor)) < 100_000
