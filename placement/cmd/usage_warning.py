"""The warning that what a command read does not add up, because somebody wrote past the service."""

from __future__ import annotations

import sys


def warn(number: int) -> None:
    """Say on standard error that the usage of so many inventories is wrong, unless it is none."""
    if number:
        whose = '1 inventory' if number == 1 else f'{number} inventories'
        print(
            f'Warning: of {whose}, what is recorded as used is not the sum of the allocations. Another program wrote to'
            ' the database. See: placement-manage audit',
            file=sys.stderr,
        )
