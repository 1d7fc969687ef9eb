"""``placement-manage capacity``: how full the cloud is, and how many more consumers of a size fit."""

from __future__ import annotations

import argparse
import dataclasses

from oslo_config import cfg

from placement import units
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.db.api import Database
from placement.ops.display_names import DisplayNames
from placement.ops.planning.fits import count_size, one_consumer
from placement.ops.reports import capacity_report
from placement.ops.reports.capacity_report import Summary
from placement.ops.reports.tree_filter import TreeFilter
from placement.search import parsing

#: Maximum number of searches for one count, so that it takes minutes at most.
_SEARCHES = 1_000_000


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print the capacity and usage by resource class, and how many more consumers of a size fit."""
    names = output.display_names(conf)
    scope = _scope(args, names)
    resources = parsing.parse_resources(args.fit) if args.fit is not None else None
    snapshot = ProviderCache(db).up_to_date()
    scope.raise_unless_aggregates_exist(snapshot)
    summary = capacity_report.summary(snapshot, scope)
    count = None
    if resources is not None:
        with output.waiting('Counting ...'):
            count = count_size(snapshot, one_consumer(resources, scope), _SEARCHES)
    if args.format == 'json':
        report = dataclasses.asdict(summary)
        report['fit_estimate'] = None if count is None else dataclasses.asdict(count)
        output.print_json(report)
        return 0
    _print_summary(summary)
    if count is not None:
        if summary.classes:
            print()
        times = f'{count.at_least}{units.plural(count.fit, "more time")}'
        disabled = f', {count.on_disabled_hosts:,} of them on disabled hosts' if count.on_disabled_hosts else ''
        output.print_lines([f'{args.fit} fits {times}{disabled}'])
    return 0


def _print_summary(summary: Summary) -> None:
    """Print the figures of some trees by resource class: the amounts, and the providers on which no allocation fits."""
    print(f'{units.plural(summary.providers, "resource provider")} in {units.plural(summary.trees, "tree")}')
    if not summary.classes:
        return
    amounts = output.table('Class', 'Used of capacity', 'Share', 'Free', 'Max\nallocatable')
    providers = output.table('Class', 'Providers', 'Fully\nallocated', 'Reserved', 'Over-\ncommitted')
    for figures in summary.classes:
        name = figures.resource_class
        used = units.used_of_capacity(name, figures.used, figures.capacity)
        free, largest = (
            units.amount(name, value, round_down=True) for value in (figures.free, figures.max_allocatable)
        )
        amounts.add_row(name, *map(output.figure, (used, units.percent(figures.used, figures.capacity), free, largest)))
        counts = (figures.providers, figures.providers_fully_allocated, figures.providers_reserved)
        over = f'{figures.providers_over_committed:,}'
        if figures.over_committed:
            over += f' by {units.amount(name, figures.over_committed)}'
        providers.add_row(name, *(output.figure(f'{count:,}') for count in counts), output.figure(over))
    output.print_tables(amounts, providers)


def _scope(args: argparse.Namespace, names: DisplayNames) -> TreeFilter:
    """Read the arguments that select trees."""
    aggregate = None if args.aggregate is None else names.aggregate_uuid(args.aggregate)
    roots = parsing.parse_traits(','.join(args.root_trait)) if args.root_trait else (frozenset(), frozenset())
    aggregates = frozenset(() if aggregate is None else (aggregate,))
    return TreeFilter(aggregates, frozenset(args.trait), *roots)
