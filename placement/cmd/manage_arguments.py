"""The arguments of ``placement-manage``, by command.

The functions that run the commands are named by their paths, and imported only when a command runs. So this module
imports no database and no library for output, and ``--help``, ``--version`` and usage errors come at once.

Each command has a function here that adds its arguments, and whose docstring is its help: a line for the list of
commands, the description, and what follows the arguments. Each command also sets these defaults on its parser:

* ``run='MODULE:FUNCTION'``, in ``placement.cmd``: ``FUNCTION(args, conf, db) -> exit code``, or
  ``FUNCTION(args) -> exit code`` with ``needs_database=False``.
* ``needs_database=False`` if it needs no database. Then the function loads the configuration itself.
* ``needs_schema=False`` if it works on a database without our schema.
* ``has_timeout=True`` if ``[placement_database] socket_timeout`` applies to it, as to the service.
"""

from __future__ import annotations

import pathlib

from placement.cmd.parser import CommandParser, age
from placement.ops.audit.kinds import KINDS

#: The address of the page.
PAGE_BIND = '127.0.0.1:8779'


def add_commands(program: CommandParser) -> None:
    """Add all commands to the parser of ``placement-manage``."""
    program.set_defaults(needs_schema=True, needs_database=True, has_timeout=False)
    db = program.add_group('db', 'the schema of the database', 'Manage the database schema.', needs_schema=False)
    db.add_command('sync', db_sync, run='manage_db:run_sync')
    db.add_command('version', db_version, run='manage_db:run_version')
    db.add_command('stamp', db_stamp, run='manage_db:run_stamp')
    db.add_command('invalidate-caches', db_invalidate_caches, run='manage_db:run_invalidate_caches', needs_schema=True)
    db.add_command('adopt', db_adopt, run='manage_db:run_adopt')
    db.add_command('leave', db_leave, run='manage_db:run_leave')
    db.add_command('fingerprint', db_fingerprint, run='manage_fingerprint:run')
    db.add_command('online_data_migrations', db_online_data_migrations, run='manage_db:run_online_data_migrations')
    program.add_command('audit', audit, run='manage_audit:run')
    program.add_command('tree', tree, run='manage_tree:run')
    program.add_command('consumer', consumer, run='manage_consumer:run')
    program.add_command('project', project, run='manage_project:run')
    program.add_command('capacity', capacity, run='manage_capacity:run')
    program.add_command('explain', explain, run='manage_explain:run')
    program.add_command('page', page, run='manage_page:run', has_timeout=True)
    plan = program.add_group('plan', 'what fits before maintenance and growth', 'Answer what fits or would fit.')
    plan.add_command('drain', plan_drain, run='manage_plan:run_drain')
    plan.add_command('failures', plan_failures, run='manage_plan:run_failures')
    plan.add_command('ratio', plan_ratio, run='manage_plan:run_ratio')
    plan.add_command('flavors', plan_flavors, run='manage_plan:run_flavors')
    program.add_command('openapi', openapi, run='manage_openapi:run', needs_database=False)


# db --------------------------------------------------------------------------------------------------------------


def db_sync(_parser: CommandParser) -> None:
    """Create the schema or upgrade it to the newest revision.

    Create the schema or upgrade it to the newest revision, and insert the standard resource classes and traits that are
    missing. Safe to run again, and on several hosts at the same time. With [placement_database] adopt_on_sync, adopt
    the database of another service first.
    """


def db_version(_parser: CommandParser) -> None:
    """Print the revision of the schema.

    Print the revision of the schema; None if the database has no tables. Fails if another service made them.
    """


def db_stamp(parser: CommandParser) -> None:
    """Record a revision of the schema without changing the schema.

    Record that the schema is at REVISION, without changing the schema. Only for a schema that was changed by hand. A
    revision that does not look like one of this service, such as one that a tool for the database of another service
    passes, is accepted, and nothing is recorded.
    """
    parser.add_argument('revision', metavar='REVISION', help='a revision, or "head" for the newest')


def db_invalidate_caches(_parser: CommandParser) -> None:
    """Make every process of the service reload its cache from the tables.

    Make every process of the service reload its cache from the tables before its next search. Run it after you changed
    tables by hand, because the service does not detect such changes.
    """


def db_adopt(parser: CommandParser) -> None:
    """Adopt the database of another deployment.

    Convert the database of another deployment of the placement service to the schema of this one, in place and without
    loss of data. The tables are renamed, so that the other service can no longer write, and the missing columns are
    added. Without --yes only the plan is printed. If the database has an unexpected schema or unexpected rows, or there
    are other connections to it, the command prints these problems and changes nothing. Tables and columns that this
    service does not know are kept. Stop the other service and make a backup first. db leave reverses the adoption.

    Exit code: 0 if the plan was printed or the database was adopted, 3 if it was adopted and the audit found problems,
    127 if problems prevent the adoption or the command failed. On SQLite and PostgreSQL a failure changes nothing; on
    MySQL and MariaDB run the command again.
    """
    _add_adoption_options(parser)


def db_leave(parser: CommandParser) -> None:
    """Return an adopted database to the other deployment.

    Return an adopted database to the other deployment: the tables get the names that the other service uses, and
    processes of this service can no longer use them. Without --yes only the plan is printed. Stop this service first.
    The data of both services are kept. To adopt the database again, run db adopt.

    Exit code: 0 if the plan was printed or the database was returned, 127 if problems prevent that or the command
    failed. On SQLite and PostgreSQL a failure changes nothing; on MySQL and MariaDB run the command again.
    """
    _add_adoption_options(parser)


def _add_adoption_options(parser: CommandParser) -> None:
    parser.add_flag('--yes', 'apply the plan (default: only print it)')
    parser.add_flag(
        '--ignore-connections',
        'with --yes: continue despite other connections to the database; only if none of them writes',
    )


def db_fingerprint(parser: CommandParser) -> None:
    """Print hashes that change only if the data do.

    Print one hash for each kind of row and one for all rows. They depend only on what the API shows: not on the order
    of rows, ids of the database or times. So equal fingerprints before and after a repair, a restore, db adopt or db
    leave prove that nothing else changed. Also for the database of another deployment, before it is adopted. Reads one
    state of the database and changes nothing.

    Exit code: 0; 1 if the fingerprint differs from that of --compare; 127 if the command failed.
    """
    parser.add_repeatable(
        '--except',
        dest='excluded',
        metavar='UUID',
        help='a provider or consumer whose rows are left out; may be given several times. For what a repair changes',
    )
    parser.add_argument(
        '--compare', metavar='FILE', type=pathlib.Path, help='name what differs from this output of --format json'
    )
    parser.add_format()


def db_online_data_migrations(parser: CommandParser) -> None:
    """Do nothing; for tools that run this command for every service.

    Print that there is nothing to do: db sync and db adopt make all changes of the data. For tools that run this
    command for every service. With [placement_database] adopt_on_sync, adopt the database of another service.
    """
    parser.add_argument('--max-count', metavar='N', type=int, help='a positive number; otherwise ignored')


# What is in the database -----------------------------------------------------------------------------------------


def audit(parser: CommandParser) -> None:
    """Find inconsistent records in the database.

    Find records that contradict each other (such as a recorded usage that is not the sum of the allocations), that no
    request could store, or that nothing uses, and allocations that violate the limits of their inventories. Safe while
    the service runs.

    Exit code: 0 if nothing has to be done, 3 if problems remain, 4 if all were repaired, 127 if it fails.
    """
    parser.add_repeatable(
        '--except',
        dest='excluded',
        metavar='KIND',
        choices=tuple(KINDS),
        help='exclude the findings of this kind, one of %(choices)s; may be repeated',
    )
    parser.add_flag('--repair', 'repair what does not require a decision')
    parser.add_flag(
        '--dry-run', 'change nothing, but print every row that a repair would change, with the old and the new values'
    )
    parser.add_report_options()


def tree(parser: CommandParser) -> None:
    """Draw provider trees with their inventories.

    Draw provider trees. Each provider has its uuid and generation, its traits and aggregates, and for each inventory a
    bar that shows how much of the capacity, (total - reserved) * allocation_ratio, is used. Below the root are the
    sharing providers of other trees that have an aggregate in common with the tree. Options select trees: a tree is
    drawn if, for each condition, one of its providers satisfies the condition. On a terminal, a pager shows output that
    is longer than the screen. Reads one state of the database and changes nothing.

    Exit code: 0, also when there are no trees; 127 when the provider, a trait, an aggregate or a resource class does
    not exist or the command failed.
    """
    parser.add_argument(
        'provider',
        metavar='PROVIDER',
        nargs='?',
        help='uuid or name of a provider; its whole tree is drawn (default: all trees)',
    )
    _add_tree_filter(parser)
    parser.add_flag('--consumers', 'also print the consumers of each provider, and their owners')
    parser.add_report_options()


def _add_tree_filter(parser: CommandParser) -> None:
    group = parser.add_argument_group('which trees')
    group.add_argument('--name', metavar='PART', help='part of the name of a provider, or the beginning of its uuid')
    group.add_argument('--trait', metavar='NAME', action='append', default=[], help='trait; may be repeated')
    group.add_argument(
        '--aggregate',
        metavar='AGGREGATE',
        action='append',
        default=[],
        help='uuid of an aggregate, or its name in the names file; may be repeated',
    )
    group.add_argument('--class', metavar='NAME', action='append', default=[], help='resource class; may be repeated')
    group.add_argument(
        '--full',
        action='store_true',
        help='with an inventory (of --class, if given) from which no allocation is possible',
    )
    group.add_argument(
        '--unchanged-for',
        metavar='AGE',
        type=age,
        help='in which nothing has changed for a time such as 30d or 12h: these may be hosts that were removed',
    )


def consumer(parser: CommandParser) -> None:
    """Show the allocations of an instance or other consumer, and its project and user.

    Show a consumer, such as an instance: its type, project and user, when it was written, and its allocations on each
    provider. Reads one state of the database and changes nothing.

    Exit code: 0; 127 when there is no such consumer or the command failed.
    """
    parser.add_argument('uuid', metavar='UUID', help='uuid of the consumer, such as the uuid of an instance')
    parser.add_report_options()


def project(parser: CommandParser) -> None:
    """Show what a project has allocated, by class, consumer, provider and aggregate.

    Show what a project has allocated: by resource class, its largest and oldest consumers, and its providers and
    aggregates. Reads one state of the database and changes nothing.

    Exit code: 0; 127 if no consumer has the project or the command failed.
    """
    parser.add_argument(
        'project',
        metavar='PROJECT',
        help='id of the project, as clients of the API write it, or its name in the names file',
    )
    parser.add_report_options()


def capacity(parser: CommandParser) -> None:
    """Show the capacity and usage of all inventories, and how many more consumers of a size fit.

    Show for each resource class how much of the capacity is used and how much is free, the largest amount that one
    allocation can have (max allocatable), and on how many providers no allocation fits because they are fully
    allocated, fully reserved, or over-committed. Reads one state of the database and changes nothing.

    Example: placement-manage capacity --fit VCPU:4,MEMORY_MB:8192 --trait HW_CPU_X86_AVX2. Exit code: 0; 127 if a
    trait, an aggregate or a resource class does not exist or the command failed.
    """
    parser.add_argument(
        '--aggregate',
        metavar='AGGREGATE',
        help='only trees with a provider in this aggregate: its uuid, or its name in the names file',
    )
    parser.add_repeatable(
        '--trait', metavar='NAME', help='only trees with a provider that has this trait; may be repeated'
    )
    parser.add_repeatable(
        '--root-trait',
        metavar='NAME',
        help='only trees whose root has this trait or, with ! before the name, lacks it; may be repeated',
    )
    parser.add_argument(
        '--fit',
        metavar='SIZE',
        help='count how many more consumers of this size fit: CLASS:AMOUNT,CLASS:AMOUNT; --trait, --aggregate'
        ' and --root-trait apply like required, member_of and root_required in a request',
    )
    parser.add_report_options()


def explain(parser: CommandParser) -> None:
    """Explain why a search finds no allocation candidates.

    Run a search for allocation candidates and print why it finds nothing, or what it finds. Then show how many provider
    trees remain after each rule, in the order of the request; what keeps trees from serving it, with the providers that
    are closest to it; and the sharing providers that are out of their reach. Changes nothing.

    Example: placement-manage explain 'resources=VCPU:4,MEMORY_MB:8192&required=HW_CPU_X86_AVX2&limit=10'. Exit code: 0,
    also when nothing is found; 127 when the query is not valid or the database does not answer.
    """
    parser.add_argument(
        'query',
        metavar='QUERY',
        nargs='?',
        default='-',
        help='query string of GET /allocation_candidates, or a path, a URL or a log line with it; in quotes. Without'
        ' it, or with "-", the query is read from standard input',
    )
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        help='microversion of the request, from 1.10 (default: the one in the log line, or else'
        ' [placement] max_microversion)',
    )
    parser.add_report_options()


def page(parser: CommandParser) -> None:
    """Serve a read-only web page for operators.

    Serve a web page that shows how full the cloud is, the provider trees and their consumers, why a search finds
    nothing, and what an audit finds. It changes nothing. There is no authentication, so only this machine can reach it
    unless --allow-remote is given.

    It runs until Ctrl-C. Exit code: 0, or 127 when it cannot start; standard error says why.
    """
    parser.add_argument('--bind', metavar='HOST:PORT', default=PAGE_BIND, help='where to listen (default: %(default)s)')
    parser.add_flag(
        '--allow-remote',
        'allow an address that other machines can reach, and requests under any host name: whoever can reach it'
        ' sees everything, without a password',
    )
    parser.add_names()


# plan ------------------------------------------------------------------------------------------------------------


def plan_drain(parser: CommandParser) -> None:
    """Plan moves of all consumers of some hosts to the others.

    Say whether all that is allocated on the trees of some hosts fits on the other hosts, and plan the moves. Reads one
    state of the database and changes nothing.

    Exit code: 0 if everything fits; 1 if it is proved that something cannot fit; 2 if no placement was found, without a
    proof; 127 if a provider or aggregate does not exist or the command failed.
    """
    parser.add_argument('hosts', metavar='HOST', nargs='*', help='name or uuid of a provider; its tree is drained')
    parser.add_argument(
        '--aggregate', metavar='AGGREGATE', help='also drain the hosts in this aggregate: its uuid, or its name'
    )
    _add_plan_options(parser)
    parser.add_flag('--spread', 'use as many hosts as possible (default: as few)')
    parser.add_flag('--move-shared', 'also move what sharing providers supply, to others in reach')
    parser.add_report_options()


def plan_failures(parser: CommandParser) -> None:
    """Check that the load of each host fits on the others.

    Say for each host whether its load fits on the others if it fails, and how many hosts may fail together. Reads one
    state of the database and changes nothing.

    Exit code: 0 if everything fits; 1 if it is proved that something cannot fit; 2 if no placement was found, without a
    proof; 127 if a provider or aggregate does not exist or the command failed.
    """
    parser.add_argument('--aggregate', metavar='AGGREGATE', help='only the hosts in this aggregate fail')
    _add_plan_options(parser)
    parser.add_report_options()


def plan_ratio(parser: CommandParser) -> None:
    """Compare the capacity at another allocation ratio with that of now.

    Say how capacity, providers above capacity, and the numbers of instances that fit would change at another allocation
    ratio of a class. Reads one state of the database and changes nothing.
    """
    parser.add_argument('change', metavar='CLASS=VALUE', help='resource class and allocation ratio, such as VCPU=4.0')
    parser.add_argument('--aggregate', metavar='AGGREGATE', help='only trees with a provider in this aggregate change')
    parser.add_path('--flavors', metavar='FILE', help='flavors to count, as for "plan flavors" (default: none)')
    parser.add_report_options()


def plan_flavors(parser: CommandParser) -> None:
    """Count how many more instances of each flavor fit.

    Say how many more instances of each flavor fit if all are of this flavor, and what prevents more. Reads one state of
    the database and changes nothing.
    """
    parser.add_path('file', metavar='FILE', help='output of "openstack flavor list --all --long -f json"')
    parser.add_flag('--by-aggregate', 'also count in each aggregate')
    parser.add_report_options()


def _add_plan_options(parser: CommandParser) -> None:
    parser.add_flag('--keep-traits', 'a destination has the custom traits of the source')
    parser.add_flag('--keep-aggregates', 'a destination is in all aggregates that the source is in')
    parser.add_flag('--isolate', 'what is on two providers of a tree does not come together on one')


# openapi ---------------------------------------------------------------------------------------------------------


def openapi(parser: CommandParser) -> None:
    """Print the API as an OpenAPI 3.1 document.

    Print the OpenAPI 3.1 document of one microversion as JSON. No database is needed.
    """
    parser.add_argument(
        '--microversion', metavar='VERSION', help='1.0 to [placement] max_microversion, which is also the default'
    )
