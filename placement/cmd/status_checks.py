"""The checks of ``placement-status upgrade check``."""

from __future__ import annotations

import argparse
import logging
import textwrap

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from placement import conf as placement_conf
from placement import exception
from placement.cmd import command
from placement.conf.unknown import list_unknown
from placement.db import migration
from placement.db.api import Database
from placement.ops.audit import audit
from placement.units import plural
from placement.web import keystone, policy, policy_files

#: Exit code for a database without tables.
_NO_TABLES = 255

#: Maximum number of characters in a line of the details.
_WIDTH = 100

_SUCCESS = upgradecheck.Result(upgradecheck.Code.SUCCESS)
_SKIPPED = upgradecheck.Result(upgradecheck.Code.WARNING, 'Skipped, because the check of the schema failed.')


class Checks(upgradecheck.UpgradeCommands):
    """The checks of ``placement-status upgrade check``, run by oslo.upgradecheck."""

    def __init__(self, conf: cfg.ConfigOpts, db: Database) -> None:
        self._conf = conf
        self._db = db

    def _configuration(self) -> upgradecheck.Result:
        if self._conf.api.auth_strategy == 'keystone':
            try:
                keystone.check_token_cache(self._conf)
            except exception.ConfigurationInvalid as error:
                return upgradecheck.Result(upgradecheck.Code.FAILURE, str(error))
        files = placement_conf.files(self._conf)
        details = [f'Read from {", ".join(files)}'] if files else []
        # This is a warning, because an ignored option may be important, such as an option for TLS to the database.
        if ignored := list_unknown(self._conf):
            details += ['Options that this service does not have are ignored:', *ignored]
            return upgradecheck.Result(upgradecheck.Code.WARNING, '\n'.join(details))
        return upgradecheck.Result(upgradecheck.Code.SUCCESS, '\n'.join(details) or None)

    def _keystone(self) -> upgradecheck.Result:
        if self._conf.api.auth_strategy != 'keystone':
            return _SUCCESS
        # It warns of what the result says.
        logging.getLogger('keystoneauth').setLevel(logging.ERROR)
        problem = keystone.find_credentials_problem(self._conf)
        if problem is None:
            return _SUCCESS
        is_certain, details = problem
        # Keystone may be unavailable for a moment.
        return upgradecheck.Result(upgradecheck.Code.FAILURE if is_certain else upgradecheck.Code.WARNING, details)

    def _policy(self) -> upgradecheck.Result:
        if not policy_files.is_customized(self._conf):
            return _SUCCESS
        # This is not at the top: it imports all handlers.
        from placement import policies

        try:
            loaded = policy.load(self._conf, policies.list_rules())
        except exception.ConfigurationInvalid as error:
            return upgradecheck.Result(upgradecheck.Code.FAILURE, str(error))
        errors = [f'{sentence} It denies every request.' for sentence in loaded.errors]
        if details := '\n'.join([*errors, *loaded.warnings]):
            code = upgradecheck.Code.FAILURE if errors else upgradecheck.Code.WARNING
            return upgradecheck.Result(code, details)
        return upgradecheck.Result(upgradecheck.Code.SUCCESS, ', '.join(loaded.sources) or None)

    def _get_details(self, upgrade_check_result: upgradecheck.Result) -> str | None:
        """Wrap each line of the details separately, for the table."""
        lines = (upgrade_check_result.details or '').splitlines()
        wrapped = (textwrap.fill(line, _WIDTH, subsequent_indent='  ', break_on_hyphens=False) for line in lines)
        return '\n'.join(wrapped) or None

    def _schema(self) -> upgradecheck.Result:
        try:
            migration.check_revision(self._db.engine)
        except migration.WrongSchema as error:
            return upgradecheck.Result(upgradecheck.Code.FAILURE, str(error))
        return _SUCCESS

    def _standard_names(self) -> upgradecheck.Result:
        if self._schema().code != upgradecheck.Code.SUCCESS:
            return _SKIPPED
        with self._db.reader() as tx:
            names = migration.missing_standard_names(tx)
        if not names:
            return _SUCCESS
        details = (
            f'The database lacks {plural(len(names), "standard resource class or trait", "standard names")} of the'
            f' installed packages, such as {names[0]}. The service inserts them when it starts, unless the database is'
            ' read-only; placement-manage db sync does so now.'
        )
        return upgradecheck.Result(upgradecheck.Code.WARNING, details)

    def _other_tables(self) -> upgradecheck.Result:
        if self._schema().code != upgradecheck.Code.SUCCESS:
            return _SKIPPED
        foreign = migration.foreign_tables(self._db.engine)
        if not foreign:
            return _SUCCESS
        details = (
            f'The database also has tables of another placement service ({", ".join(foreign)}). Neither service sees'
            ' what the other one writes: stop the other service, and drop its tables.'
        )
        return upgradecheck.Result(upgradecheck.Code.WARNING, details)

    def _audited(self, kind: str, failure: upgradecheck.Code) -> upgradecheck.Result:
        """Return success if an audit finds nothing of this kind; otherwise ``failure`` with the first finding."""
        if self._schema().code != upgradecheck.Code.SUCCESS:
            return _SKIPPED
        findings = audit.find(self._db, self._conf, kind)
        if not findings:
            return _SUCCESS
        rest = f' and {len(findings) - 1} more' if len(findings) > 1 else ''
        details = f'{findings[0].subject_text()}{rest}: {findings[0].detail}. See: placement-manage audit'
        return upgradecheck.Result(failure, details)

    _upgrade_checks = (
        ('Configuration', _configuration),
        ('Keystone', _keystone),
        ('Policy', _policy),
        ('Schema', _schema),
        ('Standard names', _standard_names),
        # A search fails if an inventory has a class that does not exist.
        ('References', (_audited, {'kind': 'missing_reference', 'failure': upgradecheck.Code.FAILURE})),
        # If the root of a provider is wrong, searches find the provider in another tree or not at all.
        ('Provider trees', (_audited, {'kind': 'invalid_tree', 'failure': upgradecheck.Code.FAILURE})),
        ('Consumers', (_audited, {'kind': 'allocation_without_consumer', 'failure': upgradecheck.Code.WARNING})),
        # If a recorded usage is too low, claims exceed the capacity.
        ('Usages', (_audited, {'kind': 'usage_mismatch', 'failure': upgradecheck.Code.FAILURE})),
        ('Tables of another service', _other_tables),
    )


def run(args: argparse.Namespace) -> int:
    """Run the checks, print the results, and return the exit code."""
    conf = command.load_configuration(args)
    db = Database(conf)
    try:
        # If the database is unavailable, this fails with one line. A check would print a traceback.
        migration.recorded_revision(db.engine)
        # oslo.upgradecheck parses a command line itself. It gets one made from ours, which has better help.
        arguments = ['upgrade', 'check', *(['--json'] if args.json else [])]
        worst = upgradecheck.main(cfg.ConfigOpts(), 'placement', Checks(conf, db), arguments, [])
        # Tools expect that the check of an empty database fails.
        if migration.recorded_revision(db.engine) is None and not migration.is_foreign(db.engine):
            return _NO_TABLES
        # The service starts despite warnings, so the exit code lets tools continue.
        return 0 if worst == upgradecheck.Code.WARNING else int(worst)
    finally:
        db.dispose()
