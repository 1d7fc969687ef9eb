"""``placement-manage``: the commands for operators."""

from __future__ import annotations

import functools
import gc
import pkgutil
import sys
from collections.abc import Sequence

from placement.cmd import manage_arguments
from placement.cmd.parser import CommandParser

#: Exit code of a command that failed.
FAILED = 127


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: the arguments after the program's name; None for the arguments of this process.
    :returns: the exit code: 0 for success, 127 for a failed command. Commands define other codes.
    """
    args = _parser().parse_args(argv)
    # The imports take longer than everything above, which ends the process after --help, --version or a usage error.
    # They leave little garbage, and looking for it, now or at the end, would take a fifth of the time of most commands.
    gc.disable()
    from placement.cmd import command

    function = pkgutil.resolve_name(f'placement.cmd.{args.run}')
    gc.freeze()
    gc.enable()
    if args.needs_database:
        function = functools.partial(command.run_with_database, function)
    return command.run_command('placement-manage', FAILED, functools.partial(function, args))


def _parser() -> CommandParser:
    parser = CommandParser(
        prog='placement-manage',
        description='Manage the database of the placement service and show what is in it.',
        epilog='[placement_database] connection in the configuration file, or the environment variable'
        ' OS_PLACEMENT_DATABASE__CONNECTION, names the database. Without either, placement-manage'
        ' uses the database of placement-api --dev in the current directory.',
    )
    parser.add_information()
    manage_arguments.add_commands(parser)
    return parser


if __name__ == '__main__':
    sys.exit(main())
