"""``placement-manage consumer``: print what an instance or another consumer has allocated, and who owns it."""

from __future__ import annotations

import argparse
import dataclasses

from oslo_config import cfg
from rich.text import Text

from placement import exception, units, uuid_spelling
from placement.cmd import output
from placement.db.api import Database
from placement.ops.reports.consumer_reports import read_consumer


class ConsumerNotFound(exception.NotFound):
    template = 'There is no consumer with the uuid {uuid!r}: it has neither a record nor allocations.'


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print a consumer and its allocations.

    :raises ConsumerNotFound: it has neither a record nor allocations.
    """
    consumer, console = read_consumer(db, uuid_spelling.canonical_uuid(args.uuid)), output.console()
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
