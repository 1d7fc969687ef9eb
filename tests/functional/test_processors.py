"""The number of processors that a process may use, which is the default number of workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placement.serving.processors import count_processors


@pytest.mark.parametrize(
    ('memberships', 'files', 'processors'),
    [
        ('0::/', {}, 64),
        ('0::/', {'cpu.max': 'max 100000\n'}, 64),
        ('0::/', {'cpu.max': '100000 100000\n'}, 1),
        ('0::/', {'cpu.max': '150000 100000\n'}, 2),
        ('0::/', {'cpu.max': '1000 100000\n'}, 1),
        ('0::/', {'cpu.max': '9900000 100000\n'}, 64),
        # A unit of systemd, in a slice with a smaller quota.
        (
            '0::/system.slice/placement.service',
            {'system.slice/cpu.max': '300000 100000\n', 'system.slice/placement.service/cpu.max': '800000 100000\n'},
            3,
        ),
        # Version 1: without and with a quota, and in a container that does not see its group at this path.
        ('3:memory:/\n1:cpu:/a', {'cpu/a/cpu.cfs_quota_us': '-1\n', 'cpu/a/cpu.cfs_period_us': '100000\n'}, 64),
        ('2:cpu,cpuacct:/a\n0::/', {'cpu/a/cpu.cfs_quota_us': '250000\n', 'cpu/a/cpu.cfs_period_us': '50000\n'}, 5),
        ('2:cpu,cpuacct:/docker/1f', {'cpu/cpu.cfs_quota_us': '200000\n', 'cpu/cpu.cfs_period_us': '100000\n'}, 2),
    ],
)
def test_the_smallest_quota_of_the_control_groups_limits_the_processors(
    memberships: str, files: dict[str, str], processors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _pid: set(range(64)))
    (tmp_path / 'memberships').write_text(memberships)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert count_processors(tmp_path / 'memberships', tmp_path) == processors


def test_a_process_counts_only_the_processors_that_it_may_run_on(tmp_path: Path) -> None:
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        assert count_processors() == 1
    finally:
        os.sched_setaffinity(0, processors)
    assert count_processors(tmp_path / 'missing') == len(processors)
