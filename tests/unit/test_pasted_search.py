"""Finding the query for candidates in pasted text."""

from __future__ import annotations

import contextlib

import pytest

from placement import exception
from placement.ops.explain import searches_in_text

QUERY = 'resources=VCPU%3A4,MEMORY_MB:512&required=HW_CPU_X86_AVX2,!CUSTOM_A&limit=10'
PATH = f'/allocation_candidates?{QUERY}'
OURS = f'127.0.0.1 "GET {PATH}" status: 200 len: 53 microversion: 1.25 time: 0.004321'


@pytest.mark.parametrize(
    ('text', 'version'),
    [
        (QUERY, None),
        (f'?{QUERY}', None),
        (f'  {QUERY}\n', None),
        (PATH, None),
        (f'allocation_candidates?{QUERY}', None),
        (f'/placement{PATH}', None),
        (f'http://[::1]:8778/placement{PATH}#top', None),
        (f'GET {PATH}', None),
        (OURS, '1.25'),
        (f'2026-11-22 04:00:00.123 7 INFO placement.web.request_log [None req-1 a b - - c d] {OURS}', '1.25'),
        (f'Nov 22 04:00:00 node placement-api[77]: 2026-11-22 04:00:00.123 7 INFO x [-] {OURS}', '1.25'),
        (f'10.0.0.1 - - [22/Nov/2026:04:00:00 +0000] "GET /placement{PATH} HTTP/1.1" 200 53 "-" "nova/1"', None),
        (f'10.0.0.1 - admin [22/Nov/2026:04:00:00 +0000] "GET {PATH} HTTP/1.1" 200 53 "http://a/b?c=d" "x" "-"', None),
        (
            f'... INFO placement.handlers.allocation_candidate [-] No allocation candidates for {QUERY}: resources ...',
            None,
        ),
        (f'WARNING x [-] Stopped at [placement] max_search_steps = 10, max_x = 5 for {QUERY}', None),
        (
            f'REQ: curl -g -i -X GET "https://p.example{PATH}" -H "OpenStack-API-Version: placement 1.17" -H "A: b"',
            '1.17',
        ),
        (f"curl -s 'http://127.0.0.1:8778{PATH}' -H 'OpenStack-API-Version: placement 1.29'", '1.29'),
    ],
)
def test_texts_that_hold_a_query(text: str, version: str | None) -> None:
    assert searches_in_text.find_query(text) == (QUERY, version)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'There is no query for candidates'),
        ('VCPU:4', 'There is no query for candidates'),
        ('no = valid host', 'There is no query for candidates'),
        ('/allocation_candidates', 'There is no query after /allocation_candidates'),
        ('http://127.0.0.1:8778/allocation_candidates/', 'There is no query after /allocation_candidates'),
        ('/resource_providers?resources=VCPU:4', 'not a search for candidates'),
        (
            '127.0.0.1 "GET /usages?project_id=a" status: 200 len: 1 microversion: 1.9 time: 0.1',
            'not a search for candidates',
        ),
        (f'127.0.0.1 "GET {PATH}..." status: 200', 'only the beginning of this query'),
    ],
)
def test_texts_without_a_query(text: str, message: str) -> None:
    with pytest.raises(exception.BadQuery, match=message):
        searches_in_text.find_query(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    'text',
    [
        '/' + 'a' * 1_000_000,
        '/a' * 500_000,
        '/a' * 500_000 + ' ?',
        'a/' * 500_000 + '?',
        'Stopped at [placement] ' * 50_000,
        'Stopped at [placement] max_x = 1, ' * 50_000,
        'No allocation candidates for ' * 50_000,
        'No allocation candidates for a' + ':' * 1_000_000,
        '/allocation_candidates?' * 50_000,
        'GET ' * 250_000,
        'http://' * 150_000,
        '?' * 1_000_000,
    ],
)
def test_long_texts_are_read_in_linear_time(text: str) -> None:
    # A search that begins anew at each character of a megabyte takes an hour, and the test times out.
    with contextlib.suppress(exception.BadQuery):
        searches_in_text.find_query(text)


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
        searches_in_text.unknown_parameter(query, (1, 29), (1, 29))
        == f'{message}, and this service supports up to 1.29.'
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
    assert searches_in_text.unknown_parameter(query, (1, minor), (1, 29)) == expected
    assert searches_in_text.unknown_parameter(query, (1, minor + 1), (1, 29)) is None


def test_an_unknown_parameter() -> None:
    assert (
        searches_in_text.unknown_parameter('unknown=1', (1, 29), (1, 29))
        == 'unknown is not a parameter of GET /allocation_candidates.'
    )
    assert (
        searches_in_text.unknown_parameter(
            'resources=VCPU%3A4&required=HW_CPU_X86_AVX2,!CUSTOM_A&limit=10', (1, 29), (1, 29)
        )
        is None
    )
