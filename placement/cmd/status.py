"""``placement-status``: checks whether the database and the configuration are ready for this release."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from placement.cmd.parser import CommandParser

#: Exit code of a command that failed.
FAILED = 255


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks, and print the results as a table or JSON.

    :param argv: the arguments after the program's name; None for the arguments of this process.
    :returns: the exit code.
    """
    args = _parser().parse_args(argv)
    # The imports take longer than everything above, which ends the process after --help, --version or a usage error.
    from placement.cmd import command, status_checks

    return command.run_command('placement-status', FAILED, functools.partial(status_checks.run, args))


def _parser() -> CommandParser:
    parser = CommandParser(
        prog='placement-status',
        description='Check an installation of the placement service.',
        epilog='[placement_database] connection in the configuration file, or the environment variable'
        ' OS_PLACEMENT_DATABASE__CONNECTION, names the database.',
    )
    parser.add_information()
    upgrade = parser.add_group(
        'upgrade',
        'check an installation before and after an upgrade',
        'Check whether the database is ready for this release.',
    )
    upgrade.add_command('check', upgrade_check)
    return parser


def upgrade_check(parser: CommandParser) -> None:
    """Check whether the database is ready for this release.

    Check whether the database is ready for this release: the schema has the right revision, all standard names exist
    and every row that another one names, every provider has the root that follows from its parents, every allocation
    has a record of its consumer, every recorded usage is the sum of the allocations, and there are no tables of another
    placement service. Also check whether options are set that the service does not have, whether Keystone gives the
    service a token, and whether the rules of the policy files are valid. Changes nothing; safe while the service runs.

    Exit code: 0 if ready, perhaps with warnings, 2 if not ready, 255 if the check failed or the database has no tables.
    """
    parser.add_flag('--json', 'print JSON instead of a table')


if __name__ == '__main__':
    sys.exit(main())
