"""``placement-manage tree``: print provider trees with their inventories, traits and aggregates."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from oslo_config import cfg
from rich import tree as rich_tree
from rich.console import Console
from rich.table import Table
from rich.text import Text

from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.reports import provider_trees
from placement.reports.tree_filter import TreeFilter, summary

_DESCRIPTION = """\
Draw provider trees: for each provider its uuid and generation, a bar for each inventory that shows how much of its
capacity, (total - reserved) * allocation_ratio, is used, its traits and aggregates, and below the root the sharing
providers of other trees that share an aggregate with the tree. Options select trees: a tree is drawn, as a whole, if
for each condition any of its providers meets it. On a terminal, a pager shows what is longer than the screen. Reads one
state of the database, changes nothing."""
_EPILOG = 'Exit code: 0, also when there are no trees; 127 when there is no such provider or the command failed.'

_BAR_WIDTH = 20
#: The colour of a bar from each used share of the capacity on.
_COLOURS = ((1.0, 'red'), (0.8, 'yellow'), (0.0, 'green'))


def add_command(program: CommandParser) -> None:
    """Add ``tree`` to the parser of ``placement-manage``."""
    summary = 'draw provider trees with their inventories'
    parser = program.add_command('tree', summary, _DESCRIPTION, _EPILOG, run=_run)
    parser.add_argument(
        'provider',
        metavar='PROVIDER',
        nargs='?',
        help='uuid or name of a provider; its whole tree is drawn (default: all trees)',
    )
    _add_choice(parser)
    parser.add_argument('--summary', action='store_true', help='print the sums over all trees instead of the trees')
    parser.add_argument('--no-pager', action='store_true', help='print everything at once, on a terminal too')
    parser.add_format()


def _add_choice(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_argument_group('which trees')
    choice.add_argument('--name', metavar='PATTERN', help='part of the name of a provider, or a pattern with * and ?')
    choice.add_argument('--trait', metavar='NAME', action='append', default=[], help='trait; may be repeated')
    choice.add_argument('--aggregate', metavar='UUID', action='append', default=[], help='aggregate; may be repeated')
    choice.add_argument('--class', metavar='NAME', action='append', default=[], help='resource class; may be repeated')
    choice.add_argument('--full', action='store_true', help='with an inventory (of --class, if given) that is used up')


def _choice(args: argparse.Namespace) -> TreeFilter:
    return TreeFilter(args.name, args.trait, args.aggregate, vars(args)['class'], args.full)


def _run(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    choice = _choice(args)
    with output.waiting('Reading the resource providers ...'):
        stored = provider_trees.load(db, args.provider)
        trees = [tree for tree in stored if choice.allows(tree)] if choice else stored
    if args.format == 'json':
        output.print_json(_summary_as_data(trees) if args.summary else {'trees': [_as_data(tree) for tree in trees]})
    elif not trees:
        print('No tree meets these conditions.' if stored else 'No resource providers are stored.')
    elif args.summary:
        _print_summary(trees)
    else:
        _draw(trees, pager=not args.no_pager)
    output.warn_of_usage_mismatches(_wrong(trees))
    return 0


def _wrong(trees: Iterable[provider_trees.Tree]) -> int:
    """The number of inventories whose recorded usage is not the sum of their allocations."""
    stocks = (stock for tree in trees for node in tree.root.walk() for stock in node.inventories)
    return sum(stock.used != stock.held for stock in stocks)


def _draw(trees: Iterable[provider_trees.Tree], pager: bool) -> None:
    console = output.console()
    with output.paged(console, 'Drawing the trees ...') if pager else contextlib.nullcontext():
        for tree in trees:
            console.print(_drawing(tree, console))


# The summary ----------------------------------------------------------------------------------------------


def _summary_as_data(trees: Iterable[provider_trees.Tree]) -> dict[str, Any]:
    return {'summary': dataclasses.asdict(summary(trees))}


def _print_summary(trees: Iterable[provider_trees.Tree]) -> None:
    console = output.console()
    sums = summary(trees)
    console.print(Text(f'Trees: {sums.trees}, resource providers: {sums.providers}'))
    if not sums.classes:
        return
    table = Table()
    table.add_column('Resource class', overflow='fold')
    for heading in ('Inventories', 'Full', 'Capacity', 'Used', 'Left'):
        table.add_column(heading, justify='right')
    for one in sums.classes:
        figures = (one.inventories, one.full, one.capacity, one.used, one.capacity - one.used)
        table.add_row(Text(one.resource_class), *map(str, figures))
    console.print(table)


# As JSON: a flat list of providers, since JSON parsers limit the depth of nesting ---------------------------


def _as_data(tree: provider_trees.Tree) -> dict[str, Any]:
    uuids = {node.id: node.uuid for node in tree.root.walk()}
    return {
        'root': tree.root.uuid,
        'providers': [_provider_as_data(node, uuids) for node in tree.root.walk()],
        'sharing_providers': [
            {'uuid': one.uuid, 'name': one.name, 'aggregates': list(one.aggregates)} for one in tree.sharing
        ],
    }


def _provider_as_data(node: provider_trees.Node, uuids: dict[int, str]) -> dict[str, Any]:
    return {
        'uuid': node.uuid,
        'name': node.name,
        'generation': node.generation,
        'parent_provider_uuid': None if node.parent_id is None else uuids.get(node.parent_id),
        'inventories': {
            stock.resource_class: {
                'total': stock.total,
                'reserved': stock.reserved,
                'allocation_ratio': stock.allocation_ratio,
                'capacity': stock.capacity,
                'used': stock.used,
                'allocated': stock.held,
            }
            for stock in node.inventories
        },
        'traits': node.traits,
        'aggregates': node.aggregates,
    }


# As a drawing --------------------------------------------------------------------------------------------


def _drawing(tree: provider_trees.Tree, console: Console) -> rich_tree.Tree:
    drawn = {node.id: rich_tree.Tree(_heading(node, console)) for node in tree.root.walk()}
    for node in tree.root.walk():
        branch = drawn[node.id]
        for line in _lines(node, console):
            branch.add(line)
        if node is tree.root:
            for one in tree.sharing:
                name = output.printable(one.name, console)
                branch.add(
                    Text(f'shared by {name} {one.uuid} through aggregate {", ".join(one.aggregates)}', 'magenta')
                )
        branch.children += (drawn[child.id] for child in node.children)
    return drawn[tree.root.id]


def _heading(node: provider_trees.Node, console: Console) -> Text:
    name = output.printable(node.name, console)
    return Text.assemble((name, 'bold'), f' {node.uuid} generation {node.generation}')


def _lines(node: provider_trees.Node, console: Console) -> Iterator[Text]:
    yield from _inventory_lines(node.inventories, console)
    if node.traits:
        yield Text(f'traits: {", ".join(node.traits)}', 'cyan')
    if node.aggregates:
        yield Text(f'aggregates: {", ".join(node.aggregates)}', 'blue')


def _inventory_lines(inventories: Iterable[provider_trees.Stock], console: Console) -> Iterator[Text]:
    inventories = list(inventories)
    widest = max((len(stock.resource_class) for stock in inventories), default=0)
    for stock in inventories:
        details = f'reserved {stock.reserved}, ' if stock.reserved else ''
        numbers = (
            f'{stock.used} of {stock.capacity} used ({details}total {stock.total}, ratio {stock.allocation_ratio:g})'
        )
        wrong = '' if stock.used == stock.held else f' WRONG: the allocations add up to {stock.held}'
        bar = _bar(stock, console)
        yield Text.assemble(f'{stock.resource_class:{widest}} ', bar, f' {numbers}', (wrong, 'bold red'))


def _bar(stock: provider_trees.Stock, console: Console) -> Text:
    """A bar for the used share of an inventory: not empty if anything is used, and full only if all is used."""
    full, empty = ('#', '.') if console.options.ascii_only else ('█', '░')
    share = stock.used / stock.capacity if stock.capacity else float(stock.used > 0)
    length = min(int(share * _BAR_WIDTH), _BAR_WIDTH)
    if stock.used > 0:
        length = max(length, 1)
    colour = next(colour for bound, colour in _COLOURS if share >= bound)
    return Text.assemble((full * length, colour), (empty * (_BAR_WIDTH - length), 'dim'))
