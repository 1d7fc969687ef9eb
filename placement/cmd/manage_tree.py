"""``placement-manage tree``: print provider trees with their inventories, traits and aggregates."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from oslo_config import cfg
from oslo_utils import timeutils
from rich import tree as rich_tree
from rich.console import Console
from rich.text import Text

from placement import units
from placement.cache.providers import Provider
from placement.cmd import output
from placement.db import sql
from placement.db.api import Database
from placement.ops.display_names import DisplayNames
from placement.ops.reports import capacity_report, provider_trees
from placement.ops.reports.consumer_reports import ConsumerReport, consumers_by_provider
from placement.ops.reports.provider_trees import ProviderTree
from placement.ops.reports.tree_filter import FULL, TreeFilter

#: The consumers of each provider, by its uuid.
Consumers = Mapping[str, Sequence[ConsumerReport]]

#: The consumers of this number of trees are read at a time. More would take more memory, and no less time.
_TREES_PER_READ = 100
_BAR_WIDTH = 20
#: The color of a bar for each lower bound of the used share. A corrupt usage may be negative.
_COLORS = ((1.0, 'red'), (0.8, 'yellow'), (-math.inf, 'green'))


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Print the trees that the arguments select."""
    names, console = output.display_names(conf), output.console()
    choice = TreeFilter(
        name=args.name or '',
        traits=frozenset(args.trait),
        aggregates=frozenset(map(names.aggregate_uuid, args.aggregate)),
        classes=frozenset(vars(args)['class']),
        states=FULL if args.full else frozenset(),
    )
    with output.waiting('Reading the resource providers ...'):
        stored, snapshot = provider_trees.load(db, args.provider)
        if args.provider is None:
            choice.raise_unless_aggregates_exist(snapshot)
        roots = {id_ for partition, flags in choice.select(snapshot) for id_ in partition.roots[flags].tolist()}
        trees = [tree for tree in stored if tree.root.id in roots]
        if args.unchanged_for is not None:
            # Writes to a provider or its inventories and claims set ``modified``, unlike the deletion of allocations.
            limit = timeutils.utcnow(with_timezone=True) - args.unchanged_for
            trees = [
                tree
                for tree in trees
                if all(provider.modified and provider.modified < limit for provider in tree.members)
            ]
    pairs: Iterable[tuple[ProviderTree, Consumers | None]] = ((tree, None) for tree in trees)
    if args.consumers:
        pairs = _with_consumers(db, trees)
    if args.format == 'json':
        output.print_json_list('trees', (tree.data(consumers) for tree, consumers in pairs))
    elif not trees:
        print('No tree satisfies these conditions.' if stored else 'No resource providers are stored.')
    else:
        drawings = (_drawing(tree, consumers or {}, names, console) for tree, consumers in pairs)
        with output.paged(console, 'Drawing the trees ...'):
            for drawing in drawings:
                console.print(drawing)
    output.warn_of_usage_mismatches(
        sum(
            tree.allocated(provider, name) != inventory.used
            for tree in trees
            for provider in tree.members
            for name, inventory in provider.inventories.items()
        )
    )
    return 0


def _with_consumers(db: Database, trees: Sequence[ProviderTree]) -> Iterator[tuple[ProviderTree, Consumers]]:
    """Yield each tree with its consumers. They are read for a number of trees at a time, in one transaction."""
    with db.reader() as tx:
        for batch in sql.chunks(trees, _TREES_PER_READ):
            consumers = consumers_by_provider(tx, [provider.id for tree in batch for provider in tree.members])
            for tree in batch:
                yield tree, consumers


def _drawing(tree: ProviderTree, consumers: Consumers, names: DisplayNames, console: Console) -> rich_tree.Tree:
    def labels(aggregates: Iterable[str]) -> str:
        return ', '.join(map(names.label, sorted(aggregates)))

    branches: dict[int, rich_tree.Tree] = {}
    for provider in tree.walk():
        name = f'{output.shown(provider.name)} ' if provider.name else ''
        heading = Text.assemble((name, 'bold'), f'{provider.uuid} generation {provider.generation}')
        branch = branches[provider.id] = rich_tree.Tree(heading)
        for line in _inventory_lines(tree, provider, console):
            branch.add(line)
        for consumer in consumers.get(provider.uuid, ()):
            amounts = {allocation.resource_class: allocation.amount for allocation in consumer.allocations}
            owner = output.describe_consumer(consumer, names)
            branch.add(output.escaped(f'{consumer.uuid} {owner}: {units.amounts_text(amounts)}'))
        if provider.traits:
            branch.add(output.escaped(f'traits: {", ".join(sorted(provider.traits))}', 'cyan'))
        if provider.aggregates:
            branch.add(output.escaped(f'aggregates: {labels(provider.aggregates)}', 'blue'))
    root = branches[tree.root.id]
    for sharing in tree.sharing_data():
        name = f'{sharing["name"]} ' if sharing['name'] else ''
        text = f'shared by {name}{sharing["uuid"]} through aggregate {labels(sharing["aggregates"])}'
        root.add(output.escaped(text, 'magenta'))
    for id_, branch in branches.items():
        branch.children += (branches[child.id] for child in tree.children.get(id_, ()))
    return root


def _inventory_lines(tree: ProviderTree, provider: Provider, console: Console) -> Iterator[Text]:
    widest = max(map(len, provider.inventories), default=0)
    for name, inventory in provider.inventories.items():
        utilization, allocated = provider_trees.inventory_utilization(inventory), tree.allocated(provider, name)
        details = f'reserved {units.amount(name, inventory.reserved)}, ' if inventory.reserved else ''
        notes = ''
        if utilization.over_committed:
            notes = f', over-committed by {units.amount(name, utilization.over_committed)}'
        if allocated != inventory.used:
            notes += f' WRONG: the allocations add up to {units.amount(name, allocated)}'
        used = units.used_of_capacity(name, utilization.used, utilization.capacity)
        total = units.amount(name, inventory.total)
        numbers = f' {used} used ({details}total {total}, ratio {inventory.allocation_ratio:g})'
        line = (f'{name:{widest}} ', _bar(utilization, console), numbers, (notes, 'bold red'))
        yield Text.assemble(*line, style='' if inventory.used else 'dim')
        if explanation := tree.explain_over_commitment(provider, name):
            yield Text(f'{name}: {explanation}', 'red')


def _bar(utilization: capacity_report.Utilization, console: Console) -> Text:
    """Return a bar for the used share of an inventory. It is empty only if nothing is used, and full only if all is."""
    full, empty = ('#', '.') if console.options.ascii_only else ('█', '░')
    length = max(min(int(utilization.share * _BAR_WIDTH), _BAR_WIDTH), 0)
    if utilization.used > 0:
        length = max(length, 1)
    color = next(color for bound, color in _COLORS if utilization.share >= bound)
    return Text.assemble((full * length, color), (empty * (_BAR_WIDTH - length), 'dim'))
