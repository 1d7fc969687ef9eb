"""``placement-manage db``: the schema of the database, and the adoption of the database of another service."""

from __future__ import annotations

import argparse
import re

from oslo_config import cfg

from placement import exception
from placement.cmd import manage_audit, output
from placement.db import change_log, change_log_slots, errors, migration
from placement.db.api import Database
from placement.ops.adoption import Plan, Step, adopt
from placement.ops.audit import audit
from placement.units import plural

PROBLEMS_FOUND = 127
#: Maximum number of problems that the line of ``AdoptionPrevented`` has.
_MAX_PROBLEMS = 3


class AdoptionPrevented(exception.PlacementError):
    template = (
        'The database belongs to another Placement service and was not adopted; nothing was changed. {problems}'
        ' To see all: placement-manage db adopt'
    )


class InvalidCount(exception.PlacementError):
    template = '--max-count must be at least 1, not {count}.'


def run_sync(_args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Create or upgrade the schema, after the adoption that the configuration asks for."""
    _adopt_if_configured(conf, db)
    db.sync()
    print(f'The schema is at revision {migration.head()}, with all standard resource classes and traits.')
    return 0


def run_online_data_migrations(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print that there is nothing to do, after the adoption that the configuration asks for."""
    if args.max_count is not None and args.max_count < 1:
        raise InvalidCount(count=args.max_count)
    _adopt_if_configured(conf, db)
    migration.check_revision(db.engine)
    print('There is nothing to do: db sync and db adopt leave no data to be migrated later.')
    return 0


def run_version(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    """Print the revision of the schema; None for an empty database."""
    revision = migration.recorded_revision(db.engine)
    if revision is None and migration.is_foreign(db.engine):
        # This raises an error that names the command to adopt the database.
        migration.check_revision(db.engine)
    # For an empty database this is the word None, which tools expect.
    print(revision)
    return 0


def run_invalidate_caches(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    """Make every process of the service reload its cache."""
    try:
        db.write(change_log.record_reload)
    except errors.IncompleteDatabase:
        # All rows were restored except those of the change log.
        with migration.locked(db.engine) as connection:
            change_log_slots.append_reload(connection)
    print('Every process of the service reloads its cache before its next search.')
    return 0


def run_stamp(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    """Record a revision of the schema."""
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


def run_adopt(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print the plan of an adoption or, with ``args.yes``, adopt the database and audit it."""
    try:
        if not args.yes:
            return _print_plan(adopt.plan(db.engine, *_owner(conf)), 'adopt')
        plan = adopt.adopt_database(db.engine, *_owner(conf), _print_step, args.ignore_connections)
    except adopt.AdoptedAlready as error:
        # Another program may have written to it since.
        if error.revision == migration.head():
            output.warn_of_usage_mismatches(len(audit.find(db, conf, 'usage_mismatch')))
        raise
    if plan.problems:
        return _print_problems(plan.problems)
    return _audit_adopted(conf, db)


def _audit_adopted(conf: cfg.ConfigOpts, db: Database) -> int:
    print('The database was adopted. Auditing it:')
    return manage_audit.run_audit(manage_audit.AuditOptions(), conf, db)


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
        problems = [output.shown(problem) for problem in plan.problems[:_MAX_PROBLEMS]]
        rest = len(plan.problems) - len(problems)
        if rest:
            problems.append(f'{plural(rest, "more problem")}.')
        raise AdoptionPrevented(problems=' '.join(problems))
    _audit_adopted(conf, db)


def run_leave(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    """Print the plan of the return or, with ``args.yes``, return the database to the other service."""
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
        print(f'Note: {output.shown(note)}')
    print(f'Nothing was changed. To apply this plan: placement-manage db {command} --yes')
    return 0


def _print_problems(problems: list[str]) -> int:
    print('Nothing was changed, because of these problems:')
    for problem in problems:
        # Problems quote names from the database, which may contain any character.
        print(f'- {output.shown(problem)}')
    print('Correct them and run the command again.')
    if any(problem.startswith('There is a connection') for problem in problems):
        print('If none of these connections writes (a monitor, for example), add --ignore-connections.')
    return PROBLEMS_FOUND
