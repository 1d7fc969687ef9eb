"""All provider trees, or one, with everything that hangs on them, for an operator to look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import os_traits
import sqlalchemy as sa

from placement import exception, room
from placement.db import statements, tables
from placement.db.api import Database

_providers, _inventories = tables.resource_providers, tables.inventories
_traits, _provider_traits = tables.traits, tables.resource_provider_traits
_aggregates, _members = tables.placement_aggregates, tables.resource_provider_aggregates


class UnknownProvider(exception.NotFound):
    template = 'There is no resource provider with the uuid or name {identifier!r}.'


@dataclasses.dataclass(frozen=True)
class Stock:
    """One inventory. ``capacity`` is what may be used in all, ``used`` what is recorded as used.

    ``held`` is the sum of its allocations, which is the same unless somebody wrote past the service.
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
        """This provider and all below it, each before its children. Trees may be deeper than Python's stack."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)


@dataclasses.dataclass(frozen=True)
class Sharing:
    """A sharing provider of another tree, and the aggregates through which it reaches this one."""

    uuid: str
    name: str
    aggregates: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Tree:
    """One tree, and the sharing providers that reach it."""

    root: Node
    sharing: Sequence[Sharing]


def load(db: Database, identifier: str | None = None) -> list[Tree]:
    """The trees, ordered by the name of the root, from one state of the database.

    The number of statements does not depend on what is stored.

    :param identifier: uuid or name of a provider whose whole tree is wanted; None for all trees.
    :raises UnknownProvider: there is no such provider.
    """
    with db.reader() as tx:
        within = sa.true() if identifier is None else _same_tree(_identified(tx, identifier))
        nodes = {row.id: _node(row) for row in tx.execute(sa.select(_providers).where(within))}
        _hang_on(tx, within, nodes)
        sharing = _by_aggregate(tx.execute(_sharing_query()))
    roots = sorted(_planted(nodes), key=lambda node: (node.name, node.id))
    return [Tree(root, list(_reaching(root, sharing))) for root in roots]


def _identified(tx: sa.Connection, identifier: str) -> sa.Row[Any]:
    """The provider with the uuid, or else the name."""
    columns = _providers.c
    wanted = sa.or_(columns.uuid == identifier.lower(), columns.name == identifier)
    found = tx.execute(sa.select(_providers).where(wanted)).all() if statements.storable(identifier) else []
    if not found:
        raise UnknownProvider(identifier=identifier)
    return next((row for row in found if row.uuid == identifier.lower()), found[0])


def _same_tree(row: sa.Row[Any]) -> sa.ColumnElement[bool]:
    # The root of a root may be missing until an audit repairs it.
    root_id = row.id if row.root_provider_id is None else row.root_provider_id
    return sa.or_(_providers.c.root_provider_id == root_id, _providers.c.id.in_({root_id, row.id}))


def _node(row: sa.Row[Any]) -> Node:
    return Node(row.id, row.uuid, row.name or '', row.generation, row.parent_provider_id, row.root_provider_id)


def _hang_on(tx: sa.Connection, within: sa.ColumnElement[bool], nodes: Mapping[int, Node]) -> None:
    """Add inventories, traits and aggregates to their providers."""
    for row in tx.execute(_inventory_query(within)):
        nodes[row.resource_provider_id].inventories.append(_stock(row))
    for provider_id, name in tx.execute(_trait_query(within)):
        nodes[provider_id].traits.append(name)
    for provider_id, uuid in tx.execute(_aggregate_query(within)):
        nodes[provider_id].aggregates.append(uuid)


def _stock(row: sa.Row[Any]) -> Stock:
    capacity = max(room.capacity(row), 0)
    # An inventory whose class is gone is still there, and nothing else would show it.
    name = row.resource_class or f'class {row.resource_class_id}'
    return Stock(name, row.total, row.reserved, row.allocation_ratio, capacity, row.used, int(row.held))


def _inventory_query(within: sa.ColumnElement[bool]) -> sa.Select[Any]:
    classes = tables.resource_classes
    return (
        sa.select(_inventories, classes.c.name.label('resource_class'), tables.HELD.label('held'))
        .join(_providers, _providers.c.id == _inventories.c.resource_provider_id)
        .outerjoin(classes, classes.c.id == _inventories.c.resource_class_id)
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


def _planted(nodes: Mapping[int, Node]) -> Iterator[Node]:
    """The roots, with everything else hanging below them.

    A parent that is gone makes a root, and so does one provider of each loop: nothing stays out of sight.
    """
    for node in sorted(nodes.values(), key=lambda node: (node.name, node.id)):
        if node.parent_id is not None and node.parent_id in nodes:
            nodes[node.parent_id].children.append(node)
    rootless = dict(nodes)
    for node in nodes.values():
        if node.parent_id not in nodes:
            yield _taken(node, rootless)
    while rootless:
        node = _in_loop(next(iter(rootless.values())), nodes)
        if node.parent_id is not None:
            nodes[node.parent_id].children.remove(node)
        yield _taken(node, rootless)


def _in_loop(node: Node, nodes: Mapping[int, Node]) -> Node:
    """The first that comes twice on the way up, which has no end."""
    seen: set[int] = set()
    while node.parent_id is not None and node.id not in seen:
        seen.add(node.id)
        node = nodes[node.parent_id]
    return node


def _taken(root: Node, rootless: dict[int, Node]) -> Node:
    for node in root.walk():
        rootless.pop(node.id, None)
    return root


def _by_aggregate(rows: Iterable[sa.Row[Any]]) -> dict[str, list[sa.Row[Any]]]:
    found: dict[str, list[sa.Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.aggregate, []).append(row)
    return found


def _reaching(root: Node, sharing: Mapping[str, Sequence[sa.Row[Any]]]) -> Iterator[Sharing]:
    """The sharing providers outside of the tree that are in an aggregate of any provider in it."""
    own = {node.id for node in root.walk()}
    touched = sorted({uuid for node in root.walk() for uuid in node.aggregates})
    through: dict[tuple[str, str], list[str]] = {}
    for row in (row for uuid in touched for row in sharing.get(uuid, ())):
        if row.id not in own:
            through.setdefault((row.name or '', row.uuid), []).append(row.aggregate)
    return (Sharing(uuid, name, aggregates) for (name, uuid), aggregates in sorted(through.items()))
