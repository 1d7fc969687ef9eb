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
        (PATH, None),
        (f'allocation_candidates?{QUERY}', None),
        (f'/placement{PATH}', None),
        (f'http://[::1]:8778/placement{PATH}#top', None),
        (OURS, '1.25'),
        (f'2026-11-22 04:00:00.123 7 INFO placement.requestlog [None req-1 a b - - c d] {OURS}', '1.25'),
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
        ('/allocation_candidates', 'There is no query after /allocation_candidates'),
        ('/resource_providers?resources=VCPU:4', 'not a search for candidates'),
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
    ('query', 'parameter', 'since'),
    [
        ('resources=VCPU:1&limit=5', 'limit', 16),
        ('resources=VCPU:1&member_of=a', 'member_of', 21),
        ('resources=VCPU:1&required=!A', '! in required', 22),
        ('resources=VCPU:1&member_of=a&member_of=b', 'member_of given twice', 24),
        ('resources1=VCPU:1', 'resources1', 25),
        ('resources=VCPU:1&in_tree=x', 'in_tree', 31),
        ('resources=VCPU:1&member_of=!in:x', '! in member_of', 32),
        ('resources1=VCPU:1&member_of1=%21x', '! in member_of1', 32),
        ('resources_NET1=VCPU:1', 'resources_NET1', 33),
        ('resources1=VCPU:1&required_a=b', 'required_a', 33),
        ('resources=VCPU:1&root_required=A', 'root_required', 35),
        ('resources1=VCPU:1&same_subtree=1,2', 'same_subtree', 36),
        ('resources=VCPU:1&required=in:A,B', 'in: in required', 39),
    ],
)
def test_parameters_of_later_microversions(query: str, parameter: str, since: int) -> None:
    minor = min(since - 1, 29)
    reason = f'the request has 1.{minor}' if since <= 29 else 'this service supports up to 1.29'
    expected = f'{parameter} requires microversion 1.{since}, and {reason}.'
    assert searches_in_text.unknown_parameter(query, (1, minor), (1, 29)) == expected
    assert searches_in_text.unknown_parameter(query, (1, since), (1, since)) is None


def test_an_unknown_parameter() -> None:
    message = 'unknown is not a parameter of GET /allocation_candidates.'
    assert searches_in_text.unknown_parameter('unknown=1', (1, 29), (1, 29)) == message
