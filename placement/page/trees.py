"""The view Trees: a list of provider trees, and one tree as a picture with the consumers of its providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.page import pictures
from placement.page.parameters import BadInput, Missing, Parameters
from placement.page.rendering import Pages, View
from placement.page.sources import Sources
from placement.reports import consumers, provider_trees
from placement.reports.tree_list import Order, listing
from placement.web import validation

#: Entries on one page of each list.
_TREES, _PROVIDERS, _CONSUMERS = 25, 50, 25


def list_view(sources: Sources, parameters: Parameters) -> View:
    """List the trees that match the parameters, the fullest first unless ``order`` says otherwise."""
    page, scope = parameters.page(), parameters.scope()
    order = Order(parameters.choice('order', tuple(one.value for one in Order)))
    found = listing(sources.provider_cache.current(), parameters.text('q'), scope, order, (page - 1) * _TREES, _TREES)
    pages = Pages(page, _TREES, found.trees)
    data = {'search': parameters.text('q'), 'scope': scope, 'order': order.value, 'trees': found.rows, **pages.data()}
    return View('trees.html', 'Trees', data, {'pages': pages})


def view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the tree that a provider belongs to."""
    if not validation.is_uuid(uuid):
        raise BadInput(reason=f'A provider is given by its uuid, which “{uuid}” is not.')
    tree = _tree(sources, validation.canonical_uuid(uuid))
    nodes = list(tree.root.walk())
    providers = Pages(parameters.page(), _PROVIDERS, len(nodes))
    at = parameters.page('holders')
    held = consumers.of_tree(sources.db, tree.root.id, (at - 1) * _CONSUMERS, _CONSUMERS)
    holders = Pages(at, _CONSUMERS, held.consumers, 'holders')
    names = {node.uuid: node.name or node.uuid for node in nodes}
    uuids = {node.id: node.uuid for node in nodes}
    shown = nodes[providers.first : providers.last]
    data = {
        'root': {'uuid': tree.root.uuid, 'name': tree.root.name},
        'providers': [_provider(node, uuids) for node in shown],
        'sharing_providers': tree.sharing,
        'consumers': held.rows,
        **providers.data(),
        'holders': holders.data(),
    }
    extra = {
        'provider_pages': providers,
        'holder_pages': holders,
        'names': names,
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
