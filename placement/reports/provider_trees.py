"""All provider trees, or one, with their inventories, traits, aggregates and sharing providers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import os_traits
import sqlalchemy as sa

from placement import capacity as capacity_rule
from placement import exception
from placement.cache import loader
from placement.cache.snapshot import Snapshot
from placement.candidates.providers import InventoryRecord, Provider
from placement.db import sql, tables
from placement.db.api import Database

_providers, _inventories = tables.resource_providers, tables.inventories
_traits, _provider_traits = tables.traits, tables.resource_provider_traits
_aggregates, _members = tables.placement_aggregates, tables.resource_provider_aggregates


class UnknownProvider(exception.NotFound):
    template = 'There is no resource provider with the uuid or name {identifier!r}.'


@dataclasses.dataclass(frozen=True)
class InventoryUsage:
    """One inventory. ``used`` is the recorded usage.

    ``allocated`` is the sum of the allocations, which is the same unless another program has written to the database.
    """

    resource_class: str
    total: int
    reserved: int
    allocation_ratio: float
    capacity: int
    used: int
    allocated: int
    min_unit: int = 1
    max_unit: int = capacity_rule.MAX_INT32
    step_size: int = 1


@dataclasses.dataclass
class Node:
    """One provider. ``children`` are ordered by name, ``inventories`` by class id, ``traits`` by name."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    root_id: int | None
    inventories: list[InventoryUsage] = dataclasses.field(default_factory=list)
    traits: list[str] = dataclasses.field(default_factory=list)
    aggregates: list[str] = dataclasses.field(default_factory=list)
    children: list[Node] = dataclasses.field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This provider and all below it, each before its children.

        Not recursive, because trees may be deeper than Python's stack.
        """
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)


@dataclasses.dataclass(frozen=True)
class Sharing:
    """A sharing provider of another tree, and the aggregates that it has in common with this tree."""

    uuid: str
    name: str
    aggregates: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Tree:
    """One tree, and the sharing providers of other trees that it can use."""

    root: Node
    sharing: Sequence[Sharing]


def load(db: Database, identifier: str | None = None) -> list[Tree]:
    """Read the trees, ordered by the name of the root, in one transaction.

    The number of statements does not depend on the number of rows.

    :param identifier: uuid or name of a provider of which to read the tree; None for all trees.
    :raises UnknownProvider: there is no such provider.
    """
    with db.reader() as tx:
        return _load(tx, identifier)


def load_with_snapshot(db: Database, identifier: str | None = None) -> tuple[list[Tree], Snapshot]:
    """Read the trees as ``load`` does, and return them also as a snapshot, for filters and sums.

    Unlike the snapshot of the provider cache this one has also the providers without a recorded root, and each provider
    is in the tree that ``load`` puts it in.
    """
    with db.reader() as tx:
        trees = _load(tx, identifier)
        names = loader.load_names(tx)
    return trees, Snapshot.of(names, (_provider(node, tree.root) for tree in trees for node in tree.root.walk()))


def _provider(node: Node, root: Node) -> Provider:
    fields = InventoryRecord._fields
    inventories = {
        one.resource_class: InventoryRecord(*(getattr(one, name) for name in fields)) for one in node.inventories
    }
    sets = frozenset(node.traits), frozenset(node.aggregates)
    return Provider(node.id, node.uuid, root.id, node.parent_id, inventories, *sets, name=node.name)


def _load(tx: sa.Connection, identifier: str | None) -> list[Tree]:
    within: sa.ColumnElement[bool] = sa.true()
    if identifier is not None:
        # By uuid, or else by name.
        columns, uuid = _providers.c, identifier.lower()
        wanted = sa.or_(columns.uuid == uuid, columns.name == identifier)
        found = tx.execute(sa.select(_providers).where(wanted)).all() if sql.storable(identifier) else []
        if not found:
            raise UnknownProvider(identifier=identifier)
        row = next((row for row in found if row.uuid == uuid), found[0])
        within = columns.root_provider_id == row.root_provider_id
    nodes = {row.id: _node(row) for row in tx.execute(sa.select(_providers).where(within))}
    _add_details(tx, within, nodes)
    sharing: dict[str, list[sa.Row[Any]]] = {}
    for row in tx.execute(_SELECT_SHARING):
        sharing.setdefault(row.aggregate, []).append(row)
    roots = sorted(_roots(nodes), key=lambda node: (node.name, node.id))
    return [Tree(root, list(_sharing_providers(root, sharing))) for root in roots]


def _node(row: sa.Row[Any]) -> Node:
    return Node(row.id, row.uuid, row.name or '', row.generation, row.parent_provider_id, row.root_provider_id)


def _add_details(tx: sa.Connection, within: sa.ColumnElement[bool], nodes: Mapping[int, Node]) -> None:
    """Add inventories, traits and aggregates to their providers."""
    for row in tx.execute(_SELECT_INVENTORIES.where(within)):
        capacity = max(capacity_rule.capacity(row), 0)
        numbers = (row.total, row.reserved, row.allocation_ratio, capacity, row.used, int(row.allocated))
        inventory = InventoryUsage(row.resource_class, *numbers, row.min_unit, row.max_unit, row.step_size)
        nodes[row.resource_provider_id].inventories.append(inventory)
    for provider_id, name in tx.execute(_SELECT_TRAITS.where(within)):
        nodes[provider_id].traits.append(name)
    for provider_id, uuid in tx.execute(_SELECT_AGGREGATES.where(within)):
        nodes[provider_id].aggregates.append(uuid)


_SELECT_INVENTORIES = (
    sa.select(_inventories, tables.resource_classes.c.name.label('resource_class'), tables.ALLOCATED.label('allocated'))
    .join(_providers, _providers.c.id == _inventories.c.resource_provider_id)
    .join(tables.resource_classes, tables.resource_classes.c.id == _inventories.c.resource_class_id)
    .order_by(_inventories.c.resource_class_id)
)
_SELECT_TRAITS = (
    sa.select(_providers.c.id, _traits.c.name)
    .join(_provider_traits, _provider_traits.c.resource_provider_id == _providers.c.id)
    .join(_traits, _traits.c.id == _provider_traits.c.trait_id)
    .order_by(_traits.c.name)
)
_SELECT_AGGREGATES = (
    sa.select(_providers.c.id, _aggregates.c.uuid)
    .join(_members, _members.c.resource_provider_id == _providers.c.id)
    .join(_aggregates, _aggregates.c.id == _members.c.aggregate_id)
    .order_by(_aggregates.c.uuid)
)
_SELECT_SHARING = (
    sa.select(_providers.c.id, _providers.c.uuid, _providers.c.name, _aggregates.c.uuid.label('aggregate'))
    .join(_provider_traits, _provider_traits.c.resource_provider_id == _providers.c.id)
    .join(_traits, _traits.c.id == _provider_traits.c.trait_id)
    .join(_members, _members.c.resource_provider_id == _providers.c.id)
    .join(_aggregates, _aggregates.c.id == _members.c.aggregate_id)
    .where(_traits.c.name == os_traits.MISC_SHARES_VIA_AGGREGATE)
)


def _roots(nodes: Mapping[int, Node]) -> Iterator[Node]:
    """Add each provider to the children of its parent, and return the roots.

    Every provider is in one of the trees: one whose parent does not exist is a root, and one provider of each loop too.
    """
    for node in sorted(nodes.values(), key=lambda node: (node.name, node.id)):
        if node.parent_id is not None and node.parent_id in nodes:
            nodes[node.parent_id].children.append(node)
    rootless = dict(nodes)
    for node in nodes.values():
        if node.parent_id not in nodes:
            _remove_tree(node, rootless)
            yield node
    while rootless:
        node = _in_loop(next(iter(rootless.values())), nodes)
        if node.parent_id is not None:
            nodes[node.parent_id].children.remove(node)
        _remove_tree(node, rootless)
        yield node


def _in_loop(node: Node, nodes: Mapping[int, Node]) -> Node:
    """Return the first provider that is reached twice on the way up from ``node``, which leads into a loop."""
    seen: set[int] = set()
    while node.parent_id is not None and node.id not in seen:
        seen.add(node.id)
        node = nodes[node.parent_id]
    return node


def _remove_tree(root: Node, rootless: dict[int, Node]) -> None:
    for node in root.walk():
        rootless.pop(node.id, None)


def _sharing_providers(root: Node, sharing: Mapping[str, Sequence[sa.Row[Any]]]) -> Iterator[Sharing]:
    """Return the sharing providers outside of the tree that are in an aggregate of any provider in it."""
    own = {node.id for node in root.walk()}
    aggregates = sorted({uuid for node in root.walk() for uuid in node.aggregates})
    common: dict[tuple[str, str], list[str]] = {}
    for row in (row for uuid in aggregates for row in sharing.get(uuid, ())):
        if row.id not in own:
            common.setdefault((row.name or '', row.uuid), []).append(row.aggregate)
    return (Sharing(uuid, name, uuids) for (name, uuid), uuids in sorted(common.items()))
