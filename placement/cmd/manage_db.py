"""``placement-manage db``: the schema of the database."""

from __future__ import annotations

import argparse

from oslo_config import cfg

from placement.cmd import manage_adopt
from placement.cmd.command import CommandParser
from placement.db import change_log, migration
from placement.db.api import Database


def add_command(program: CommandParser) -> None:
    """Add ``db`` and its own commands to the parser of ``placement-manage``."""
    group = program.add_command('db', 'the schema of the database', 'Manage the database schema.', needs_schema=False)
    group.add_command(
        'sync',
        'create the schema or upgrade it to the newest revision',
        'Create the schema or upgrade it to the newest revision, and insert the standard resource classes and traits'
        ' that are missing. Safe to run again, and on several hosts at the same time.',
        run=_sync,
    )
    group.add_command(
        'version',
        'print the revision of the schema',
        'Print the revision of the schema. Fails if the database has no schema of this service.',
        run=_version,
    )
    stamp = group.add_command(
        'stamp',
        'record a revision of the schema without changing the schema',
        'Record that the schema is at REVISION, without changing the schema. Only for a schema that was changed by'
        ' hand.',
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
    manage_adopt.add_commands(group)
    # Deployment tools run this command for every OpenStack service.
    online = group.add_command(
        'online_data_migrations',
        'do nothing; for tools that run this command for every service',
        'Print that there is nothing to do: db sync and db adopt make all changes of the data. For tools that run this'
        ' command for every service.',
        run=_online_data_migrations,
    )
    online.add_argument('--max-count', metavar='N', type=int, help='ignored')


def _sync(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    db.sync()
    print(f'The schema is at revision {migration.head()}, with all standard resource classes and traits.')
    return 0


def _online_data_migrations(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    migration.check_revision(db.engine)
    print('There is nothing to do: db sync and db adopt leave no data to be migrated later.')
    return 0


def _version(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    revision = migration.recorded_revision(db.engine)
    if revision is None:
        # This raises an error that names the command to create or adopt the schema.
        migration.check_revision(db.engine)
    print(revision)
    return 0


def _invalidate_caches(_args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    db.write(change_log.record_reload)
    print('Every process of the service reloads its cache before its next search.')
    return 0


def _stamp(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    migration.stamp(db.engine, args.revision)
    print(f'The schema is now recorded as revision {migration.recorded_revision(db.engine)}.')
    return 0
