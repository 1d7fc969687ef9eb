"""How many processors this process may use: those of its affinity, and the quota of its control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

#: Where the system mounts control groups of version 2. The former version 1 has other files, and is not read.
_MOUNT = Path('/sys/fs/cgroup')


def count_processors(memberships: Path = Path('/proc/self/cgroup'), mount: Path = _MOUNT) -> int:
    """Return the number of processors that this process may use, at least 1.

    A quota that is not a whole number is rounded up. ``os.cpu_count`` has the processors of the host, even if a
    container may use only one of them.

    :param memberships: the file with the control groups of the process.
    :param mount: the directory of all control groups.
    """
    quotas = _quotas(memberships, mount)
    return max(1, math.ceil(min(len(os.sched_getaffinity(0)), *quotas, math.inf)))


def _quotas(memberships: Path, mount: Path) -> Iterator[float]:
    """Yield the quota of each control group that has one, in processors."""
    try:
        lines = memberships.read_text().splitlines()
    except OSError:
        return
    # Such as ``0::/system.slice/placement.service``.
    path = next((line.removeprefix('0::') for line in lines if line.startswith('0::')), '/')
    # In a container the path may be that on the host; the files of the container are then at the mount itself.
    group = mount
    for part in ('.', *Path(path).parts[1:]):
        group = group / part
        try:
            quota, period = (group / 'cpu.max').read_text().split()
        except OSError:
            continue
        # Without a limit, the quota is ``max``.
        if quota.isdecimal():
            yield int(quota) / int(period)
