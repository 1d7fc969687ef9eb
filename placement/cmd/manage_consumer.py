"""``placement-manage consumer``: print what an instance or another consumer has allocated, and who owns it."""

from __future__ import annotations

import argparse
import dataclasses

from oslo_config import cfg

from placement import units
from placement.cmd import output
from placement.db.api import Database
from placement.ops.reports.consumer_reports import read_consumer


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print a consumer and its allocations.

    :raises ConsumerNotFound: it has neither a record nor allocations.
    """
    consumer = read_consumer(db, args.uuid)
    if args.format == 'json':
        output.print_json({'consumer': dataclasses.asdict(consumer)})
        return 0
    output.print_lines([f'{consumer.uuid} {output.describe_consumer(consumer, output.display_names(conf))}'])
    if consumer.created_at:
        print(
            f'created {units.moment(consumer.created_at)}, last written'
            f' {units.moment(consumer.updated_at or consumer.created_at)}'
        )
    table = output.table('Provider', 'Class', 'Amount', 'Written')
    for allocation in consumer.allocations:
        table.add_row(
            output.escaped(allocation.provider_name),
            allocation.resource_class,
            units.amount(allocation.resource_class, allocation.amount),
            units.moment(allocation.created_at),
        )
    if consumer.allocations:
        output.print_tables(table)
    else:
        print('\nIt has no allocations. See: placement-manage audit')
    return 0
