"""All provider trees, or one, with their inventories, traits, aggregates and sharing providers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import os_traits
import sqlalchemy as sa

from placement import capacity as capacity_rule
from placement import exception
from placement.db import sql, tables
from placement.db.api import Database

_providers, _inventories = tables.resource_providers, tables.inventories
_traits, _provider_traits = tables.traits, tables.resource_provider_traits
_aggregates, _members = tables.placement_aggregates, tables.resource_provider_aggregates


class UnknownProvider(exception.NotFound):
    template = 'There is no resource provider with the uuid or name {identifier!r}.'


@dataclasses.dataclass(frozen=True)
class Stock:
    """One inventory. ``used`` is the recorded usage.

    ``held`` is the sum of the allocations, which is the same unless another program has written to the database.
    """

    resource_class: str
    total: int
    reserved: int
    allocation_ratio: float
    capacity: int
    used: int
    held: int


@dataclasses.dataclass
class Node:
    """One provider. ``children`` are ordered by name, ``inventories`` by class id, ``traits`` by name."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    root_id: int | None
    inventories: list[Stock] = dataclasses.field(default_factory=list)
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

    The number of statements does not depend on what is stored.

    :param identifier: uuid or name of a provider of which to read the tree; None for all trees.
    :raises UnknownProvider: there is no such provider.
    """
    with db.reader() as tx:
        within: sa.ColumnElement[bool] = sa.true()
        if identifier is not None:
            within = _providers.c.root_provider_id == _identified(tx, identifier).root_provider_id
        nodes = {row.id: _node(row) for row in tx.execute(sa.select(_providers).where(within))}
        _add_details(tx, within, nodes)
        sharing = _by_aggregate(tx.execute(_sharing_query()))
    roots = sorted(_roots(nodes), key=lambda node: (node.name, node.id))
    return [Tree(root, list(_sharing_providers(root, sharing))) for root in roots]


def _identified(tx: sa.Connection, identifier: str) -> sa.Row[Any]:
    """The provider with this uuid, or else with this name."""
    columns = _providers.c
    wanted = sa.or_(columns.uuid == identifier.lower(), columns.name == identifier)
    found = tx.execute(sa.select(_providers).where(wanted)).all() if sql.storable(identifier) else []
    if not found:
        raise UnknownProvider(identifier=identifier)
    return next((row for row in found if row.uuid == identifier.lower()), found[0])


def _node(row: sa.Row[Any]) -> Node:
    return Node(row.id, row.uuid, row.name or '', row.generation, row.parent_provider_id, row.root_provider_id)


def _add_details(tx: sa.Connection, within: sa.ColumnElement[bool], nodes: Mapping[int, Node]) -> None:
    """Add inventories, traits and aggregates to their providers."""
    for row in tx.execute(_inventory_query(within)):
        nodes[row.resource_provider_id].inventories.append(_stock(row))
    for provider_id, name in tx.execute(_trait_query(within)):
        nodes[provider_id].traits.append(name)
    for provider_id, uuid in tx.execute(_aggregate_query(within)):
        nodes[provider_id].aggregates.append(uuid)


def _stock(row: sa.Row[Any]) -> Stock:
    capacity = max(capacity_rule.capacity(row), 0)
    return Stock(row.resource_class, row.total, row.reserved, row.allocation_ratio, capacity, row.used, int(row.held))


def _inventory_query(within: sa.ColumnElement[bool]) -> sa.Select[Any]:
    classes = tables.resource_classes
    return (
        sa.select(_inventories, classes.c.name.label('resource_class'), tables.HELD.label('held'))
        .join(_providers, _providers.c.id == _inventories.c.resource_provider_id)
        .join(classes, classes.c.id == _inventories.c.resource_class_id)
        .where(within)
        .order_by(_inventories.c.resource_class_id)
    )


def _trait_query(within: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return (
        sa.select(_providers.c.id, _traits.c.name)
        .join(_provider_traits, _provider_traits.c.resource_provider_id == _providers.c.id)
        .join(_traits, _traits.c.id == _provider_traits.c.trait_id)
        .where(within)
        .order_by(_traits.c.name)
    )


def _aggregate_query(within: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return (
        sa.select(_providers.c.id, _aggregates.c.uuid)
        .join(_members, _members.c.resource_provider_id == _providers.c.id)
        .join(_aggregates, _aggregates.c.id == _members.c.aggregate_id)
        .where(within)
        .order_by(_aggregates.c.uuid)
    )


def _sharing_query() -> sa.Select[Any]:
    return (
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
    """The first provider that is reached twice on the way up from ``node``, which leads into a loop."""
    seen: set[int] = set()
    while node.parent_id is not None and node.id not in seen:
        seen.add(node.id)
        node = nodes[node.parent_id]
    return node


def _remove_tree(root: Node, rootless: dict[int, Node]) -> None:
    for node in root.walk():
        rootless.pop(node.id, None)


def _by_aggregate(rows: Iterable[sa.Row[Any]]) -> dict[str, list[sa.Row[Any]]]:
    found: dict[str, list[sa.Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.aggregate, []).append(row)
    return found


def _sharing_providers(root: Node, sharing: Mapping[str, Sequence[sa.Row[Any]]]) -> Iterator[Sharing]:
    """The sharing providers outside of the tree that are in an aggregate of any provider in it."""
    own = {node.id for node in root.walk()}
    aggregates = sorted({uuid for node in root.walk() for uuid in node.aggregates})
    common: dict[tuple[str, str], list[str]] = {}
    for row in (row for uuid in aggregates for row in sharing.get(uuid, ())):
        if row.id not in own:
            common.setdefault((row.name or '', row.uuid), []).append(row.aggregate)
    return (Sharing(uuid, name, uuids) for (name, uuid), uuids in sorted(common.items()))
