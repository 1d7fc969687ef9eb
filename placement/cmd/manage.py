"""``placement-manage``: the commands for operators."""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
from collections.abc import Sequence

from oslo_config import cfg

from placement import conf as placement_conf
from placement import exception
from placement.cmd import (
    command,
    manage_audit,
    manage_capacity,
    manage_consumer,
    manage_db,
    manage_explain,
    manage_openapi,
    manage_page,
    manage_plan,
    manage_project,
    manage_tree,
)
from placement.db import migration
from placement.db.api import Database

#: Exit code of a command that failed.
FAILED = 127

#: One module for each command. Each has ``add_command(program)``, which sets these defaults on the parser that it adds:
#:
#: * ``run(args, conf, db) -> exit code``, or ``run(args) -> exit code`` with ``needs_database=False``.
#: * ``needs_database=False`` if it needs no database. Then ``run`` loads the configuration itself.
#: * ``needs_schema=False`` if it works on a database without our schema.
#: * ``has_timeout=True`` if ``[placement_database] socket_timeout`` applies to it, as to the service.
_COMMANDS = (
    manage_db,
    manage_audit,
    manage_tree,
    manage_consumer,
    manage_project,
    manage_capacity,
    manage_explain,
    manage_page,
    manage_plan,
    manage_openapi,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: the arguments after the program's name; None for the arguments of this process.
    :returns: the exit code: 0 for success, 127 for a failed command. Commands define other codes.
    """
    args = _parser().parse_args(argv)
    function = args.run if not args.needs_database else _run_with_database
    return command.run_command('placement-manage', FAILED, functools.partial(function, args))


def _parser() -> command.CommandParser:
    parser = command.CommandParser(
        prog='placement-manage',
        description='Manage the database of the placement service and show what is in it.',
        epilog='[placement_database] connection in the configuration file, or the environment variable'
        ' OS_PLACEMENT_DATABASE__CONNECTION, names the database. Without either, placement-manage'
        ' uses the database of placement-api --dev in the current directory.',
    )
    parser.set_defaults(needs_schema=True, needs_database=True, has_timeout=False)
    parser.add_information()
    for module in _COMMANDS:
        module.add_command(parser)
    return parser


def _run_with_database(args: argparse.Namespace) -> int:
    conf = _configuration(args)
    if getattr(args, 'names_file', None):
        conf.set_override('names_file', args.names_file, 'placement')
    db = Database(conf, time_limits=args.has_timeout)
    try:
        if args.needs_schema:
            migration.check_revision(db.engine)
        return int(args.run(args, conf, db))
    finally:
        db.dispose()


def _configuration(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Load the configuration. Without one, use the database of ``placement-api --dev`` in the current directory.

    :raises ConfigurationInvalid: the configuration is invalid, or there is no database to use.
    """
    conf = command.load_configuration(args)
    if conf.placement_database.connection or placement_conf.files(conf):
        return conf
    path = pathlib.Path(command.DEV_DATABASE).absolute()
    if not path.is_file():
        raise exception.ConfigurationInvalid(
            reason='[placement_database] connection is not set. Pass --config-file FILE, set'
            ' OS_PLACEMENT_DATABASE__CONNECTION, or go to the directory in which placement-api --dev made'
            f' {command.DEV_DATABASE}.'
        )
    print(f'placement-manage: no database is configured, so {path} is used', file=sys.stderr)
    conf.set_override('connection', command.sqlite_url(path), 'placement_database')
    return conf


if __name__ == '__main__':
    sys.exit(main())
