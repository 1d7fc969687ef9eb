"""Amounts as people read them: with units, and full only where it is full."""

from __future__ import annotations

import os_resource_classes
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement import units

MIB_PER_TIB = 1024**2


@pytest.mark.parametrize(
    ('resource_class', 'value', 'shown'),
    [
        ('MEMORY_MB', 0, '0'),
        ('MEMORY_MB', 1023, '1,023 MiB'),
        ('MEMORY_MB', 1536, '1.5 GiB'),
        ('MEMORY_MB', 65024, '63.5 GiB'),
        ('MEMORY_MB', MIB_PER_TIB - 1, '1 TiB'),
        ('MEMORY_MB', 2**80, '1,099,511,627,776 EiB'),
        ('DISK_GB', 20_000, '19.5 TiB'),
        ('NET_BW_IGR_KILOBIT_PER_SEC', 2_350_000_000, '2.35 Tbit/s'),
        ('NET_PACKET_RATE_KILOPACKET_PER_SEC', 5000, '5 Mpacket/s'),
        ('VCPU', 1_234_567, '1,234,567'),
        ('CUSTOM_FAST_DISK_GB', 20_000, '20,000'),
    ],
)
def test_an_amount_has_the_unit_of_its_class(resource_class: str, value: int, shown: str) -> None:
    assert units.amount(resource_class, value) == shown


def test_a_limit_is_rounded_down() -> None:
    assert units.amount('MEMORY_MB', 65535) == '64 GiB'
    assert units.amount('MEMORY_MB', 65535, round_down=True) == '63.9 GiB'
    assert units.amount('MEMORY_MB', MIB_PER_TIB - 1, round_down=True) == '1,023 GiB'


@pytest.mark.parametrize(
    ('resource_class', 'used', 'capacity', 'shown'),
    [
        ('MEMORY_MB', 351_698_944, 967_578_624, '335 of 923 TiB'),
        ('MEMORY_MB', 0, 0, '0 of 0'),
        ('MEMORY_MB', 512, 3 * MIB_PER_TIB // 2, '512 MiB of 1.5 TiB'),
        ('MEMORY_MB', MIB_PER_TIB - 1, MIB_PER_TIB, '1,023.999 GiB of 1 TiB'),
        ('MEMORY_MB', 923 * MIB_PER_TIB - 1, 923 * MIB_PER_TIB, '922.999999 of 923 TiB'),
        ('VCPU', 4, 64, '4 of 64'),
        ('VCPU', 12_000, 10_000, '12,000 of 10,000'),
    ],
)
def test_usage_and_capacity_share_a_unit_where_they_can(
    resource_class: str, used: int, capacity: int, shown: str
) -> None:
    assert units.used_of_capacity(resource_class, used, capacity) == shown


CLASSES = st.sampled_from([*os_resource_classes.STANDARDS, 'CUSTOM_GOLD'])
AMOUNTS = st.one_of(
    st.integers(0, 2**70), st.sampled_from([size + by for size in (1024**2, 10**6) for by in (-1, 0, 1)])
)


@given(CLASSES, AMOUNTS, st.integers(-3, 3))
@example('DISK_GB', 1024**4 * 1024, -1)
def test_only_what_is_full_looks_full(resource_class: str, capacity: int, difference: int) -> None:
    used = max(capacity + difference, 0)
    used_part, _, capacity_part = units.used_of_capacity(resource_class, used, capacity).partition(' of ')
    number, _, unit = used_part.partition(' ')
    limit, _, unit_of_limit = capacity_part.partition(' ')
    assert ((number, unit or unit_of_limit) == (limit, unit_of_limit)) is (used == capacity)


@given(st.integers(0, 2**70), st.integers(0, 2**70))
def test_a_percentage_says_100_only_for_what_is_full(used: int, capacity: int) -> None:
    assert (units.percent(used, capacity) == '100%') is (used == capacity > 0)
    assert units.percent(capacity, capacity) == ('100%' if capacity else '0%')


@pytest.mark.parametrize(
    ('used', 'capacity', 'shown'),
    [
        (0, 0, '0%'),
        (1, 1000, '<1%'),
        (999, 1000, '99%'),
        (10**18 - 1, 10**18, '99%'),
        (1001, 1000, '>100%'),
        (1010, 1000, '101%'),
        (5, 0, '>100%'),
        (10**9, 1, '>9999%'),
    ],
)
def test_a_percentage_is_rounded_down(used: int, capacity: int, shown: str) -> None:
    assert units.percent(used, capacity) == shown


@pytest.mark.parametrize(
    ('seconds', 'words'),
    [
        (0, 'just now'),
        (59.9, '59 s ago'),
        (60, '1 minute ago'),
        (7199, '1 hour ago'),
        (2e5, '2 days ago'),
        (-3, 'just now'),
    ],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert units.ago(seconds) == words
