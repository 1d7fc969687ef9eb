"""The warning of commands that recorded usages are wrong, because another program has written to the database."""

from __future__ import annotations

import sys


def warn(count: int) -> None:
    """Print on standard error that the usage of ``count`` inventories is wrong; nothing if it is 0."""
    if count:
        whose = '1 inventory' if count == 1 else f'{count} inventories'
        print(
            f'Warning: of {whose}, what is recorded as used is not the sum of the allocations. Another program wrote to'
            ' the database. See: placement-manage audit',
            file=sys.stderr,
        )
