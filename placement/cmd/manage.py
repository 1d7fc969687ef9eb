"""``placement-manage``: the commands for operators."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from oslo_config import cfg

from placement import conf as placement_conf
from placement import exception
from placement.cmd import (
    dev_database,
    manage_audit,
    manage_capacity,
    manage_db,
    manage_explain,
    manage_openapi,
    manage_page,
    manage_tree,
    output,
)
from placement.db.api import Database

#: Exit code of a command that failed.
FAILED = 127

#: One module for each command. Each has ``add_parser(subparsers)``, which sets these defaults on its parser:
#:
#: * ``run(args, conf, db) -> exit code``, or ``run(args) -> exit code`` with ``needs_database=False``.
#: * ``needs_database=False`` if it needs no database; it loads the configuration itself, if it needs one.
#: * ``needs_schema=False`` if it works on a database without our schema.
#: * ``patient=False`` if ``[placement_database] network_timeout`` applies to it as it does to the service.
_COMMANDS = (manage_db, manage_audit, manage_tree, manage_capacity, manage_explain, manage_page, manage_openapi)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    :param argv: the arguments after the program's name; None for those of this process.
    :returns: the exit code: 0 for success, 127 when the command failed; the commands define others.
    """
    args = _parser().parse_args(argv)
    output.warn_of_installation('placement-manage')
    try:
        if not args.needs_database:
            return int(args.run(args))
        conf = _configuration(args.config_file)
        if args.patient:
            # A statement that changes the schema may take longer than the timeout for requests.
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


def _configuration(file: str | None) -> cfg.ConfigOpts:
    """Load the configuration; without one, use the database of ``placement-api --dev`` in the current directory.

    :raises ConfigurationInvalid: the configuration is invalid, or there is no database to use.
    """
    conf = placement_conf.load(argv=['--config-file', file] if file else [])
    if conf.placement_database.connection or conf.config_file:
        return conf
    path = dev_database.find()
    if path is None:
        raise exception.ConfigurationInvalid(
            reason='[placement_database] connection is not set. Pass --config-file FILE, set'
            ' OS_PLACEMENT_DATABASE__CONNECTION, or go to the directory in which placement-api --dev made'
            f' {dev_database.FILE_NAME}.'
        )
    print(f'placement-manage: no database is configured, so {path} is used', file=sys.stderr)
    conf.set_override('connection', dev_database.url(path), 'placement_database')
    return conf


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='placement-manage',
        description='Manage the database of the placement service and show what is in it.',
        epilog='The database is the one of [placement_database] connection in the configuration file, or of the'
        ' environment variable OS_PLACEMENT_DATABASE__CONNECTION; without either, that of placement-api --dev in the'
        ' current directory.',
    )
    parser.set_defaults(needs_schema=True, needs_database=True, patient=True)
    output.add_common_options(parser)
    commands = parser.add_subparsers(title='commands', metavar='COMMAND', required=True)
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


if __name__ == '__main__':
    sys.exit(main())
