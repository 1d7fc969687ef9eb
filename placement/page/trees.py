"""The views of trees: a list of provider trees, and one tree as a picture with its inventories and consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import os_traits

from placement.cache.snapshot import Snapshot
from placement.page import names, pictures
from placement.page.parameters import BadInput, Missing, Parameters
from placement.page.rendering import Pages, View
from placement.page.sources import Sources
from placement.reports import consumers, provider_trees, tree_list
from placement.reports.capacity import Filling
from placement.reports.tree_list import Order, TreeRow
from placement.web import validation

#: Entries on one page of each list.
_TREES, _PROVIDERS, _CONSUMERS = 50, 50, 25


def list_view(sources: Sources, parameters: Parameters) -> View:
    """List the trees that match the parameters, the fullest first unless ``order`` is ``name`` or a resource class."""
    page, trees = parameters.page(), parameters.trees()
    state = sources.provider_cache.current()
    order = parameters.text('order') or Order.FULLEST.value
    by_class = order not in {one.value for one in Order}
    if by_class and order not in state.names.class_ids:
        raise BadInput(reason=f'“order” is fullest, name or a resource class, not “{order}”.')
    sorting = (Order.FULLEST, order) if by_class else (Order(order), None)
    found = tree_list.listing(state, trees, sorting[0], (page - 1) * _TREES, _TREES, sorting[1])
    pages = Pages(page, _TREES, found.trees)
    data = {
        'search': trees.name,
        'scope': trees,
        'order': order,
        'trees': [_row(state, row) for row in found.rows],
        **pages.data(),
    }
    extra = {
        'pages': pages,
        'stored': state.provider_count,
        'classes': _in_order(state, {one.resource_class for row in found.rows for one in row.classes}),
        'all_classes': _in_order(state, {name for one in state.partitions for name in one.inventory_columns}),
    }
    return View('trees.html', 'Trees', data, extra)


def _row(state: Snapshot, row: TreeRow) -> dict[str, Any]:
    """Return the data of one row. ``reserved`` has the classes that have no capacity and no usage in the tree."""
    root = state.find_provider(row.uuid)
    return {
        'uuid': row.uuid,
        'name': row.name,
        'providers': row.providers,
        'found': row.found,
        'fillings': {one.resource_class: one.filling for one in row.classes},
        'over_committed': [one.resource_class for one in row.classes if one.filling.over_committed],
        'reserved': [one.resource_class for one in row.classes if not one.filling.capacity and not one.filling.used],
        'disabled': root is not None and os_traits.COMPUTE_STATUS_DISABLED in root.traits,
    }


def _in_order(state: Snapshot, classes: set[str]) -> Sequence[str]:
    return sorted(classes, key=state.names.class_ids.__getitem__)


def view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the tree that a provider belongs to."""
    if not validation.is_uuid(uuid):
        raise BadInput(reason=f'A provider is given by its uuid, which “{uuid}” is not.')
    tree = _tree(sources, validation.canonical_uuid(uuid))
    nodes = list(tree.root.walk())
    providers = Pages(parameters.page(), _PROVIDERS, len(nodes))
    at = parameters.page('consumer_page')
    page_of_consumers = consumers.of_tree(sources.db, tree.root.id, (at - 1) * _CONSUMERS, _CONSUMERS)
    consumer_pages = Pages(at, _CONSUMERS, page_of_consumers.consumers, 'consumer_page')
    uuids = {node.id: node.uuid for node in nodes}
    data = {
        'root': {'uuid': tree.root.uuid, 'name': tree.root.name},
        'providers': [_provider(node, uuids) for node in nodes[providers.first : providers.last]],
        'sharing_providers': tree.sharing,
        'consumers': page_of_consumers.rows,
        **providers.data(),
        'consumer_pages': consumer_pages.data(),
    }
    extra = {
        'provider_pages': providers,
        'pages_of_consumers': consumer_pages,
        'short': names.of_tree(tree.root),
        'depths': _depths(tree.root),
        'found': None if uuid == tree.root.uuid else next(node for node in nodes if node.uuid == uuid.lower()),
        'over_committed': _over_committed(nodes),
        'disabled': os_traits.COMPUTE_STATUS_DISABLED in tree.root.traits,
        'sideways': pictures.tree(tree.root, pictures.SIDEWAYS),
        'indented': pictures.tree(tree.root, pictures.INDENTED),
    }
    return View('tree.html', tree.root.name or tree.root.uuid, data, extra)


def _tree(sources: Sources, uuid: str) -> provider_trees.Tree:
    try:
        trees = provider_trees.load(sources.db, uuid)
    except provider_trees.UnknownProvider as error:
        raise Missing(reason=f'There is no provider with the uuid {uuid}.') from error
    # A tree whose parent links are broken is loaded as several; the one with the provider is shown.
    return next(tree for tree in trees if any(node.uuid == uuid for node in tree.root.walk()))


def _depths(root: provider_trees.Node) -> Mapping[str, int]:
    """Return how far each provider of a tree is below the root, by uuid."""
    depths = {root.id: 0}
    for node in root.walk():
        depths |= {child.id: depths[node.id] + 1 for child in node.children}
    return {node.uuid: depths[node.id] for node in root.walk()}


def _over_committed(nodes: Sequence[provider_trees.Node]) -> list[dict[str, Any]]:
    """Return the inventories of which more is used than their capacity."""
    return [
        {
            'uuid': node.uuid,
            'resource_class': inventory.resource_class,
            'filling': Filling(inventory.capacity, inventory.used),
        }
        for node in nodes
        for inventory in node.inventories
        if inventory.used > inventory.capacity
    ]


def _provider(node: provider_trees.Node, uuids: Mapping[int, str]) -> dict[str, Any]:
    return {
        'uuid': node.uuid,
        'name': node.name,
        'generation': node.generation,
        'parent_provider_uuid': None if node.parent_id is None else uuids.get(node.parent_id),
        'inventories': node.inventories,
        'traits': node.traits,
        'aggregates': node.aggregates,
    }
