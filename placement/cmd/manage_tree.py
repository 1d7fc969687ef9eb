"""``placement-manage tree``: provider trees with what is in them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from oslo_config import cfg
from rich import tree as rich_tree
from rich.console import Console
from rich.text import Text

from placement.cmd import output
from placement.db.api import Database
from placement.reports import forest

_DESCRIPTION = """\
Draw provider trees: for each provider its uuid and generation, a bar for each inventory that shows how much of its
capacity, (total - reserved) * allocation_ratio, is used, its traits and aggregates, and below the root the sharing
providers of other trees that reach the tree through an aggregate. Reads one state of the database, changes nothing."""
_EPILOG = 'Exit code: 0 also when nothing is stored, 127 when there is no such provider or the command failed.'

_BAR_WIDTH = 20
#: From this share of the capacity on, a bar is drawn in the colour.
_COLOURS = ((1.0, 'red'), (0.8, 'yellow'), (0.0, 'green'))


def add_parser(commands: Any) -> None:
    """Add ``tree`` to the parser of ``placement-manage``."""
    parser = commands.add_parser(
        'tree', help='draw provider trees with what is in them', description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument(
        'provider',
        metavar='PROVIDER',
        nargs='?',
        help='uuid or name of a provider; its whole tree is drawn (default: all trees)',
    )
    parser.add_argument('--format', choices=('tree', 'json'), default='tree', help='how to print the trees')
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    trees = forest.load(db, args.provider)
    if args.format == 'json':
        output.print_json({'trees': [_as_data(tree) for tree in trees]})
        return 0
    if not trees:
        print('No resource providers are stored.')
    console = output.console()
    for tree in trees:
        console.print(_drawing(tree, console))
    return 0


# As JSON: flat, since JSON readers bound how deep they nest ------------------------------------------------


def _as_data(tree: forest.Tree) -> dict[str, Any]:
    uuids = {node.id: node.uuid for node in tree.root.walk()}
    return {
        'root': tree.root.uuid,
        'providers': [_provider_as_data(node, uuids) for node in tree.root.walk()],
        'sharing_providers': [
            {'uuid': one.uuid, 'name': one.name, 'aggregates': list(one.aggregates)} for one in tree.sharing
        ],
    }


def _provider_as_data(node: forest.Node, uuids: dict[int, str]) -> dict[str, Any]:
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
            }
            for stock in node.inventories
        },
        'traits': node.traits,
        'aggregates': node.aggregates,
    }


# As a drawing --------------------------------------------------------------------------------------------


def _drawing(tree: forest.Tree, console: Console) -> rich_tree.Tree:
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


def _heading(node: forest.Node, console: Console) -> Text:
    name = output.printable(node.name, console)
    return Text.assemble((name, 'bold'), f' {node.uuid} generation {node.generation}')


def _lines(node: forest.Node, console: Console) -> Iterator[Text]:
    yield from _inventory_lines(node.inventories, console)
    if node.traits:
        yield Text(f'traits: {", ".join(node.traits)}', 'cyan')
    if node.aggregates:
        yield Text(f'aggregates: {", ".join(node.aggregates)}', 'blue')


def _inventory_lines(inventories: Iterable[forest.Stock], console: Console) -> Iterator[Text]:
    inventories = list(inventories)
    widest = max((len(stock.resource_class) for stock in inventories), default=0)
    for stock in inventories:
        details = f'reserved {stock.reserved}, ' if stock.reserved else ''
        numbers = (
            f'{stock.used} of {stock.capacity} used ({details}total {stock.total}, ratio {stock.allocation_ratio:g})'
        )
        yield Text.assemble(f'{stock.resource_class:{widest}} ', _bar(stock, console), f' {numbers}')


def _bar(stock: forest.Stock, console: Console) -> Text:
    """How full an inventory is; the least use shows, and only what is full, or over, fills the bar."""
    full, empty = ('#', '.') if console.options.ascii_only else ('█', '░')
    share = stock.used / stock.capacity if stock.capacity else float(stock.used > 0)
    length = min(int(share * _BAR_WIDTH), _BAR_WIDTH)
    if stock.used > 0:
        length = max(length, 1)
    colour = next(colour for bound, colour in _COLOURS if share >= bound)
    return Text.assemble((full * length, colour), (empty * (_BAR_WIDTH - length), 'dim'))
