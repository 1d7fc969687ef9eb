"""``placement-manage db``: the schema of the database, and the adoption of the database of another service."""

from __future__ import annotations

import argparse
import re
import sys

from oslo_config import cfg

from placement import exception
from placement.cmd import manage_audit, manage_fingerprint, output
from placement.cmd.command import CommandParser
from placement.db import change_log, migration
from placement.db.api import Database
from placement.ops import audit
from placement.ops.adoption import Plan, Step, adopt
from placement.units import plural

PROBLEMS_FOUND = 127
#: Maximum number of problems that the line of ``AdoptionPrevented`` has.
_MAX_PROBLEMS = 3

_ADOPT_DESCRIPTION = """\
Convert the database of another deployment of the placement service to the schema of this one, in place and without
loss of data. The tables are renamed, so that the other service can no longer write, and the missing columns are added.
Without --yes only the plan is printed. If the database has an unexpected schema or unexpected rows, or there are other
connections to it, the command prints these problems and changes nothing. Tables and columns that this
service does not know are kept. Stop the other service and make a backup first. db leave reverses the adoption."""
_ADOPT_EPILOG = """\
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


class AdoptionPrevented(exception.PlacementError):
    template = (
        'The database belongs to another Placement service and was not adopted; nothing was changed. {problems}'
        ' To see all: placement-manage db adopt'
    )


class InvalidCount(exception.PlacementError):
    template = '--max-count must be at least 1, not {count}.'


def add_command(program: CommandParser) -> None:
    """Add ``db`` and its own commands to the parser of ``placement-manage``."""
    group = program.add_command('db', 'the schema of the database', 'Manage the database schema.', needs_schema=False)
    group.add_command(
        'sync',
        'create the schema or upgrade it to the newest revision',
        'Create the schema or upgrade it to the newest revision, and insert the standard resource classes and traits'
        ' that are missing. Safe to run again, and on several hosts at the same time. With [placement_database]'
        ' adopt_on_sync, adopt the database of another service.',
        run=_sync,
    )
    group.add_command(
        'version',
        'print the revision of the schema',
        'Print the revision of the schema; None if the database has no tables. Fails if another service made them.',
        run=_version,
    )
    stamp = group.add_command(
        'stamp',
        'record a revision of the schema without changing the schema',
        'Record that the schema is at REVISION, without changing the schema. Only for a schema that was changed by'
        ' hand. A revision that does not look like one of this service, such as one that a tool for the database of'
        ' another service passes, is accepted, and nothing is recorded.',
        run=_stamp,
    )
    stamp.add_argument('revision', metavar='REVISION', help='a revision, or "head" for the newest')
    group.add_command(
        'invalidate-caches',
        'make every process of the service reload its cache from the tables',
        'Make every process of the service reload its cache from the tables before its next search. Run it after you'
        ' changed tables by hand, because the service does not detect such changes.',
        run=_invalidate_caches,
        needs_schema=True,
    )
    summary = 'adopt the database of another deployment'
    to_adopt = group.add_command('adopt', summary, _ADOPT_DESCRIPTION, _ADOPT_EPILOG, run=_adopt)
    summary = 'return an adopted database to the other deployment'
    to_leave = group.add_command('leave', summary, _LEAVE_DESCRIPTION, _LEAVE_EPILOG, run=_leave)
    for parser in (to_adopt, to_leave):
        parser.add_argument('--yes', action='store_true', help='apply the plan (default: only print it)')
        parser.add_argument(
            '--ignore-connections',
            action='store_true',
            help='with --yes: continue despite other connections to the database; only if none of them writes',
        )
    manage_fingerprint.add_command(group)
    # Deployment tools run this command for every OpenStack service.
    online = group.add_command(
        'online_data_migrations',
        'do nothing; for tools that run this command for every service',
        'Print that there is nothing to do: db sync and db adopt make all changes of the data. For tools that run this'
        ' command for every service. With [placement_database] adopt_on_sync, adopt the database of another service.',
        run=_online_data_migrations,
    )
    online.add_argument('--max-count', metavar='N', type=int, help='a positive number; otherwise ignored')


def _sync(_args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    _adopt_if_configured(conf, db)
    db.sync()
    print(f'The schema is at revision {migration.head()}, with all standard resource classes and traits.')
    return 0


def _online_data_migrations(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    if args.max_count is not None and args.max_count < 1:
        raise InvalidCount(count=args.max_count)
    _adopt_if_configured(conf, db)
    migration.check_revision(db.engine)
    print('There is nothing to do: db sync and db adopt leave no data to be migrated later.')
    return 0


def _version(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    revision = migration.recorded_revision(db.engine)
    if revision is None and migration.is_foreign(db.engine):
        # This raises an error that names the command to adopt the database.
        migration.check_revision(db.engine)
    # For an empty database this is the word None, which tools expect.
    print(revision)
    return 0


def _invalidate_caches(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    db.write(change_log.record_reload)
    print('Every process of the service reloads its cache before its next search.')
    return 0


def _stamp(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    try:
        migration.stamp(db.engine, args.revision)
    except migration.UnknownRevision:
        if re.fullmatch('[0-9]{1,3}', args.revision):
            raise
        # Scripts that move data into a database of another service record a revision of that service.
        print(f'This service has no revision {args.revision}, so nothing was recorded. Run placement-manage db sync.')
        return 0
    print(f'The schema is now recorded as revision {migration.recorded_revision(db.engine)}.')
    return 0


# Adoption --------------------------------------------------------------------------------------------------------


def _owner(conf: cfg.ConfigOpts) -> tuple[str, str]:
    """Return the project and the user of consumers that have allocations but no row."""
    return conf.placement.incomplete_consumer_project_id, conf.placement.incomplete_consumer_user_id


def _adopt(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    try:
        if not args.yes:
            return _print_plan(adopt.plan(db.engine, *_owner(conf)), 'adopt')
        plan = adopt.adopt_database(db.engine, *_owner(conf), _print_step, args.ignore_connections)
    except adopt.AdoptedAlready as error:
        return _adopted_already(error, conf, db)
    if plan.problems:
        return _print_problems(plan.problems)
    return _audit_adopted(conf, db)


def _audit_adopted(conf: cfg.ConfigOpts, db: Database) -> int:
    print('The database was adopted. Auditing it:')
    return manage_audit.run(
        argparse.Namespace(excluded=[], unchanged_for=None, repair=False, dry_run=False, format='text'), conf, db
    )


def _adopt_if_configured(conf: cfg.ConfigOpts, db: Database) -> None:
    """With [placement_database] adopt_on_sync, adopt the database if another service made its tables.

    What the audit finds is printed, but is no failure: a tool would stop, and the service can be started.

    :raises AdoptionPrevented: there are problems or other connections. Nothing was changed.
    """
    if not conf.placement_database.adopt_on_sync or not migration.is_foreign(db.engine):
        return
    try:
        plan = adopt.adopt_database(db.engine, *_owner(conf), _print_step)
    except adopt.AdoptedAlready:
        # Another process was faster.
        return
    if plan.problems:
        problems = [output.printable(problem, output.console()) for problem in plan.problems[:_MAX_PROBLEMS]]
        rest = len(plan.problems) - len(problems)
        if rest:
            problems.append(f'{plural(rest, "more problem")}.')
        raise AdoptionPrevented(problems=' '.join(problems))
    _audit_adopted(conf, db)


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
    plan = adopt.return_database(db.engine, _print_step, args.ignore_connections)
    if plan.problems:
        return _print_problems(plan.problems)
    print('The tables have their previous names again. To adopt the database again: placement-manage db adopt')
    return 0


def _print_step(step: Step) -> None:
    print(f'- {step.sentence}', flush=True)


def _print_plan(plan: Plan, command: str) -> int:
    if plan.problems:
        return _print_problems(plan.problems)
    print(f'To {command} this database, placement-manage would:')
    for step in plan.steps:
        _print_step(step)
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
