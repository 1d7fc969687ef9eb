"""Loads the configuration, opens the database and reports failures for all commands."""

from __future__ import annotations

import argparse
import logging
import pathlib
import sys
from collections.abc import Callable
from urllib import parse

from oslo_config import cfg
from oslo_log import log

from placement import conf as placement_conf
from placement import exception, log_format
from placement.cmd.parser import DEV_DATABASE, OUTPUT_CLOSED, discard_output
from placement.db import errors, migration
from placement.db.api import Database

LOG = log.getLogger(__name__)

#: The exceptions that end a command with a one-line message.
FAILURES = (exception.PlacementError, *errors.DATABASE_ERRORS, KeyboardInterrupt)

#: Options that set up a log.
_LOG_OPTIONS = frozenset({'--debug', '--log-file', '--log-dir', '--use-syslog', '--use-journal'})


def load_configuration(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Load the configuration that the arguments name. If they request a log, set it up.

    :raises ConfigurationInvalid: a file cannot be read or a value is invalid.
    """
    words = args.configuration_words
    conf = placement_conf.load(words)
    if not _LOG_OPTIONS.isdisjoint(words):
        if not (conf.log_file or conf.log_dir or conf.use_journal):
            # oslo.log would write to standard output, among the output of the command, even with use_syslog.
            conf.set_override('use_stderr', True)
        placement_conf.set_up_log(conf)
        LOG.debug(placement_conf.describe(conf))
    else:
        # oslo.log adds one for standard error as soon as its options are registered. What the availability logs is left
        # out, because the command ends with the same words.
        for handler in logging.root.handlers:
            if type(handler) is logging.StreamHandler:
                handler.addFilter(lambda record: record.name != 'placement.db.availability')
    return conf


def run_command(program: str, failure_code: int, command: Callable[[], int]) -> int:
    """Call ``command`` and return its exit code.

    If it raises one of ``FAILURES``, print the reason as one line on standard error and return ``failure_code``. If
    nobody reads its output any longer, as after ``| head``, return the code that shells have for this. Before the call,
    print a warning if another installed package conflicts with the service.
    """
    if conflict := placement_conf.package_conflict():
        print(f'{program}: warning: {conflict}', file=sys.stderr)
    try:
        code = command()
        # Otherwise Python would do this at its end, and report a failure.
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        discard_output()
        return OUTPUT_CLOSED
    except FAILURES as error:
        if isinstance(error, exception.PlacementError):
            reason = ' '.join(error.for_operators.split())
        elif isinstance(error, KeyboardInterrupt):
            reason = 'interrupted'
        else:
            reason = 'the database reported: ' + str(error).partition('\n')[0]
        print(f'{program}: {log_format.printable(reason)}', file=sys.stderr)
        return failure_code


def run_with_database(
    function: Callable[[argparse.Namespace, cfg.ConfigOpts, Database], int], args: argparse.Namespace
) -> int:
    """Call the function of a command of ``placement-manage`` with the database, and return its exit code."""
    conf = _configuration(args)
    if getattr(args, 'names_file', None):
        conf.set_override('names_file', args.names_file, 'placement')
    db = Database(conf, time_limits=args.has_timeout)
    try:
        if args.needs_schema:
            migration.check_revision(db.engine)
        return function(args, conf, db)
    finally:
        db.dispose()


def _configuration(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Load the configuration. Without one, use the database of ``placement-api --dev`` in the current directory.

    :raises ConfigurationInvalid: the configuration is invalid, or there is no database to use.
    """
    conf = load_configuration(args)
    if conf.placement_database.connection or placement_conf.files(conf):
        return conf
    path = pathlib.Path(DEV_DATABASE).absolute()
    if not path.is_file():
        raise exception.ConfigurationInvalid(
            reason='[placement_database] connection is not set. Pass --config-file FILE, set'
            ' OS_PLACEMENT_DATABASE__CONNECTION, or go to the directory in which placement-api --dev made'
            f' {DEV_DATABASE}.'
        )
    print(f'placement-manage: no database is configured, so {path} is used', file=sys.stderr)
    conf.set_override('connection', sqlite_url(path), 'placement_database')
    return conf


def sqlite_url(path: pathlib.Path) -> str:
    """Return the value of ``[placement_database] connection`` for an SQLite file."""
    return f'sqlite:///{parse.quote(str(path.absolute()))}'
