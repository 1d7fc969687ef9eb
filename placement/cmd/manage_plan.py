"""``placement-manage plan``: what fits if hosts are drained or fail, at another ratio, and how many of each flavor."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from oslo_config import cfg
from rich.text import Text

from placement import exception, units
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.db.api import Database
from placement.ops.display_names import DisplayNames
from placement.ops.planning import drain, failures, flavors, ratio, sentences
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


def _print_sentences(texts: Iterable[str]) -> None:
    console = output.console()
    for text in texts:
        console.print(Text(output.printable(text, console)))


# drain -----------------------------------------------------------------------------------------------------------


def run_drain(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Plan the moves from some hosts, print the plan, and return the exit code of its verdict."""
    with output.waiting('Planning ...'):
        plan = drain.plan_drain(db, args.hosts, _aggregate(args, conf), _options(args))
    output.warn_of_usage_mismatches(plan.mismatches)
    if args.format == 'json':
        output.print_json(sentences.drain_document(plan))
    else:
        _print_sentences(sentences.drain_sentences(plan))
        _print_unplaced(plan)
        _print_destinations(plan)
        _print_sentences(['', sentences.MEANING])
    return _EXIT_CODES[plan.verdict]


def _print_unplaced(plan: DrainPlan) -> None:
    if not plan.unplaced:
        return
    console = output.console()
    table = output.table('Not placed', 'Consumers', 'Eligible\nhosts', 'Closest host', 'Lacks there')
    for item in plan.unplaced[:_ROWS]:
        closest = '-' if item.closest is None else sentences.host_name(plan.hosts, item.closest)
        lacks = sentences.amounts(item.lacks) or ('-' if item.closest is None else 'nothing that is left')
        name = output.printable(closest, console)
        table.add_row(sentences.size(plan.hosts, item.shape), f'{item.count:,}', f'{item.eligible:,}', name, lacks)
    console.print()
    console.print(table)
    _print_rest(len(plan.unplaced) - _ROWS, 'size')


def _print_destinations(plan: DrainPlan) -> None:
    destinations = sentences.destinations(plan)
    if not destinations:
        return
    console = output.console()
    table = output.table('Destination', 'Consumers')
    for tree, count in destinations[:_ROWS]:
        table.add_row(output.printable(sentences.host_name(plan.hosts, tree), console), f'{count:,}')
    console.print()
    console.print(table)
    _print_rest(len(destinations) - _ROWS, 'host')
    _print_sentences(['--format json has the moves.'])


def _print_rest(count: int, noun: str) -> None:
    if count > 0:
        _print_sentences([f'And {count:,} more {noun}{"s" if count > 1 else ""}.'])


# failures --------------------------------------------------------------------------------------------------------


def run_failures(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print for each host whether its load fits on the others, and return the exit code of the verdict."""
    report = failures.check_failures(
        db, _options(args), _aggregate(args, conf), lambda trees: output.with_progress('Checking hosts', trees)
    )
    output.warn_of_usage_mismatches(report.mismatches)
    if args.format == 'json':
        output.print_json(sentences.failure_document(report))
    else:
        _print_sentences(sentences.failure_sentences(report))
        _print_failed(report, args.count)
        _print_sentences(['', sentences.MEANING])
    verdicts = {host.verdict for host in report.failed}
    return CANNOT if Verdict.CANNOT in verdicts else NOT_FOUND if verdicts else FITS


def _print_failed(report: FailureReport, count: int) -> None:
    if not report.failed:
        return
    console = output.console()
    table = output.table('Host', 'Consumers', 'Not placed', 'Verdict', 'Resources not placed')
    for host in report.failed[:count]:
        name = output.printable(sentences.host_name(report.hosts, host.tree), console)
        amounts = sentences.amounts(host.left_amounts)
        table.add_row(name, f'{host.consumers:,}', f'{host.left_count:,}', host.verdict.value, amounts)
    console.print()
    console.print(table)
    _print_rest(len(report.failed) - count, 'host')


# ratio and flavors -----------------------------------------------------------------------------------------------


def run_ratio(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print what another allocation ratio would change."""
    name, value = ratio.parse_change(args.change)
    listed = flavors.read_flavors(args.flavors) if args.flavors else []
    with output.waiting('Comparing ...'):
        snapshot = ProviderCache(db).up_to_date()
        report = ratio.compare_ratio(snapshot, name, value, _aggregate(args, conf), listed)
    if args.format == 'json':
        output.print_json(sentences.ratio_document(report))
    else:
        _print_sentences(sentences.ratio_sentences(report))
        _print_ratio(report)
    return FITS


def _print_ratio(report: RatioReport) -> None:
    console = output.console()
    table = output.table('', 'Now', 'Then')
    for label, now, then in sentences.ratio_rows(report):
        table.add_row(output.printable(label, console), now, then)
    console.print()
    console.print(table)
    if not report.above:
        return
    table = output.table('Above its capacity', 'Used of capacity')
    for provider in report.above[:_ROWS]:
        used = units.used_of_capacity(report.resource_class, provider.used, provider.capacity)
        table.add_row(output.printable(provider.name, console), used)
    console.print()
    console.print(table)
    _print_rest(len(report.above) - _ROWS, 'provider')


def run_flavors(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print how many more instances of each flavor fit."""
    listed = flavors.read_flavors(args.file)
    if not listed:
        raise exception.BadQuery(f'{args.file} has no flavors.')
    snapshot = ProviderCache(db).up_to_date()
    fits = flavors.count_flavors(
        snapshot, listed, args.by_aggregate, lambda items: output.with_progress('Counting', items)
    )
    if args.format == 'json':
        output.print_json(sentences.flavors_document(fits))
    else:
        _print_sentences(sentences.flavor_sentences(fits))
        _print_fits(fits, output.display_names(conf))
        _print_sentences(['', sentences.FITS_MEANING])
    return FITS


def _print_fits(fits: list[FlavorFit], names: DisplayNames) -> None:
    console = output.console()
    table = output.table('Flavor', 'Fit', *(f'Prevented by\n{what}' for what in ('pools', 'traits', 'fragmentation')))
    for fit in fits:
        prevented = (fit.count.prevented_by_pools, fit.prevented_by_traits, fit.prevented_by_fragmentation)
        figures = (sentences.fit_text(fit.count, fit.flavor), *(f'{number:,}' for number in prevented))
        table.add_row(output.printable(fit.flavor.name, console), *map(output.figure, figures))
    console.print()
    console.print(table)
    if aggregates := sorted(fits[0].by_aggregate, key=names.label):
        table = output.table('Aggregate', *(output.printable(fit.flavor.name, console) for fit in fits))
        for uuid in aggregates:
            counts = (sentences.fit_text(fit.by_aggregate[uuid], fit.flavor) for fit in fits)
            table.add_row(output.printable(names.label(uuid), console), *map(output.figure, counts))
        console.print()
        console.print(table)
