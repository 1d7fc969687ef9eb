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

from placement import units
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.reports import capacity, provider_trees
from placement.reports.tree_filter import FULL, InventoryState, TreeFilter
from placement.reports.tree_list import TreeRow, listing

_DESCRIPTION = """\
Draw provider trees: for each provider its uuid and generation, a bar for each inventory that shows how much of its
capacity, (total - reserved) * allocation_ratio, is used, its traits and aggregates, and below the root the sharing
providers of other trees that share an aggregate with the tree. Options select trees: a whole tree is drawn if each
condition is satisfied by any of its providers. On a terminal, a pager shows what is longer than the screen. Reads one
state of the database, changes nothing."""
_EPILOG = (
    'Exit code: 0, also when there are no trees; 127 when the provider, a trait or a resource class does not exist or'
    ' the command failed.'
)

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
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument('--summary', action='store_true', help='print the sums over the trees instead of the trees')
    instead.add_argument(
        '--list',
        action='store_true',
        help='print one line for each tree, the fullest first: by the first --class, or else by its fullest class',
    )
    parser.add_argument('--no-pager', action='store_true', help='print everything at once, on a terminal too')
    parser.add_format()


def _add_choice(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_argument_group('which trees')
    choice.add_argument('--name', metavar='PATTERN', help='part of the name of a provider, or a pattern with * and ?')
    choice.add_argument('--trait', metavar='NAME', action='append', default=[], help='trait; may be repeated')
    choice.add_argument('--aggregate', metavar='UUID', action='append', default=[], help='aggregate; may be repeated')
    choice.add_argument('--class', metavar='NAME', action='append', default=[], help='resource class; may be repeated')
    for option, states, text in (
        ('--full', FULL, 'on which no allocation fits'),
        ('--over-committed', {InventoryState.OVER_COMMITTED}, 'of which more is used than the capacity'),
        ('--reserved', {InventoryState.RESERVED}, 'that is reserved as a whole'),
    ):
        choice.add_argument(
            option,
            dest='states',
            action='store_const',
            const=frozenset(states),
            default=frozenset(),
            help=f'with an inventory (of --class, if given) {text}',
        )


def _choice(args: argparse.Namespace) -> TreeFilter:
    return TreeFilter(
        name=args.name or '',
        traits=frozenset(args.trait),
        aggregates=frozenset(map(str.lower, args.aggregate)),
        classes=frozenset(vars(args)['class']),
        states=args.states,
    )


def _run(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    choice, console = _choice(args), output.console()
    with output.waiting('Reading the resource providers ...'):
        stored, snapshot = provider_trees.load_with_snapshot(db, args.provider)
        roots = {id_ for partition, flags in choice.select(snapshot) for id_ in partition.roots[flags].tolist()}
        trees = [tree for tree in stored if tree.root.id in roots]
    resource_class = next(iter(vars(args)['class']), None)
    rows = listing(snapshot, choice, count=None, resource_class=resource_class).rows if args.list else ()
    summary = capacity.summary(snapshot, choice) if args.summary else None
    if args.format == 'json':
        if summary is not None:
            output.print_json({'summary': dataclasses.asdict(summary)})
        elif args.list:
            output.print_json({'list': [dataclasses.asdict(row) for row in rows]})
        else:
            output.print_json({'trees': [_as_data(tree) for tree in trees]})
    elif summary is not None:
        output.print_summary(summary)
    elif not trees:
        print('No tree satisfies these conditions.' if stored else 'No resource providers are stored.')
    else:
        drawings = (_drawing(tree, console) for tree in trees)
        shown = [_list(rows, resource_class, console)] if args.list else drawings
        with contextlib.nullcontext() if args.no_pager else output.paged(console, 'Drawing the trees ...'):
            for one in shown:
                console.print(one)
    output.warn_of_usage_mismatches(_mismatches(trees))
    return 0


def _mismatches(trees: Iterable[provider_trees.Tree]) -> int:
    """Return the number of inventories whose recorded usage is not the sum of their allocations."""
    inventories = (inventory for tree in trees for node in tree.root.walk() for inventory in node.inventories)
    return sum(inventory.used != inventory.allocated for inventory in inventories)


# As a list ------------------------------------------------------------------------------------------------


def _list(rows: Iterable[TreeRow], resource_class: str | None, console: Console) -> Table:
    """Make a table with a line for each tree: how full it is in a class, or in its fullest class if that is None."""
    table = output.table('Host', 'Share', f'Used of\n{resource_class}' if resource_class else 'Used of capacity')
    for row in rows:
        classes = [one for one in row.classes if resource_class in (None, one.resource_class)]
        one = max(classes, key=lambda each: each.filling.share, default=None)
        name = Text(output.printable(row.name, console))
        if one is None:
            table.add_row(name, '', 'no inventory', style='dim')
            continue
        filling = one.filling
        used = units.used_of_capacity(one.resource_class, filling.used, filling.capacity)
        if filling.over_committed:
            used += f', over-committed by {units.amount(one.resource_class, filling.over_committed)}'
        style = 'bold red' if filling.over_committed else '' if filling.used else 'dim'
        share = units.percent(filling.used, filling.capacity)
        table.add_row(name, share, used if resource_class else f'{one.resource_class} {used}', style=style)
    return table


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
            inventory.resource_class: {
                'total': inventory.total,
                'reserved': inventory.reserved,
                'allocation_ratio': inventory.allocation_ratio,
                'capacity': inventory.capacity,
                'used': inventory.used,
                'allocated': inventory.allocated,
            }
            for inventory in node.inventories
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


def _inventory_lines(inventories: Iterable[provider_trees.InventoryUsage], console: Console) -> Iterator[Text]:
    inventories = list(inventories)
    widest = max((len(inventory.resource_class) for inventory in inventories), default=0)
    for inventory in inventories:
        total, reserved, over, allocated = (
            units.amount(inventory.resource_class, value)
            for value in (inventory.total, inventory.reserved, inventory.used - inventory.capacity, inventory.allocated)
        )
        used = units.used_of_capacity(inventory.resource_class, inventory.used, inventory.capacity)
        details = f'reserved {reserved}, ' if inventory.reserved else ''
        notes = f', over-committed by {over}' if inventory.used > inventory.capacity else ''
        if inventory.used != inventory.allocated:
            notes += f' WRONG: the allocations add up to {allocated}'
        numbers = f' {used} used ({details}total {total}, ratio {inventory.allocation_ratio:g})'
        line = (f'{inventory.resource_class:{widest}} ', _bar(inventory, console), numbers, (notes, 'bold red'))
        yield Text.assemble(*line, style='' if inventory.used else 'dim')


def _bar(inventory: provider_trees.InventoryUsage, console: Console) -> Text:
    """Return a bar for the used share of an inventory: not empty if anything is used, and full only if all is used."""
    full, empty = ('#', '.') if console.options.ascii_only else ('█', '░')
    share = inventory.used / inventory.capacity if inventory.capacity else float(inventory.used > 0)
    length = min(int(share * _BAR_WIDTH), _BAR_WIDTH)
    if inventory.used > 0:
        length = max(length, 1)
    colour = next(colour for bound, colour in _COLOURS if share >= bound)
    return Text.assemble((full * length, colour), (empty * (_BAR_WIDTH - length), 'dim'))
