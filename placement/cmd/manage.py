"""``placement-manage``: what an operator does to the database and its contents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from placement import conf as placement_conf
from placement.cmd import manage_audit, manage_db, manage_explain, manage_openapi, manage_tree, output
from placement.db.api import Database

#: Exit code of a command that could not do what it was asked.
FAILED = 127

#: One module for each command; each has ``add_parser(subparsers)``, which sets ``run(args, conf, db) -> exit code``,
#: and ``needs_schema=False`` if it works on a database without our schema, or ``needs_database=False`` if it needs
#: neither configuration nor database: ``run(args) -> exit code``.
_COMMANDS = (manage_db, manage_audit, manage_tree, manage_explain, manage_openapi)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: the arguments after the program's name; None for those of this process.
    :returns: the exit code, 0 when all is well, 127 when the command failed; others belong to the commands.
    """
    args = _parser().parse_args(argv)
    if not args.needs_database:
        return int(args.run(args))
    try:
        conf = placement_conf.load(argv=['--config-file', args.config_file] if args.config_file else [])
        # A change of the schema may keep the server busy for longer than a request may take.
        conf.set_override('network_timeout', 0, 'placement_database')
        db = Database(conf)
        try:
            if args.needs_schema:
                db.check_schema()
            code: int = args.run(args, conf, db)
        finally:
            db.dispose()
    except output.FAILURES as error:
        output.failed('placement-manage', error)
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='placement-manage',
        description='Manage the database of the placement service and look at what is in it.',
        epilog='The database is the one of [placement_database] connection in the configuration file, or of the'
        ' environment variable OS_PLACEMENT_DATABASE__CONNECTION.',
    )
    parser.set_defaults(needs_schema=True, needs_database=True)
    output.add_common_options(parser)
    commands = parser.add_subparsers(title='commands', metavar='COMMAND', required=True)
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


if __name__ == '__main__':
    sys.exit(main())
