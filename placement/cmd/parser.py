"""Parses the arguments of all commands.

It imports neither the configuration nor the database, so that ``--help``, ``--version`` and usage errors come at once.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import shtab

from placement import release

#: The SQLite file of ``placement-api --dev`` in the current directory, unless ``--database`` gives another path.
DEV_DATABASE = 'placement-dev.sqlite'

#: The exit code of a command whose output nobody reads any longer: that of a program that SIGPIPE ended.
OUTPUT_CLOSED = 128 + signal.SIGPIPE


class _KeepWords(argparse.Action):
    """Appends the option and its value, if it has one, to the words for oslo.config, which all parsers share."""

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _option: str | None = None
    ) -> None:
        words = [self.option_strings[0], *([values] if isinstance(values, str) else [])]
        getattr(namespace, self.dest).extend(words)


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of a program or of one of its commands, once.

    Options of the configuration and of the log may be before or after the name of a command. oslo.config reads them in
    this order, as the attribute ``configuration_words`` of the parsed arguments.

    :param words: the list for these options, of the parser of the program; None for this parser itself.
    """

    def __init__(self, *args: Any, words: list[str] | None = None, **options: Any) -> None:
        # With abbreviations, each new option could break a script.
        super().__init__(*args, **{'allow_abbrev': False, **options})
        self._words = [] if words is None else words
        self._add_shared(
            '--config-file',
            metavar='FILE',
            help='configuration file; if repeated, a later value replaces an earlier one (default: placement.conf in'
            ' $OS_PLACEMENT_CONFIG_DIR or /etc/placement, if it exists)',
        )
        self._add_shared(
            '--config-dir',
            metavar='DIR',
            help='directory whose .conf files are read in the order of their names; may be repeated (default:'
            ' placement.conf.d beside the default configuration file, if it exists)',
        )
        self._add_shared('--debug', '-d', help='log at level DEBUG, as [DEFAULT] debug does')
        self._add_shared(
            '--log-file',
            metavar='FILE',
            help='write the log to this file, as [DEFAULT] log_file does (default: standard error)',
        )
        self._add_shared(
            '--log-dir',
            metavar='DIR',
            help='directory of the log file, as [DEFAULT] log_dir; without a name, the file is PROGRAM.log',
        )
        self._add_shared('--use-syslog', help='write the log to syslog, as [DEFAULT] use_syslog does')
        self._add_shared('--use-journal', help='write the log to the journal of systemd, as [DEFAULT] use_journal does')
        self.add_argument(
            '--verbose',
            '-v',
            action='store_true',
            default=argparse.SUPPRESS,
            help='ignored; for tools that pass it to every OpenStack command',
        )
        self._commands: Any = None

    def _add_shared(self, *flags: str, **options: Any) -> None:
        """Add an option for oslo.config. It is a path if it has a ``metavar``, and otherwise has no value."""
        # All parsers have the same list, because that of a command would replace the options before its name.
        options |= {'action': _KeepWords, 'dest': 'configuration_words', 'default': self._words}
        if 'metavar' in options:
            self.add_path(*flags, **options)
        else:
            self.add_argument(*flags, nargs=0, **options)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the process after a help text or an error. ``parse_args`` handles a pipe that nobody reads."""
        sys.stdout.flush()
        super().exit(status, message)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line. End the process after a help text or an error, also if nobody reads the text."""
        try:
            return super().parse_args(args, namespace)
        except BrokenPipeError:
            discard_output()
            sys.exit(OUTPUT_CLOSED)

    def add_path(self, *flags: str, **options: Any) -> None:
        """Add an option with a path as ``add_argument`` does. Shells complete its value as a file or directory."""
        option = self.add_argument(*flags, **options)
        option.complete = shtab.DIRECTORY if option.metavar == 'DIR' else shtab.FILE  # type: ignore[attr-defined]

    def add_information(self) -> None:
        """Add the options that only print something: ``--version`` and ``--print-completion``."""
        version = f'placement {release()}'
        self.add_argument('--version', action='version', version=version, help='print the release and exit')
        shtab.add_argument_to(self, help='print the script with which this shell completes the command line, and exit')

    def add_group(self, name: str, summary: str, description: str, **defaults: Any) -> CommandParser:
        """Add a group of commands, and return its parser.

        :param summary: one line for the list of commands.
        :param defaults: attributes of the parsed arguments of its commands.
        """
        if self._commands is None:
            self._commands = self.add_subparsers(title='commands', metavar='COMMAND', required=True)
        parser: CommandParser = self._commands.add_parser(
            name, help=summary, description=description, words=self._words
        )
        parser.set_defaults(**defaults)
        return parser

    def add_command(self, name: str, add_arguments: Callable[[CommandParser], None], **defaults: Any) -> None:
        """Add a command.

        :param add_arguments: adds its arguments. The first paragraph of its docstring is the sentence for the list of
            commands, the second one is the description, and the third one, if any, follows the arguments.
        :param defaults: attributes of the parsed arguments, such as the function ``run``.
        """
        # With ``python -OO`` there are no docstrings.
        summary, _, texts = (add_arguments.__doc__ or '').partition('\n\n')
        description, _, epilog = texts.partition('\n\n')
        parser = self.add_group(name, summary[:1].lower() + summary[1:].rstrip('.'), description, **defaults)
        parser.epilog = epilog
        add_arguments(parser)

    def add_flag(self, flag: str, text: str) -> None:
        """Add an option without a value."""
        self.add_argument(flag, action='store_true', help=text)

    def add_format(self) -> None:
        """Add ``--format``."""
        self.add_argument(
            '--format', choices=('text', 'json'), default='text', help='output format (default: %(default)s)'
        )

    def add_report_options(self) -> None:
        """Add ``--names`` and ``--format``."""
        self.add_names()
        self.add_format()

    def add_repeatable(self, flag: str, **options: Any) -> None:
        """Add an option that may be given several times. Its value is the list of what is given."""
        self.add_argument(flag, action='append', default=[], **options)

    def add_names(self) -> None:
        """Add ``--names``, for a command that prints uuids of aggregates, projects or users."""
        self.add_path(
            '--names',
            metavar='FILE',
            dest='names_file',
            help='JSON file with the names of aggregates, projects and users by uuid (default: [placement] names_file)',
        )


def positive(text: str) -> int:
    """Return the number that ``text`` says, as the type of an argument.

    :raises ArgumentTypeError: it is below 1.
    :raises ValueError: it is no integer.
    """
    if int(text) < 1:
        raise argparse.ArgumentTypeError('must be at least 1')
    return int(text)


def age(text: str) -> dt.timedelta:
    """Return the time that ``text`` says, such as 30d or 12h, as the type of an argument.

    :raises ArgumentTypeError: it is no number of days or hours.
    """
    match = re.fullmatch('([0-9]{1,5})([dh])', text)
    if match is None:
        raise argparse.ArgumentTypeError(f'{text!r} is not a number of days or hours such as 30d or 12h')
    return dt.timedelta(**{'days' if match[2] == 'd' else 'hours': int(match[1])})


def discard_output() -> None:
    """Discard what the process still prints, because standard output is a pipe that nobody reads any longer.

    The default action of SIGPIPE would end the process instead, also when the database closes a connection.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
