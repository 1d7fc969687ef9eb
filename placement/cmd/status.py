"""``placement-status``: whether the database is ready for this release of the service."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from placement import conf as placement_conf
from placement.audit import checks
from placement.cmd import output
from placement.db import migration
from placement.db.api import Database

#: Exit code of a command that could not do what it was asked.
FAILED = 255

_DESCRIPTION = """\
Look whether the database is ready for this release: the schema is at its version, every provider has the root that
follows from its parents, every allocation has the record of its consumer, what is recorded as used is the sum of the
allocations, and no other service has tables of its own beside; and whether options are set that the service does not
have. Changes nothing; safe while the service runs."""
_EPILOG = 'Exit code: 0 ready, 1 something should be looked at, 2 not ready, 255 the check failed.'

_NOT_LOOKED_AT = upgradecheck.Result(upgradecheck.Code.WARNING, 'Not looked at, as the schema is not the right one.')


class Checks(upgradecheck.UpgradeCommands):
    """The checks of ``placement-status upgrade check``, in the frame of oslo.upgradecheck."""

    def __init__(self, conf: cfg.ConfigOpts, db: Database) -> None:
        self._conf = conf
        self._db = db

    def _configuration(self) -> upgradecheck.Result:
        # What was meant may matter, such as TLS to the database.
        if ignored := placement_conf.ignored(self._conf):
            details = f'Options that this service does not have are ignored: {", ".join(ignored)}'
            return upgradecheck.Result(upgradecheck.Code.WARNING, details)
        return upgradecheck.Result(upgradecheck.Code.SUCCESS)

    def _schema(self) -> upgradecheck.Result:
        try:
            self._db.check_schema()
        except migration.WrongSchema as error:
            return upgradecheck.Result(upgradecheck.Code.FAILURE, str(error))
        return upgradecheck.Result(upgradecheck.Code.SUCCESS)

    def _trees(self) -> upgradecheck.Result:
        # A provider whose root is wrong is missing from the answers to searches.
        return self._audited('broken_tree', upgradecheck.Code.FAILURE)

    def _consumers(self) -> upgradecheck.Result:
        return self._audited('allocation_without_consumer', upgradecheck.Code.WARNING)

    def _usages(self) -> upgradecheck.Result:
        # What is recorded too low is claimed twice.
        return self._audited('wrong_usage', upgradecheck.Code.FAILURE)

    def _other_tables(self) -> upgradecheck.Result:
        if self._schema().code != upgradecheck.Code.SUCCESS:
            return _NOT_LOOKED_AT
        others = self._db.foreign_tables()
        if not others:
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        details = (
            f'Beside the tables of this service there are those of another one ({", ".join(others)}). It does not see'
            ' what this one does, nor the other way round: stop it, and drop them.'
        )
        return upgradecheck.Result(upgradecheck.Code.WARNING, details)

    def _audited(self, kind: str, verdict: upgradecheck.Code) -> upgradecheck.Result:
        """Success when an audit finds nothing of this kind, else ``verdict`` and what to do."""
        if self._schema().code != upgradecheck.Code.SUCCESS:
            return _NOT_LOOKED_AT
        found = checks.find(self._db, self._conf, kind)
        if not found:
            return upgradecheck.Result(upgradecheck.Code.SUCCESS)
        first = ', '.join(f'{name} {value}' for name, value in found[0].subject.items())
        more = f' and {len(found) - 1} more' if len(found) > 1 else ''
        details = f'{first}{more}: {found[0].detail}. See: placement-manage audit'
        return upgradecheck.Result(verdict, details)

    _upgrade_checks = (
        ('Configuration', _configuration),
        ('Schema', _schema),
        ('Provider trees', _trees),
        ('Consumers', _consumers),
        ('Usages', _usages),
        ('Tables of others', _other_tables),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks and print a table of the results, or JSON.

    :param argv: the arguments after the program's name; None for those of this process.
    :returns: the exit code.
    """
    args = _parser().parse_args(argv)
    output.warn_of_installation('placement-status')
    try:
        conf = placement_conf.load(argv=['--config-file', args.config_file] if args.config_file else [])
        db = Database(conf)
        try:
            # So that a database that is away is one line, not a trace of the first check that needs it.
            db.schema_version()
            # The library takes a command line; ours is the one with help.
            command = ['upgrade', 'check', *(['--json'] if args.json else [])]
            return int(upgradecheck.main(cfg.ConfigOpts(), 'placement', Checks(conf, db), command, []))
        finally:
            db.dispose()
    except output.FAILURES as error:
        output.failed('placement-status', error)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='placement-status',
        description='Tell whether an installation of the placement service is in order.',
        epilog='The database is the one of [placement_database] connection in the configuration file, or of the'
        ' environment variable OS_PLACEMENT_DATABASE__CONNECTION.',
    )
    output.add_common_options(parser)
    subjects = parser.add_subparsers(title='commands', metavar='COMMAND', required=True)
    upgrade = subjects.add_parser('upgrade', help='before and after an upgrade')
    actions = upgrade.add_subparsers(title='commands', metavar='COMMAND', required=True)
    check = actions.add_parser(
        'check', help='look whether the database is ready for this release', description=_DESCRIPTION, epilog=_EPILOG
    )
    check.add_argument('--json', action='store_true', help='print the results as JSON')
    return parser


if __name__ == '__main__':
    sys.exit(main())
