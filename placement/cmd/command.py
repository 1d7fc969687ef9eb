"""Parses options, loads the configuration and reports failures for all commands."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import shtab
import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_log import log
from sqlalchemy import exc as sa_exc

from placement import conf as placement_conf
from placement import exception, release

LOG = log.getLogger(__name__)

#: The exceptions that end a command with a one-line message.
FAILURES = (exception.PlacementError, db_exc.DBError, sa_exc.SQLAlchemyError, KeyboardInterrupt)

#: The SQLite file of ``placement-api --dev`` in the current directory, unless ``--database`` gives another path.
DEV_DATABASE = 'placement-dev.sqlite'


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of a program or of one of its commands.

    Options of the configuration and of the log may be before or after the name of a command. In the parser of a command
    they have no defaults, because these would overwrite the options before the name.
    """

    def __init__(self, *args: Any, is_command: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        default = argparse.SUPPRESS if is_command else None
        self.add_path(
            '--config-file',
            metavar='FILE',
            default=default,
            help='configuration file (default: placement.conf in $OS_PLACEMENT_CONFIG_DIR or /etc/placement, if it'
            ' exists)',
        )
        self.add_path(
            '--config-dir',
            metavar='DIR',
            default=default,
            help='directory whose .conf files are read after the configuration file, in the order of their names; a'
            ' later value replaces an earlier one',
        )
        self.add_argument(
            '-d',
            '--debug',
            action='store_true',
            default=argparse.SUPPRESS if is_command else False,
            help='log at level DEBUG, as [DEFAULT] debug does',
        )
        self.add_path(
            '--log-file',
            metavar='FILE',
            default=default,
            help='write the log to this file, as [DEFAULT] log_file does (default: standard error)',
        )
        self._commands: Any = None

    def add_path(self, *flags: str, **options: Any) -> None:
        """Add an option with a path as ``add_argument`` does. Shells complete its value as a file or directory."""
        option = self.add_argument(*flags, **options)
        option.complete = shtab.DIRECTORY if option.metavar == 'DIR' else shtab.FILE  # type: ignore[attr-defined]

    def add_information(self) -> None:
        """Add the options that only print something: ``--version`` and ``--print-completion``."""
        version = f'placement {release()}'
        self.add_argument('--version', action='version', version=version, help='print the release and exit')
        shtab.add_argument_to(self, help='print the script with which this shell completes the command line, and exit')

    def add_command(
        self, name: str, summary: str, description: str, epilog: str | None = None, **defaults: Any
    ) -> CommandParser:
        """Add a command, or a group of commands, and return its parser.

        :param summary: one line for the list of commands.
        :param defaults: attributes of the parsed arguments, such as the function ``run``.
        """
        if self._commands is None:
            self._commands = self.add_subparsers(title='commands', metavar='COMMAND', required=True)
        parser: CommandParser = self._commands.add_parser(
            name, help=summary, description=description, epilog=epilog, is_command=True
        )
        parser.set_defaults(**defaults)
        return parser

    def add_format(self) -> None:
        """Add ``--format``."""
        self.add_argument(
            '--format', choices=('text', 'json'), default='text', help='output format (default: %(default)s)'
        )

    def add_names(self) -> None:
        """Add ``--names``, for a command that prints uuids of aggregates, projects or users."""
        self.add_path(
            '--names',
            metavar='FILE',
            dest='names_file',
            help='JSON file with the names of aggregates, projects and users by uuid (default: [placement] names_file)',
        )


def configuration_arguments(args: argparse.Namespace) -> list[str]:
    """Return the options in ``args`` that oslo.config and oslo.log read, as arguments of a command line."""
    options = {'--config-file': args.config_file, '--config-dir': args.config_dir, '--log-file': args.log_file}
    words = [word for option, value in options.items() if value for word in (option, value)]
    return [*words, '--debug'] if args.debug else words


def load_configuration(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Load the configuration that the arguments name. If they request a log, set it up.

    :raises ConfigurationInvalid: a file cannot be read or a value is invalid.
    """
    conf = placement_conf.load(configuration_arguments(args))
    if args.debug or args.log_file:
        placement_conf.set_up_log(conf)
        LOG.debug(placement_conf.describe(conf))
    return conf


def run_command(program: str, failure_code: int, command: Callable[[], int]) -> int:
    """Call ``command`` and return its exit code.

    If it raises one of ``FAILURES``, print the reason as one line on standard error and return ``failure_code``. Before
    the call, print a warning if another installed package conflicts with the service.
    """
    if conflict := placement_conf.package_conflict():
        print(f'{program}: warning: {conflict}', file=sys.stderr)
    try:
        return command()
    except FAILURES as error:
        if isinstance(error, exception.PlacementError):
            reason = ' '.join(error.for_operators.split())
        elif isinstance(error, KeyboardInterrupt):
            reason = 'interrupted'
        else:
            reason = 'the database reported: ' + str(error).partition('\n')[0]
        print(f'{program}: {reason}', file=sys.stderr)
        return failure_code


def sqlite_url(path: pathlib.Path) -> str:
    """Return the value of ``[placement_database] connection`` for an SQLite file."""
    return sa.URL.create('sqlite', database=str(path.absolute())).render_as_string()
