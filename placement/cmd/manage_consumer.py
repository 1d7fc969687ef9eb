"""``placement-manage consumer``: print what an instance or another consumer has allocated, and who owns it."""

from __future__ import annotations

import argparse
import dataclasses

from oslo_config import cfg
from rich.text import Text

from placement import exception, units, validation
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.ops.reports.consumers import read_consumer

_DESCRIPTION = """\
Show a consumer, such as an instance: its type, project and user, when it was written, and its allocations on each
provider. Reads one state of the database and changes nothing."""
_EPILOG = 'Exit code: 0; 127 when there is no such consumer or the command failed.'


class ConsumerNotFound(exception.NotFound):
    template = 'There is no consumer with the uuid {uuid!r}: it has neither a record nor allocations.'


def add_command(program: CommandParser) -> None:
    """Add ``consumer`` to the parser of ``placement-manage``."""
    summary = 'show the allocations of an instance or other consumer, and its project and user'
    parser = program.add_command('consumer', summary, _DESCRIPTION, _EPILOG, run=_run)
    parser.add_argument('uuid', metavar='UUID', help='uuid of the consumer, such as the uuid of an instance')
    parser.add_names()
    parser.add_format()


def _run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    consumer, console = read_consumer(db, validation.canonical_uuid(args.uuid)), output.console()
    if consumer is None:
        raise ConsumerNotFound(uuid=args.uuid)
    if args.format == 'json':
        output.print_json({'consumer': dataclasses.asdict(consumer)})
        return 0
    names = output.display_names(conf)
    console.print(Text(f'{consumer.uuid} {output.describe_consumer(consumer, names, console)}'))
    if consumer.created_at:
        console.print(
            f'created {units.moment(consumer.created_at)}, last written'
            f' {units.moment(consumer.updated_at or consumer.created_at)}'
        )
    table = output.table('Provider', 'Class', 'Amount', 'Written')
    for allocation in consumer.allocations:
        table.add_row(
            Text(output.printable(allocation.provider_name, console)),
            allocation.resource_class,
            units.amount(allocation.resource_class, allocation.amount),
            units.moment(allocation.created_at),
        )
    console.print()
    console.print(table if consumer.allocations else 'It has no allocations. See: placement-manage audit')
    return 0
