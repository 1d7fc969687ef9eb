"""How many processors this process may use: those of its affinity, and the quota of its control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

#: Where the system mounts control groups: version 2 here, the controllers of version 1 in directories below.
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
    for line in lines:
        # Such as ``0::/system.slice/placement.service`` (version 2), or ``1:cpu,cpuacct:/docker/1f0c``.
        _, controllers, path = line.split(':', 2)
        if controllers and 'cpu' not in controllers.split(','):
            continue
        # In a container the path may be that on the host; the files of the container are then at the mount itself.
        group = mount / 'cpu' if controllers else mount
        for part in ('.', *Path(path).parts[1:]):
            group = group / part
            try:
                if controllers:
                    quota, period = ((group / f'cpu.cfs_{name}_us').read_text() for name in ('quota', 'period'))
                else:
                    quota, period = (group / 'cpu.max').read_text().split()
            except OSError:
                continue
            # Without a limit, the quota is ``max`` (version 2) or -1.
            if quota.strip().isdecimal():
                yield int(quota) / int(period)
