"""``placement-manage plan``: what fits if hosts are drained or fail, at another ratio, and how many of each flavor."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from oslo_config import cfg
from oslo_utils import timeutils

from placement import exception, units
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.db.api import Database
from placement.ops.display_names import DisplayNames
from placement.ops.planning import drain, failures, flavors, plan_sentences, ratio
from placement.ops.planning.drain import DrainPlan, Verdict
from placement.ops.planning.failures import FailureReport
from placement.ops.planning.flavors import FlavorFit
from placement.ops.planning.loads import PlanOptions
from placement.ops.planning.ratio import RatioReport

FITS, CANNOT, NOT_FOUND = 0, 1, 2
_EXIT_CODES = {Verdict.FITS: FITS, Verdict.CANNOT: CANNOT, Verdict.NOT_FOUND: NOT_FOUND}

#: Maximum number of rows of a table.
_ROWS = 20


def _options(args: argparse.Namespace) -> PlanOptions:
    names = ('isolate', 'keep_traits', 'keep_aggregates', 'spread', 'move_shared')
    return PlanOptions(**{name: getattr(args, name, False) for name in names})


def _aggregate(args: argparse.Namespace, conf: cfg.ConfigOpts) -> str | None:
    names = output.display_names(conf)
    return None if args.aggregate is None else names.aggregate_uuid(args.aggregate)


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], count: int, noun: str) -> None:
    """Print the first rows of a table of ``count`` rows, each of them about a ``noun``; nothing for an empty table."""
    if not rows:
        return
    table = output.table(*headings)
    for name, *figures in rows:
        table.add_row(output.escaped(name), *(output.figure(output.shown(text)) for text in figures))
    output.print_tables(table)
    if count > len(rows):
        output.print_lines([f'And {units.plural(count - len(rows), f"more {noun}")}.'])


# drain -----------------------------------------------------------------------------------------------------------


def run_drain(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Plan the moves from some hosts, print the plan, and return the exit code of its verdict."""
    with output.waiting('Planning ...'):
        plan = drain.plan_drain(db, args.hosts, _aggregate(args, conf), _options(args))
    texts = plan_sentences.drain_sentences(plan)
    output.warn_of_usage_mismatches(plan.usage_mismatches)
    if args.format == 'json':
        output.print_json(plan_sentences.document(texts, plan))
    else:
        output.print_lines(texts)
        _print_unplaced(plan)
        destinations = plan_sentences.destinations(plan)
        rows = [(host.display_name, f'{count:,}') for host, count in destinations[:_ROWS]]
        _print_table(('Destination', 'Consumers'), rows, len(destinations), 'host')
        if destinations:
            output.print_lines(['--format json has the moves.'])
        output.print_lines(['', plan_sentences.MEANING])
    return _EXIT_CODES[plan.verdict]


def _print_unplaced(plan: DrainPlan) -> None:
    rows = []
    for item in plan.not_placed[:_ROWS]:
        closest, lacks = '-', '-'
        if item.closest_host is not None:
            closest = item.closest_host.display_name
            lacks = units.amounts_text(item.closest_lacks) or 'nothing that is left'
        figures = (f'{item.consumers:,}', f'{item.eligible_hosts:,}')
        rows.append((plan_sentences.size(item.resources), *figures, closest, lacks))
    headings = ('Not placed', 'Consumers', 'Eligible\nhosts', 'Closest host', 'Lacks there')
    _print_table(headings, rows, len(plan.not_placed), 'size')


# failures --------------------------------------------------------------------------------------------------------


def run_failures(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print for each host whether its load fits on the others, and return the exit code of the verdict."""
    report = failures.check_failures(
        db, _options(args), _aggregate(args, conf), lambda trees: output.with_progress('Checking hosts', trees)
    )
    texts = plan_sentences.failure_sentences(report)
    output.warn_of_usage_mismatches(report.usage_mismatches)
    if args.format == 'json':
        output.print_json(plan_sentences.document(texts, report))
    else:
        output.print_lines(texts)
        _print_failed(report)
        output.print_lines(['', plan_sentences.MEANING])
    verdicts = {host.verdict for host in report.not_evacuable_hosts}
    return CANNOT if Verdict.CANNOT in verdicts else NOT_FOUND if verdicts else FITS


def _print_failed(report: FailureReport) -> None:
    rows = [
        (
            host.host.display_name,
            f'{host.consumers:,}',
            f'{host.left_count:,}',
            host.verdict.value,
            units.amounts_text(host.left_resources),
        )
        for host in report.not_evacuable_hosts[:_ROWS]
    ]
    headings = ('Host', 'Consumers', 'Not placed', 'Verdict', 'Resources not placed')
    _print_table(headings, rows, report.not_evacuable, 'host')


# ratio and flavors -----------------------------------------------------------------------------------------------


def run_ratio(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print what another allocation ratio would change."""
    name, value = ratio.parse_change(args.change)
    listed = flavors.read_flavors(args.flavors) if args.flavors else []
    with output.waiting('Comparing ...'):
        read_at = timeutils.utcnow(with_timezone=True)
        snapshot = ProviderCache(db).up_to_date()
        report = ratio.compare_ratio(snapshot, name, value, _aggregate(args, conf), listed)
    texts = plan_sentences.ratio_sentences(report)
    if args.format == 'json':
        output.print_json(plan_sentences.document(texts, report, read_at=read_at))
    else:
        output.print_lines(texts)
        _print_ratio(report)
    return FITS


def _print_ratio(report: RatioReport) -> None:
    rows = plan_sentences.ratio_rows(report)
    _print_table(('', 'Now', 'Then'), rows, len(rows), 'figure')
    above = [
        (provider.name, units.used_of_capacity(report.resource_class, provider.used, provider.capacity))
        for provider in report.above_capacity[:_ROWS]
    ]
    _print_table(('Above its capacity', 'Used of capacity'), above, len(report.above_capacity), 'provider')


def run_flavors(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print how many more instances of each flavor fit."""
    listed = flavors.read_flavors(args.file)
    if not listed:
        raise exception.BadQuery(f'{args.file} has no flavors.')
    read_at = timeutils.utcnow(with_timezone=True)
    snapshot = ProviderCache(db).up_to_date()
    fits = flavors.count_flavors(
        snapshot, listed, args.by_aggregate, lambda items: output.with_progress('Counting', items)
    )
    texts = plan_sentences.flavor_sentences(fits)
    if args.format == 'json':
        output.print_json({'sentences': texts, 'read_at': read_at, 'flavors': plan_sentences.data(fits)})
    else:
        output.print_lines(texts)
        _print_fits(fits, output.display_names(conf))
        output.print_lines(['', plan_sentences.FITS_MEANING])
    return FITS


def _print_fits(fits: list[FlavorFit], names: DisplayNames) -> None:
    rows = [
        (
            fit.name,
            plan_sentences.fit_text(fit),
            f'{fit.count.prevented_by_pools:,}',
            f'{fit.prevented_by_traits:,}',
            f'{fit.prevented_by_fragmentation:,}',
        )
        for fit in fits
    ]
    prevented = (f'Prevented by\n{what}' for what in ('pools', 'traits', 'fragmentation'))
    _print_table(('Flavor', 'Fit', *prevented), rows, len(rows), 'flavor')
    aggregates = [
        (names.label(uuid), *(plan_sentences.fit_text(fit, uuid) for fit in fits))
        for uuid in sorted(fits[0].by_aggregate, key=names.label)
    ]
    flavors_by_name = (output.shown(fit.name) for fit in fits)
    _print_table(('Aggregate', *flavors_by_name), aggregates, len(aggregates), 'aggregate')
