"""``placement-manage project``: what a project has allocated, and where."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg

from placement import exception, units
from placement.cmd import output
from placement.db.api import Database
from placement.ops.display_names import DisplayNames
from placement.ops.reports.projects import Holding, ProjectConsumer, ProjectReport, read_project

#: The number of rows of each table.
_MAX_ROWS = 10


class ProjectNotFound(exception.NotFound):
    template = 'No consumer has the project {project!r}.'


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print what a project has allocated.

    A name of several projects stands for the first one in the names file that has consumers.

    :raises ProjectNotFound: no consumer has the project.
    """
    names = output.display_names(conf)
    # The names file has uuids in their canonical form, and the tables what clients sent, often without hyphens.
    spellings = (spelling for uuid in names.uuids(args.project) for spelling in (uuid, uuid.replace('-', '')))
    reports = (read_project(db, project) for project in (args.project, *spellings))
    report = next((report for report in reports if report), None)
    if report is None:
        raise ProjectNotFound(project=args.project)
    if args.format == 'json':
        output.print_json(dataclasses.asdict(report))
    else:
        _print(report, names)
    return 0


def _print(report: ProjectReport, names: DisplayNames) -> None:
    consumers = units.plural(len(report.consumers), 'consumer')
    providers = units.plural(len(report.providers), 'provider')
    output.print_lines([f'Project {names.label(report.project)}: {consumers} on {providers}'])
    oldest = sorted(
        (consumer for consumer in report.consumers if consumer.created_at),
        key=lambda consumer: consumer.created_at or 0,
    )
    totals = output.table('Class', 'Amount')
    for resource_class, amount in report.totals.items():
        totals.add_row(resource_class, units.amount(resource_class, amount))
    output.print_tables(totals)
    _print_consumers('Largest consumers', report.consumers)
    _print_consumers('Oldest consumers', oldest)
    _print_holdings('Providers', report.providers, lambda holding: holding.name)
    _print_holdings('Aggregates', report.aggregates, lambda holding: names.label(holding.uuid))


def _print_consumers(title: str, consumers: Sequence[ProjectConsumer]) -> None:
    table = output.table(_title(title, consumers), 'Type', 'Created', 'Share', 'Amounts')
    for consumer in consumers[:_MAX_ROWS]:
        created = units.moment(consumer.created_at) if consumer.created_at else ''
        kind = output.escaped(consumer.type or '')
        table.add_row(consumer.uuid, kind, created, f'{consumer.share:.0%}', units.amounts_text(consumer.amounts))
    output.print_tables(table)


def _print_holdings(title: str, holdings: Sequence[Holding], label: Callable[[Holding], str]) -> None:
    table = output.table(_title(title, holdings), 'Consumers', 'Amounts')
    for holding in holdings[:_MAX_ROWS]:
        table.add_row(output.escaped(label(holding)), f'{holding.consumers:,}', units.amounts_text(holding.amounts))
    if holdings:
        output.print_tables(table)


def _title(title: str, rows: Sequence[Any]) -> str:
    return title if len(rows) <= _MAX_ROWS else f'{title} ({_MAX_ROWS} of {len(rows):,})'
