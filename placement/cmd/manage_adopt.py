"""``placement-manage db adopt``: take over the database of another deployment."""

from __future__ import annotations

import argparse
from typing import Any

from oslo_config import cfg

from placement.cmd import manage_audit, output
from placement.db.adoption import adopt
from placement.db.adoption.plan import Step
from placement.db.api import Database

DOUBTFUL = 127

_DESCRIPTION = """\
Take over, in place and without losing anything, a database that another deployment of the placement service made: the
same tables, without the columns that this service adds. Without --yes only the plan is printed. When anything in the
database is not as expected, that is printed instead and nothing is changed. Other tables and columns are left alone.
Stop the other service and make a backup first."""
_EPILOG = """\
Exit code: 0 planned or adopted, 3 adopted and the audit that follows found something, 127 there are doubts or the
command failed. On SQLite and PostgreSQL a failure changes nothing; on MySQL and MariaDB run the command again."""


def add_action(actions: Any) -> None:
    """Add ``adopt`` to the parser of ``placement-manage db``."""
    parser = actions.add_parser(
        'adopt', help='take over the database of another deployment', description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument('--yes', action='store_true', help='carry the plan out (default: only print it)')
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    owner = (conf.placement.incomplete_consumer_project_id, conf.placement.incomplete_consumer_user_id)
    plan = adopt.carry_out(db.engine, *owner, report=_print) if args.yes else adopt.look(db.engine, *owner)
    if plan.doubts:
        return _print_doubts(plan.doubts)
    if not args.yes:
        print('To adopt this database, placement-manage would:')
        for step in plan.steps:
            _print(step)
        print('Nothing was changed. To carry this out: placement-manage db adopt --yes')
        return 0
    print('The database is adopted. Auditing it:')
    return manage_audit.run(argparse.Namespace(repair=False, dry_run=False, format='text'), conf, db)


def _print(step: Step) -> None:
    print(f'- {step.sentence}', flush=True)


def _print_doubts(doubts: list[str]) -> int:
    print('Nothing was changed, because not everything is as expected:')
    for doubt in doubts:
        # Doubts quote what is in the database.
        print(f'- {output.printable(doubt, output.console())}')
    print('Put this right, or ask somebody who knows this database, and run the command again.')
    return DOUBTFUL
