"""``placement-manage db adopt`` and ``db leave``: adopt the database of another placement service, or return it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from oslo_config import cfg

from placement.cmd import manage_audit, output
from placement.cmd.command import CommandParser
from placement.db import migration
from placement.db.api import Database
from placement.ops import audit
from placement.ops.adoption import Plan, Step, adopt
from placement.units import plural

PROBLEMS_FOUND = 127

_DESCRIPTION = """\
Convert the database of another deployment of the placement service to the schema of this one, in place and without
loss of data. The tables are renamed, so that the other service can no longer write, and the missing columns are added.
Without --yes only the plan is printed. If the database has an unexpected schema or unexpected rows, or there are other
connections to it, the command prints these problems and changes nothing. Tables and columns that this
service does not know are kept. Stop the other service and make a backup first. db leave reverses the adoption."""
_EPILOG = """\
Exit code: 0 if the plan was printed or the database was adopted, 3 if it was adopted and the audit found problems, 127
if problems prevent the adoption or the command failed. On SQLite and PostgreSQL a failure changes nothing; on MySQL and
MariaDB run the command again."""
_LEAVE_DESCRIPTION = """\
Return an adopted database to the other deployment: the tables get the names that the other service uses, and
processes of this service can no longer use them. Without --yes only the plan is printed. Stop this service first. The
data of both services are kept. To adopt the database again, run db adopt."""
_LEAVE_EPILOG = """\
Exit code: 0 if the plan was printed or the database was returned, 127 if problems prevent that or the command
failed. On SQLite and PostgreSQL a failure changes nothing; on MySQL and MariaDB run the command again."""


def add_commands(group: CommandParser) -> None:
    """Add ``adopt`` and ``leave`` to the parser of ``placement-manage db``."""
    _add(group, 'adopt', 'adopt the database of another deployment', _DESCRIPTION, _EPILOG, _adopt)
    summary = 'return an adopted database to the other deployment'
    _add(group, 'leave', summary, _LEAVE_DESCRIPTION, _LEAVE_EPILOG, _leave)


def _add(group: CommandParser, name: str, summary: str, description: str, epilog: str, run: Any) -> None:
    parser = group.add_command(name, summary, description, epilog, run=run)
    parser.add_argument('--yes', action='store_true', help='apply the plan (default: only print it)')
    parser.add_argument(
        '--ignore-connections',
        action='store_true',
        help='with --yes: continue despite other connections to the database; only if none of them writes',
    )


def _adopt(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    owner = (conf.placement.incomplete_consumer_project_id, conf.placement.incomplete_consumer_user_id)
    try:
        if not args.yes:
            return _print_plan(adopt.plan(db.engine, *owner), 'adopt')
        plan = adopt.adopt_database(db.engine, *owner, _print, args.ignore_connections)
    except adopt.AdoptedAlready as error:
        return _adopted_already(error, conf, db)
    if plan.problems:
        return _print_problems(plan.problems)
    print('The database was adopted. Auditing it:')
    return manage_audit.run(
        argparse.Namespace(excluded=[], unchanged_for=None, repair=False, dry_run=False, format='text'), conf, db
    )


def _adopted_already(error: adopt.AdoptedAlready, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print that the database is already adopted, and whether another program has written to it since."""
    wrong = audit.find(db, conf, 'usage_mismatch') if error.revision == migration.head() else []
    advice = ''
    if wrong:
        number = plural(len(wrong), 'inventory', 'inventories')
        advice = (
            f' The recorded usage of {number} is not the sum of the allocations: run placement-manage audit --repair'
        )
    print(f'placement-manage: {error}{advice}', file=sys.stderr)
    return PROBLEMS_FOUND


def _leave(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    if not args.yes:
        return _print_plan(adopt.plan_return(db.engine), 'leave')
    plan = adopt.return_database(db.engine, _print, args.ignore_connections)
    if plan.problems:
        return _print_problems(plan.problems)
    print('The tables have their previous names again. To adopt the database again: placement-manage db adopt')
    return 0


def _print(step: Step) -> None:
    print(f'- {step.sentence}', flush=True)


def _print_plan(plan: Plan, command: str) -> int:
    if plan.problems:
        return _print_problems(plan.problems)
    print(f'To {command} this database, placement-manage would:')
    for step in plan.steps:
        _print(step)
    for note in plan.notes:
        print(f'Note: {output.printable(note, output.console())}')
    print(f'Nothing was changed. To apply this plan: placement-manage db {command} --yes')
    return 0


def _print_problems(problems: list[str]) -> int:
    print('Nothing was changed, because of these problems:')
    for problem in problems:
        # Problems quote names from the database, which may contain any character.
        print(f'- {output.printable(problem, output.console())}')
    print('Correct them and run the command again.')
    if any(problem.startswith('There is a connection') for problem in problems):
        print('If none of these connections writes (a monitor, for example), add --ignore-connections.')
    return PROBLEMS_FOUND
