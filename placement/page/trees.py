"""The view Trees: a list of provider trees, and one tree as a picture with those who hold anything of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.page import pictures
from placement.page.asked import Asked, BadInput, Missing
from placement.page.desk import Desk
from placement.page.rendering import Pages, View
from placement.reports import consumers, forest
from placement.reports.tree_list import Order, listing
from placement.web import validation

_TREES, _PROVIDERS, _CONSUMERS = 25, 50, 25


def list_view(desk: Desk, asked: Asked) -> View:
    """The trees that a search means, the fullest first."""
    page, scope = asked.page(), asked.scope()
    order = Order(asked.choice('order', tuple(one.value for one in Order)))
    found = listing(desk.mirror.current(), asked.text('q'), scope, order, (page - 1) * _TREES, _TREES)
    pages = Pages(page, _TREES, found.trees)
    data = {'search': asked.text('q'), 'scope': scope, 'order': order.value, 'trees': found.rows, **pages.data()}
    return View('trees.html', 'Trees', data, {'pages': pages})


def view(desk: Desk, asked: Asked, uuid: str) -> View:
    """The tree that a provider is in."""
    if not validation.is_uuid(uuid):
        raise BadInput(reason=f'A provider is given by its uuid, which “{uuid}” is not.')
    tree = _tree(desk, validation.canonical_uuid(uuid))
    nodes = list(tree.root.walk())
    providers = Pages(asked.page(), _PROVIDERS, len(nodes))
    at = asked.page('holders')
    held = consumers.of_tree(desk.db, tree.root.id, (at - 1) * _CONSUMERS, _CONSUMERS)
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


def _tree(desk: Desk, uuid: str) -> forest.Tree:
    try:
        trees = forest.load(desk.db, uuid)
    except forest.UnknownProvider as error:
        raise Missing(reason=f'There is no provider with the uuid {uuid}.') from error
    # A damaged tree falls apart; the part that was asked for is what matters.
    return next(tree for tree in trees if any(node.uuid == uuid for node in tree.root.walk()))


def _provider(node: forest.Node, uuids: Mapping[int, str]) -> dict[str, Any]:
    return {
        'uuid': node.uuid,
        'name': node.name,
        'generation': node.generation,
        'parent_provider_uuid': None if node.parent_id is None else uuids.get(node.parent_id),
        'inventories': node.inventories,
        'traits': node.traits,
        'aggregates': node.aggregates,
    }
