"""The arguments of ``placement-manage``, by command.

The functions that run the commands are named by their paths, and imported only when a command runs. So this module
imports no database and no library for output, and ``--help``, ``--version`` and usage errors come at once.

Each command sets these defaults on its parser:

* ``run='MODULE:FUNCTION'``, in ``placement.cmd``: ``FUNCTION(args, conf, db) -> exit code``, or
  ``FUNCTION(args) -> exit code`` with ``needs_database=False``.
* ``needs_database=False`` if it needs no database. Then the function loads the configuration itself.
* ``needs_schema=False`` if it works on a database without our schema.
* ``has_timeout=True`` if ``[placement_database] socket_timeout`` applies to it, as to the service.
"""

from __future__ import annotations

import argparse
import pathlib

from placement.cmd.parser import CommandParser, age, positive
from placement.ops.audit_kinds import KINDS

#: The address of the page.
PAGE_BIND = '127.0.0.1:8779'


def add_commands(program: CommandParser) -> None:
    """Add all commands to the parser of ``placement-manage``."""
    program.set_defaults(needs_schema=True, needs_database=True, has_timeout=False)
    db = program.add_command('db', 'the schema of the database', 'Manage the database schema.', needs_schema=False)
    _add_schema(db)
    _add_adoption(db)
    _add_fingerprint(db)
    _add_online_migrations(db)
    _add_audit(program)
    _add_tree(program)
    _add_consumer(program)
    _add_project(program)
    _add_capacity(program)
    _add_explain(program)
    _add_page(program)
    plan = program.add_command('plan', 'what fits before maintenance and growth', 'Answer what fits or would fit.')
    _add_drain(plan)
    _add_failures(plan)
    _add_ratio(plan)
    _add_flavors(plan)
    _add_openapi(program)


# db --------------------------------------------------------------------------------------------------------------

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


def _add_schema(group: CommandParser) -> None:
    group.add_command(
        'sync',
        'create the schema or upgrade it to the newest revision',
        'Create the schema or upgrade it to the newest revision, and insert the standard resource classes and traits'
        ' that are missing. Safe to run again, and on several hosts at the same time. With [placement_database]'
        ' adopt_on_sync, adopt the database of another service first.',
        run='manage_db:run_sync',
    )
    group.add_command(
        'version',
        'print the revision of the schema',
        'Print the revision of the schema; None if the database has no tables. Fails if another service made them.',
        run='manage_db:run_version',
    )
    stamp = group.add_command(
        'stamp',
        'record a revision of the schema without changing the schema',
        'Record that the schema is at REVISION, without changing the schema. Only for a schema that was changed by'
        ' hand. A revision that does not look like one of this service, such as one that a tool for the database of'
        ' another service passes, is accepted, and nothing is recorded.',
        run='manage_db:run_stamp',
    )
    stamp.add_argument('revision', metavar='REVISION', help='a revision, or "head" for the newest')
    group.add_command(
        'invalidate-caches',
        'make every process of the service reload its cache from the tables',
        'Make every process of the service reload its cache from the tables before its next search. Run it after you'
        ' changed tables by hand, because the service does not detect such changes.',
        run='manage_db:run_invalidate_caches',
        needs_schema=True,
    )


def _add_online_migrations(group: CommandParser) -> None:
    # Deployment tools run this command for every OpenStack service.
    parser = group.add_command(
        'online_data_migrations',
        'do nothing; for tools that run this command for every service',
        'Print that there is nothing to do: db sync and db adopt make all changes of the data. For tools that run this'
        ' command for every service. With [placement_database] adopt_on_sync, adopt the database of another service.',
        run='manage_db:run_online_data_migrations',
    )
    parser.add_argument('--max-count', metavar='N', type=int, help='a positive number; otherwise ignored')


def _add_adoption(group: CommandParser) -> None:
    summary = 'adopt the database of another deployment'
    to_adopt = group.add_command('adopt', summary, _ADOPT_DESCRIPTION, _ADOPT_EPILOG, run='manage_db:run_adopt')
    summary = 'return an adopted database to the other deployment'
    to_leave = group.add_command('leave', summary, _LEAVE_DESCRIPTION, _LEAVE_EPILOG, run='manage_db:run_leave')
    for parser in (to_adopt, to_leave):
        parser.add_argument('--yes', action='store_true', help='apply the plan (default: only print it)')
        parser.add_argument(
            '--ignore-connections',
            action='store_true',
            help='with --yes: continue despite other connections to the database; only if none of them writes',
        )


# fingerprint -----------------------------------------------------------------------------------------------------

_FINGERPRINT_DESCRIPTION = """\
Print one hash for each kind of row and one for all rows. They depend only on what the API shows: not on the order of
rows, ids of the database or times. So equal fingerprints before and after a repair, a restore, db adopt or db leave
prove that nothing else changed. Also for the database of another deployment, before it is adopted. Reads one state of
the database and changes nothing."""

_FINGERPRINT_EPILOG = """\
Exit code: 0; 1 if the fingerprint differs from that of --compare; 127 if the command failed."""


def _add_fingerprint(group: CommandParser) -> None:
    summary = 'print hashes that change only if the data do'
    parser = group.add_command(
        'fingerprint', summary, _FINGERPRINT_DESCRIPTION, _FINGERPRINT_EPILOG, run='manage_fingerprint:run'
    )
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


# audit -----------------------------------------------------------------------------------------------------------

_AUDIT_DESCRIPTION = """\
Find records in the database that contradict each other, such as a recorded usage that is not the sum of the
allocations, or a root that the parents of a provider do not lead to. Safe while the service runs."""

_AUDIT_EPILOG = 'Exit code: 0 if nothing has to be done, 3 if problems remain, 4 if all were repaired, 127 if it fails.'


def _add_audit(program: CommandParser) -> None:
    parser = program.add_command(
        'audit', 'find inconsistent records in the database', _AUDIT_DESCRIPTION, _AUDIT_EPILOG, run='manage_audit:run'
    )
    parser.add_repeatable(
        '--except',
        dest='excluded',
        metavar='KIND',
        choices=tuple(KINDS),
        help='omit the findings of this kind, one of %(choices)s; may be repeated',
    )
    parser.add_argument('--repair', action='store_true', help='repair what does not require a decision')
    parser.add_argument(
        '--dry-run',
        action='store_true',
        help='change nothing, but print every row that a repair would change, with the old and the new values',
    )
    parser.add_report_options()


# tree ------------------------------------------------------------------------------------------------------------

_TREE_DESCRIPTION = """\
Draw provider trees. Each provider has its uuid and generation, its traits and aggregates, and for each inventory a bar
that shows how much of the capacity, (total - reserved) * allocation_ratio, is used. Below the root are the sharing
providers of other trees that have an aggregate in common with the tree. Options select trees: a tree is drawn if,
for each condition, one of its providers satisfies the condition. On a terminal, a pager shows output that is longer
than the screen. Reads one state of the database and changes nothing."""

_TREE_EPILOG = (
    'Exit code: 0, also when there are no trees; 127 when the provider, a trait, an aggregate or a resource class does'
    ' not exist or the command failed.'
)


def _add_tree(program: CommandParser) -> None:
    summary = 'draw provider trees with their inventories'
    parser = program.add_command('tree', summary, _TREE_DESCRIPTION, _TREE_EPILOG, run='manage_tree:run')
    parser.add_argument(
        'provider',
        metavar='PROVIDER',
        nargs='?',
        help='uuid or name of a provider; its whole tree is drawn (default: all trees)',
    )
    _add_tree_filter(parser)
    parser.add_argument(
        '--consumers', action='store_true', help='also print the consumers of each provider, and their owners'
    )
    parser.add_argument('--no-pager', action='store_true', help='do not use a pager')
    parser.add_report_options()


def _add_tree_filter(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group('which trees')
    group.add_argument('--name', metavar='PATTERN', help='part of the name of a provider, or a pattern with * and ?')
    group.add_argument('--trait', metavar='NAME', action='append', default=[], help='trait; may be repeated')
    group.add_argument(
        '--aggregate',
        metavar='AGGREGATE',
        action='append',
        default=[],
        help='uuid of an aggregate, or its name in the names file; may be repeated',
    )
    group.add_argument('--class', metavar='NAME', action='append', default=[], help='resource class; may be repeated')
    for state, text in (
        ('full', 'from which no allocation is possible'),
        ('over-committed', 'whose usage is above its capacity'),
        ('reserved', 'that is fully reserved'),
    ):
        group.add_argument(
            f'--{state}',
            dest='state',
            action='store_const',
            const=state,
            help=f'with an inventory (of --class, if given) {text}',
        )
    group.add_argument(
        '--unchanged-for',
        metavar='AGE',
        type=age,
        help='in which nothing has changed for a time such as 30d or 12h: these may be hosts that were removed',
    )


# consumer --------------------------------------------------------------------------------------------------------

_CONSUMER_DESCRIPTION = """\
Show a consumer, such as an instance: its type, project and user, when it was written, and its allocations on each
provider. Reads one state of the database and changes nothing."""

_CONSUMER_EPILOG = 'Exit code: 0; 127 when there is no such consumer or the command failed.'


def _add_consumer(program: CommandParser) -> None:
    summary = 'show the allocations of an instance or other consumer, and its project and user'
    parser = program.add_command(
        'consumer', summary, _CONSUMER_DESCRIPTION, _CONSUMER_EPILOG, run='manage_consumer:run'
    )
    parser.add_argument('uuid', metavar='UUID', help='uuid of the consumer, such as the uuid of an instance')
    parser.add_report_options()


# project ---------------------------------------------------------------------------------------------------------

_PROJECT_DESCRIPTION = """\
Show what a project has allocated: by resource class, its largest and oldest consumers, and its providers and
aggregates. Reads one state of the database and changes nothing."""

_PROJECT_EPILOG = 'Exit code: 0; 127 if no consumer has the project or the command failed.'


def _add_project(program: CommandParser) -> None:
    summary = 'show what a project has allocated, by class, consumer, provider and aggregate'
    parser = program.add_command('project', summary, _PROJECT_DESCRIPTION, _PROJECT_EPILOG, run='manage_project:run')
    parser.add_argument(
        'project',
        metavar='PROJECT',
        help='id of the project, as clients of the API write it, or its name in the names file',
    )
    parser.add_report_options()


# capacity --------------------------------------------------------------------------------------------------------

_CAPACITY_DESCRIPTION = """\
Show for each resource class how much of the capacity is used and how much is free, the largest amount that one
allocation can have (max allocatable), and on how many providers no allocation fits because they are fully allocated,
fully reserved, or over-committed. Reads one state of the database and changes nothing."""

_CAPACITY_EPILOG = (
    'Example: placement-manage capacity --fit VCPU:4,MEMORY_MB:8192 --trait HW_CPU_X86_AVX2.'
    ' Exit code: 0; 127 if a trait, an aggregate or a resource class does not exist or the command failed.'
)


def _add_capacity(program: CommandParser) -> None:
    summary = 'show the capacity and usage of all inventories, and how many more consumers of a size fit'
    parser = program.add_command(
        'capacity', summary, _CAPACITY_DESCRIPTION, _CAPACITY_EPILOG, run='manage_capacity:run'
    )
    parser.add_argument(
        '--aggregate',
        metavar='AGGREGATE',
        help='only trees with a provider in this aggregate: its uuid, or its name in the names file',
    )
    parser.add_repeatable(
        '--trait',
        metavar='NAME',
        help='only trees with a provider that has this trait; may be repeated',
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


# explain ---------------------------------------------------------------------------------------------------------

_EXPLAIN_DESCRIPTION = """\
Run a search for allocation candidates and print why it finds nothing, or what it finds. Then show how
many provider trees remain after each rule, in the order of the request; what keeps trees from serving it, with the
providers that are closest to it; and the sharing providers that are out of their reach. Changes nothing."""

_EXPLAIN_EPILOG = (
    "Example: placement-manage explain 'resources=VCPU:4,MEMORY_MB:8192&required=HW_CPU_X86_AVX2&limit=10'."
    ' Exit code: 0, also when nothing is found; 127 when the query is not valid or the database does not answer.'
)


def _add_explain(program: CommandParser) -> None:
    summary = 'explain why a search finds no allocation candidates'
    parser = program.add_command('explain', summary, _EXPLAIN_DESCRIPTION, _EXPLAIN_EPILOG, run='manage_explain:run')
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


# page ------------------------------------------------------------------------------------------------------------

_PAGE_DESCRIPTION = """\
Serve a web page that shows how full the cloud is, the provider trees and their consumers, why a search finds nothing,
and what an audit finds. It changes nothing. There is no authentication, so only this machine can reach it
unless --allow-remote is given."""

_PAGE_EPILOG = 'It runs until Ctrl-C. Exit code: 0, or 127 when it cannot start; standard error says why.'


def _add_page(program: CommandParser) -> None:
    summary = 'serve a read-only web page for operators'
    parser = program.add_command(
        'page', summary, _PAGE_DESCRIPTION, _PAGE_EPILOG, run='manage_page:run', has_timeout=True
    )
    parser.add_argument('--bind', metavar='HOST:PORT', default=PAGE_BIND, help='where to listen (default: %(default)s)')
    parser.add_argument(
        '--allow-remote',
        action='store_true',
        help='allow an address that other machines can reach, and requests under any host name: whoever can reach it'
        ' sees everything, without a password',
    )
    parser.add_path(
        '--log',
        metavar='FILE',
        type=pathlib.Path,
        help='log file of the service; the page lists the latest searches in it that found no candidates',
    )
    parser.add_names()


# plan ------------------------------------------------------------------------------------------------------------

_PLAN_EPILOG = (
    'Exit code: 0 if everything fits; 1 if it is proved that something cannot fit; 2 if no placement was found, without'
    ' a proof; 127 if a provider or aggregate does not exist or the command failed.'
)

_READS = 'Reads one state of the database and changes nothing.'


def _add_drain(group: CommandParser) -> None:
    parser = group.add_command(
        'drain',
        'plan moves of all consumers of some hosts to the others',
        'Say whether all that is allocated on the trees of some hosts fits on the other hosts, and plan the moves.'
        f' {_READS}',
        _PLAN_EPILOG,
        run='manage_plan:run_drain',
    )
    parser.add_argument('hosts', metavar='HOST', nargs='*', help='name or uuid of a provider; its tree is drained')
    parser.add_argument(
        '--aggregate', metavar='AGGREGATE', help='also drain the hosts in this aggregate: its uuid, or its name'
    )
    _add_plan_options(parser)
    parser.add_argument('--spread', action='store_true', help='use as many hosts as possible (default: as few)')
    parser.add_argument(
        '--move-shared', action='store_true', help='also move what sharing providers supply, to others in reach'
    )
    parser.add_report_options()


def _add_failures(group: CommandParser) -> None:
    parser = group.add_command(
        'failures',
        'check that the load of each host fits on the others',
        'Say for each host whether its load fits on the others if it fails, and how many hosts may fail together.'
        f' {_READS}',
        _PLAN_EPILOG,
        run='manage_plan:run_failures',
    )
    parser.add_argument('--aggregate', metavar='AGGREGATE', help='only the hosts in this aggregate fail')
    _add_plan_options(parser)
    parser.add_argument('--count', metavar='N', type=positive, default=20, help='hosts to list (default: %(default)s)')
    parser.add_report_options()


def _add_ratio(group: CommandParser) -> None:
    parser = group.add_command(
        'ratio',
        'compare the capacity at another allocation ratio with that of now',
        'Say how capacity, providers above capacity, and the numbers of instances that fit would change at another'
        f' allocation ratio of a class. {_READS}',
        run='manage_plan:run_ratio',
    )
    parser.add_argument('change', metavar='CLASS=VALUE', help='resource class and allocation ratio, such as VCPU=4.0')
    parser.add_argument('--aggregate', metavar='AGGREGATE', help='only trees with a provider in this aggregate change')
    parser.add_path('--flavors', metavar='FILE', help='flavors to count, as for "plan flavors" (default: none)')
    parser.add_report_options()


def _add_flavors(group: CommandParser) -> None:
    parser = group.add_command(
        'flavors',
        'count how many more instances of each flavor fit',
        f'Say how many more instances of each flavor fit if all are of this flavor, and what prevents more. {_READS}',
        run='manage_plan:run_flavors',
    )
    parser.add_path('file', metavar='FILE', help='output of "openstack flavor list --all --long -f json"')
    parser.add_argument('--by-aggregate', action='store_true', help='also count in each aggregate')
    parser.add_report_options()


def _add_plan_options(parser: CommandParser) -> None:
    parser.add_argument('--keep-traits', action='store_true', help='a destination has the custom traits of the source')
    parser.add_argument(
        '--keep-aggregates', action='store_true', help='a destination is in all aggregates that the source is in'
    )
    parser.add_argument(
        '--isolate', action='store_true', help='what is on two providers of a tree does not come together on one'
    )


# openapi ---------------------------------------------------------------------------------------------------------


def _add_openapi(program: CommandParser) -> None:
    summary = 'print the API as an OpenAPI 3.1 document'
    description = 'Print the OpenAPI 3.1 document of one microversion as JSON. No database is needed.'
    parser = program.add_command('openapi', summary, description, run='manage_openapi:run', needs_database=False)
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        help='1.0 to [placement] max_microversion, which is also the default',
    )
