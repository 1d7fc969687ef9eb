"""The grammar of the parameters ``resources``, ``required`` and ``member_of``."""

from __future__ import annotations

import pytest

from placement import schemas
from placement.exception import BadQuery
from placement.search import syntax

A = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'
B = '7c1f4d1e-0b7a-4f0e-8a3c-6e5b1f2d3c22'


def test_resources_are_amounts_by_class() -> None:
    assert syntax.parse_resources('VCPU:2,MEMORY_MB:1024') == {'VCPU': 2, 'MEMORY_MB': 1024}


def test_of_a_repeated_class_the_last_amount_is_used() -> None:
    assert syntax.parse_resources('VCPU:2,VCPU:3') == {'VCPU': 3}


@pytest.mark.parametrize('amount', ['3', ' 3', '3 ', '+3', ' +3 ', '003', '\t3\n'])
def test_blanks_sign_and_leading_zeros_of_an_amount_are_tolerated(amount: str) -> None:
    assert syntax.parse_resources(f'VCPU:{amount}') == {'VCPU': 3}


def test_class_names_are_case_sensitive() -> None:
    assert syntax.parse_resources(' VCPU :1') == {' VCPU ': 1}


@pytest.mark.parametrize('amount', ['2147483647', '0' * 5000 + '2147483647'])
def test_amounts_that_an_inventory_can_hold_are_exact(amount: str) -> None:
    assert syntax.parse_resources(f'VCPU:{amount}') == {'VCPU': 2147483647}


@pytest.mark.parametrize('amount', ['2147483648', '9' * 19, '1' + '0' * 400, '9' * 100000])
def test_amounts_of_any_length_become_one_above_every_inventory(amount: str) -> None:
    assert syntax.parse_resources(f'VCPU:{amount}') == {'VCPU': syntax.BEYOND_ANY_INVENTORY}


@pytest.mark.parametrize('value', ['', ' ', '\t\n'])
def test_blank_resources_are_rejected(value: str) -> None:
    with pytest.raises(BadQuery, match=r'Badly formed resources parameter.*Got: empty string\.'):
        syntax.parse_resources(value)


@pytest.mark.parametrize(
    ('value', 'item'), [('VCPU', 'VCPU'), ('VCPU:1,', ''), ('VCPU:1:2', 'VCPU:1:2'), ('VCPU:1,,DISK_GB:1', '')]
)
def test_items_need_exactly_one_colon(value: str, item: str) -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_resources(value)
    text = str(caught.value)
    assert text.startswith('Badly formed resources parameter. Expected resources query string parameter in form:')
    assert text.endswith(f' Got: {item}.')


@pytest.mark.parametrize('amount', ['', 'x', '1.0', '1e3', '0x10', '1_000', '- 1', '--1', '\u0663', '0' * 100000 + 'x'])
def test_amounts_that_are_no_decimal_integers_are_rejected(amount: str) -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_resources(f'VCPU:{amount}')
    assert str(caught.value) == f'Requested resource VCPU expected positive integer amount. Got: {amount}.'


@pytest.mark.parametrize('amount', ['0', '-1', '-0', '000', '-' + '9' * 5000])
def test_amounts_below_one_are_rejected(amount: str) -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_resources(f'VCPU:{amount}')
    assert str(caught.value) == f'Requested resource VCPU requires amount >= 1. Got: {amount}.'


def test_required_names_are_stripped_and_repeats_removed() -> None:
    assert syntax.parse_required([' A ,B,A'], (1, 22)) == syntax.TraitFilter(frozenset('AB'))


def test_all_leading_exclamation_marks_forbid() -> None:
    assert syntax.parse_required(['A,!B,!!!C'], (1, 22)) == syntax.TraitFilter(frozenset('A'), frozenset('BC'))


def test_a_trait_may_be_both_required_and_forbidden() -> None:
    assert syntax.parse_required(['A,!A'], (1, 22)) == syntax.TraitFilter(frozenset('A'), frozenset('A'))


def test_up_to_1_29_prefixes_are_part_of_a_name() -> None:
    assert syntax.parse_required(['in:A,^B'], (1, 29)).required == {'in:A', '^B'}


def test_no_required_is_no_condition() -> None:
    assert syntax.parse_required([], (1, 39)) == syntax.TraitFilter()


def test_below_1_39_only_the_last_required_is_read() -> None:
    assert syntax.parse_required(['in:A', '', 'B'], (1, 38)) == syntax.TraitFilter(frozenset('B'))
    with pytest.raises(BadQuery):
        syntax.parse_required(['', 'B'], (1, 39))


def test_from_1_39_every_required_counts() -> None:
    read = syntax.parse_required(['in:A,B', 'C,!D', 'in: B ,A,A', 'in:E', 'in:C,E'], (1, 39))
    assert read == syntax.TraitFilter(frozenset('CE'), frozenset('D'), frozenset({frozenset('AB'), frozenset('CE')}))


@pytest.mark.parametrize('value', [' in:A', 'A,in:A'])
def test_in_is_a_prefix_at_the_very_beginning_only(value: str) -> None:
    assert 'in:A' in syntax.parse_required([value], (1, 39)).required
    assert syntax.parse_required(['!in:A'], (1, 39)).forbidden == {'in:A'}


@pytest.mark.parametrize(
    ('value', 'version', 'text'),
    [
        ('in:A,!B', (1, 30), "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39."),
        ('in:', (1, 38), "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39."),
        ('in:', (1, 39), "Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC."),
        ('in:A,,!B', (1, 39), "Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC."),
        ('in:A,!B', (1, 39), "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits."),
        (' ', (1, 39), "Expected 'required' parameter value of the form: HW_CPU_X86_VMX,!CUSTOM_MAGIC."),
    ],
)
def test_forms_of_required_that_are_rejected(value: str, version: schemas.Version, text: str) -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_required([value], version)
    assert str(caught.value) == f'Invalid query string parameters: {text} Got: {value}'


@pytest.mark.parametrize('value', ['', ' ', 'A,,B', 'A,', '!', 'A, !! '])
@pytest.mark.parametrize(('version', 'sample'), [((1, 21), 'CUSTOM_MAGIC'), ((1, 22), '!CUSTOM_MAGIC')])
def test_empty_trait_names_are_rejected(value: str, version: schemas.Version, sample: str) -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_required([value], version)
    lead = "Invalid query string parameters: Expected 'required' parameter value of the form:"
    assert str(caught.value) == f'{lead} HW_CPU_X86_VMX,{sample}. Got: {value}'


def test_forbidden_traits_are_rejected_unless_allowed() -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_required(['A,!B'], (1, 21))
    lead = "Invalid query string parameters: Expected 'required' parameter value of the form:"
    assert str(caught.value) == f'{lead} HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: A,!B'


def test_member_of_is_a_set_per_occurrence() -> None:
    assert syntax.parse_member_of([A, f'in:{A},{B}'], (1, 24)).member_of == (frozenset({A}), frozenset({A, B}))


def test_no_member_of_is_no_condition() -> None:
    assert syntax.parse_member_of([], (1, 21)) == syntax.MemberOf()


@pytest.mark.parametrize('spelling', [A.upper(), A.replace('-', ''), '{' + A + '}', 'urn:uuid:' + A])
def test_aggregates_become_canonical(spelling: str) -> None:
    assert syntax.parse_member_of([f'in:{spelling},{A}'], (1, 21)).member_of == (frozenset({A}),)


def test_repeated_member_of_is_rejected_unless_allowed() -> None:
    with pytest.raises(BadQuery, match='Multiple member_of parameters are not supported'):
        syntax.parse_member_of([A, B], (1, 23))


@pytest.mark.parametrize('value', [f'{A},{B}', f'!{A},{B}', f'{A},!{B}'])
def test_several_aggregates_need_the_prefix_in(value: str) -> None:
    lead = "Multiple values for 'member_of' must be prefixed with the 'in:'"
    for version, rest in (((1, 29), ' keyword'), ((1, 31), ' keyword'), ((1, 32), " or '!in:' keyword")):
        with pytest.raises(BadQuery) as caught:
            syntax.parse_member_of(['not-a-uuid', value], version)
        assert str(caught.value) == f'{lead}{rest}. Got: {value}'


@pytest.mark.parametrize('minor', [21, 30, 32, 39])
@pytest.mark.parametrize(
    'value',
    [
        *['', 'x', 'in:', f'in:{A},', f'!!{A}', f' {A}', f'{A}\n', f'in:in:{A}', '\u0663' * 32],
        *['!', '!in:', '!x', f'in:!{A}', f'!in:!{A}'],
    ],
)
def test_aggregates_are_uuids(value: str, minor: int) -> None:
    with pytest.raises(BadQuery) as caught:
        syntax.parse_member_of([value], (1, minor))
    assert "Expected 'member_of' parameter to contain valid UUID(s)." in str(caught.value)


def test_forbidden_aggregates() -> None:
    read = syntax.parse_member_of([f'!{A}', f'in:{A},{B}', f'!in:{B.upper()}'], (1, 32))
    assert read == syntax.MemberOf((frozenset({A, B}),), frozenset({A, B}))


@pytest.mark.parametrize('value', [f'!{A}', f'!in:{A},{B}'])
def test_forbidden_aggregates_are_not_known_below_1_32(value: str) -> None:
    for version in ((1, 30), (1, 31)):
        with pytest.raises(BadQuery) as caught:
            syntax.parse_member_of([value], version, suffix='1')
        text = 'Forbidden member_of1 parameters are not supported in the specified microversion'
        assert str(caught.value) == text
    with pytest.raises(BadQuery, match=r'valid UUID|must be prefixed'):
        syntax.parse_member_of([value], (1, 29))


def test_a_root_list_of_traits_has_no_alternatives() -> None:
    assert syntax.parse_traits('A,!B') == syntax.TraitFilter(frozenset('A'), frozenset('B'))
    with pytest.raises(BadQuery, match=r'^Invalid query string parameters: '):
        syntax.parse_traits('in:A')
