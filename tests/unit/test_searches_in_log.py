"""Finding the searches without result in a log, by their parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement.ops.explain import searches_in_log

LINE = (
    '2026-01-02 03:04:{:02}.123 7 INFO placement.handlers.allocation_candidate [-] No allocation candidates for {}: x'
)


@pytest.mark.parametrize(
    ('query', 'pattern'),
    [
        ('resources=VCPU:4,MEMORY_MB:2&limit=5', 'resources=MEMORY_MB,VCPU'),
        ('required=B,A&resources=VCPU:1', 'required=A,B resources=VCPU'),
        ('resources1=VCPU:1&member_of1=in:a,b&group_policy=none', 'group_policy=none member_of1 resources1=VCPU'),
        ('resources_A=VCPU:1&in_tree_A=a&member_of_A=!b', 'in_tree_A member_of_A=! resources_A=VCPU'),
        ('required=in:C,B&required=!D,A&root_required=!Z,Y', 'required=!D,A required=in:B,C root_required=!Z,Y'),
        ('same_subtree=_B,_A', 'same_subtree=_A,_B'),
    ],
)
def test_a_pattern_has_no_amounts_and_aggregates(query: str, pattern: str) -> None:
    assert searches_in_log.pattern_of(query) == pattern


def test_searches_are_counted_by_pattern(tmp_path: Path) -> None:
    log = tmp_path / 'log'
    lines = [
        LINE.format(1, 'resources=VCPU:4'),
        LINE.format(2, 'resources=DISK_GB:4'),
        LINE.format(3, 'resources=VCPU:8') + ' (4 more since the last such line)',
        '2026-01-02 03:04:09 GET /allocation_candidates?resources=VCPU:4 status: 200',
        LINE.format(4, 'resources=VCPU:' + '4' * 10 + '...'),
    ]
    log.write_text('\n'.join(lines))
    searches = searches_in_log.recent(log)
    assert [(search.pattern, search.count, search.latest_query, search.latest_at) for search in searches.patterns] == [
        ('resources=VCPU', 6, 'resources=VCPU:8', '2026-01-02 03:04:03'),
        ('resources=DISK_GB', 1, 'resources=DISK_GB:4', '2026-01-02 03:04:02'),
    ]
    assert searches.complete


def test_of_a_long_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches_in_log, '_MAX_BYTES', 500)
    log = tmp_path / 'log'
    log.write_text(''.join(LINE.format(n % 60, f'resources=VCPU:{n}') + '\n' for n in range(100)))
    searches = searches_in_log.recent(log)
    assert not searches.complete
    assert (searches.patterns[0].latest_query, searches.patterns[0].count) == ('resources=VCPU:99', 3)
