"""Provider trees as operators see them: built from the parents, with sharing providers, and with the times at which
inventories and their allocations were written, which tell why an inventory is over-committed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_utils import timeutils

from placement import exception, units, validation
from placement.cache import loader
from placement.cache.providers import SHARING_TRAIT, InventoryRecord, Provider
from placement.cache.snapshot import Snapshot
from placement.capacity import capacity_limit
from placement.db import sql, tables
from placement.db.api import Database
from placement.ops.provider_roots import find_roots
from placement.ops.reports.capacity import Utilization

_inventories, _allocations, _classes = tables.inventories.c, tables.allocations.c, tables.resource_classes.c
_providers, _traits, _provider_traits = tables.resource_providers.c, tables.traits.c, tables.resource_provider_traits.c


class UnknownProvider(exception.NotFound):
    template = 'There is no resource provider with the uuid or name {identifier!r}.'


class ProviderIsConsumer(UnknownProvider):
    template = '{identifier} is a consumer, not a resource provider. See: placement-manage consumer {identifier}'


@dataclasses.dataclass(frozen=True)
class InventoryHistory:
    """The aware times at which an inventory and its allocations were written; None if unknown.

    ``updated_at`` is the time of the latest change of the inventory, or of its creation; claims do not change it.
    ``allocated`` is the sum of all allocations, ``allocated_before`` the sum of those written before that time.
    ``mismatch`` is ``allocated`` if the recorded usage differs, because another program has written to the database;
    otherwise None.
    """

    updated_at: dt.datetime | None
    allocations_from: dt.datetime | None
    allocations_to: dt.datetime | None
    allocated: int
    allocated_before: int
    mismatch: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class ProviderTree:
    """One tree, given by its root. Trees that were read together have the other three members in common.

    ``children`` has the children of each provider by its id, ordered by name. ``sharing`` are all sharing providers.
    ``histories`` are by provider id and class. If all trees were read, only inventories that are over-committed or have
    a wrong recorded usage have one.
    """

    root: Provider
    children: Mapping[int | None, Sequence[Provider]]
    sharing: Sequence[Provider] = ()
    histories: Mapping[tuple[int, str], InventoryHistory] = dataclasses.field(default_factory=dict)

    def walk(self) -> Iterator[Provider]:
        """Yield all providers, each before its children.

        This is not recursive, because trees may be deeper than Python's stack.
        """
        pending = [self.root]
        while pending:
            provider = pending.pop()
            yield provider
            pending += reversed(self.children.get(provider.id, ()))

    def allocated(self, provider: Provider, resource_class: str) -> int:
        """Return the sum of the allocations of one inventory."""
        history = self.histories.get((provider.id, resource_class))
        mismatch = history.mismatch if history else None
        return provider.inventories[resource_class].used if mismatch is None else mismatch

    def explain_over_commitment(self, provider: Provider, resource_class: str) -> str:
        """Return sentences about when and why an inventory was over-committed, as far as the times show it.

        They are empty if it is not over-committed, or if the times are unknown.
        """
        inventory = provider.inventories[resource_class]
        history = self.histories.get((provider.id, resource_class))
        if history is None or not inventory_utilization(inventory).over_committed:
            return ''
        if not history.updated_at or not history.allocations_from or not history.allocations_to:
            return ''
        age = (timeutils.utcnow(with_timezone=True) - history.updated_at).total_seconds()
        times = (
            f'Inventory changed {units.ago(age)} ({units.moment(history.updated_at)}); allocations from'
            f' {units.moment(history.allocations_from)} to {units.moment(history.allocations_to)}.'
        )
        # The inventory before its change, and allocations that were replaced, are not known. What follows is true
        # whatever they were.
        limit = max(inventory.capacity, 0)
        if history.allocated_before > limit:
            amount = units.amount(resource_class, history.allocated_before)
            times += f' That change set the capacity below the {amount} that were already allocated.'
            if inventory.reserved and inventory.total * inventory.allocation_ratio >= inventory.used:
                times += ' With nothing reserved, the capacity would suffice.'
            if inventory.allocation_ratio < 1 and inventory.total - inventory.reserved >= inventory.used:
                times += ' With a ratio of 1, the capacity would suffice.'
        elif history.allocated > limit and history.allocations_to > history.updated_at:
            times += ' Allocations were written after that change: they replaced others of at least the same amount,'
            times += ' which the service accepts, or another program wrote them.'
        return times

    def provider_data(self, provider: Provider) -> dict[str, Any]:
        """Return a provider of the tree, with its inventories by class, as JSON documents show it."""
        inventories: dict[str, dict[str, Any]] = {}
        for name, inventory in provider.inventories.items():
            inventories[name] = {
                **inventory._asdict(),
                'capacity': inventory_utilization(inventory).capacity,
                'allocated': self.allocated(provider, name),
            }
            if history := self.histories.get((provider.id, name)):
                inventories[name] |= {
                    'updated_at': history.updated_at,
                    'allocations_from': history.allocations_from,
                    'allocations_to': history.allocations_to,
                    'over_commitment': self.explain_over_commitment(provider, name),
                }
        return {
            'uuid': provider.uuid,
            'name': provider.name or '',
            'generation': provider.generation,
            'parent_provider_uuid': provider.parent_provider_uuid,
            'inventories': inventories,
            'traits': sorted(provider.traits),
            'aggregates': sorted(provider.aggregates),
        }

    def sharing_data(self) -> list[dict[str, Any]]:
        """Return the sharing providers of other trees that have an aggregate in common with this tree, by name.

        The result is for JSON documents. ``aggregates`` lists only the aggregates in common.
        """
        members = {provider.id: provider.aggregates for provider in self.walk()}
        aggregates = frozenset().union(*members.values())
        return [
            {'uuid': provider.uuid, 'name': provider.name or '', 'aggregates': sorted(provider.aggregates & aggregates)}
            for provider in sorted(self.sharing, key=lambda provider: (provider.name or '', provider.uuid))
            if provider.id not in members and not provider.aggregates.isdisjoint(aggregates)
        ]


def inventory_utilization(inventory: InventoryRecord) -> Utilization:
    """Return the capacity of one inventory (at least 0), its usage, and the usage beyond the capacity."""
    limit = max(inventory.capacity, 0)
    return Utilization(limit, inventory.used, max(inventory.used - limit, 0))


def load(db: Database, identifier: str | None = None) -> tuple[list[ProviderTree], Snapshot]:
    """Read the trees, ordered by the name of the root, and a snapshot of them for filters and sums, in one transaction.

    The number of statements does not depend on the number of rows. Unlike the snapshot of the provider cache, this one
    also has providers without a recorded root, and it assigns each provider to the tree to which its parents lead.

    :param identifier: uuid or name of a provider whose tree is read; None for all trees.
    :raises UnknownProvider: there is no such provider.
    :raises ProviderIsConsumer: ``identifier`` is the uuid of a consumer.
    """
    with db.reader() as tx:
        uuid = members = ids = None
        if identifier is not None:
            uuid, root_id = _find(tx, identifier)
            members = sa.select(_providers.id).where(_providers.root_provider_id == root_id)
            ids = members.union(_SELECT_SHARING)
        names = loader.load_names(tx)
        providers = list(loader.read_providers(tx, names.classes, ids, with_rootless=True))
        histories = _read_histories(tx, members)
    sharing = [provider for provider in providers if SHARING_TRAIT in provider.traits]
    if uuid is not None:
        root_uuid = next(provider.root_provider_uuid for provider in providers if provider.uuid == uuid)
        providers = [provider for provider in providers if provider.root_provider_uuid == root_uuid]
    trees = _trees(providers, sharing, histories)
    members_of_trees = (
        provider if provider.root_id == tree.root.id else dataclasses.replace(provider, root_id=tree.root.id)
        for tree in trees
        for provider in tree.walk()
    )
    return trees, Snapshot.build(names, members_of_trees)


def tree_of(db: Database, snapshot: Snapshot, uuid: str) -> ProviderTree:
    """Return the tree of a provider from the snapshot of the cache, and its histories with one statement.

    :raises UnknownProvider: there is no such provider.
    """
    provider = snapshot.find_provider(uuid)
    if provider is None:
        # The cache does not have providers without a recorded root.
        trees, _ = load(db, uuid)
    else:
        partition, number = snapshot.find_tree(provider.root_id)
        with db.reader() as tx:
            members = sa.select(_providers.id).where(_providers.root_provider_id == provider.root_id)
            trees = _trees(partition.tree(number), snapshot.sharing, _read_histories(tx, members))
    # A tree with broken parent links becomes several trees.
    for tree in trees:
        if any(provider.uuid == uuid for provider in tree.walk()):
            return tree
    raise UnknownProvider(identifier=uuid)


def _find(tx: sa.Connection, identifier: str) -> tuple[str, int | None]:
    """Return uuid and root id of the provider with this uuid, or otherwise with this name."""
    uuid = validation.canonical_uuid(identifier.lower())
    query = sa.select(_providers.uuid, _providers.root_provider_id)
    query = query.where(sa.or_(_providers.uuid == uuid, _providers.name == identifier))
    rows = {row.uuid: row for row in tx.execute(query)} if sql.storable(identifier) else {}
    if not rows:
        has_allocations = sa.select(tables.allocations.c.consumer_id).where(tables.allocations.c.consumer_id == uuid)
        is_consumer = sql.storable(identifier) and tx.execute(has_allocations.limit(1)).first()
        raise ProviderIsConsumer(identifier=uuid) if is_consumer else UnknownProvider(identifier=identifier)
    row = rows.get(uuid) or next(iter(rows.values()))
    return row.uuid, row.root_provider_id


_SELECT_SHARING = (
    sa.select(_provider_traits.resource_provider_id)
    .join(tables.traits, _traits.id == _provider_traits.trait_id)
    .where(_traits.name == SHARING_TRAIT)
)


def _trees(
    providers: Sequence[Provider], sharing: Sequence[Provider], histories: Mapping[tuple[int, str], InventoryHistory]
) -> list[ProviderTree]:
    """Make trees of providers by their parents, ordered by the name of the root.

    Every provider is in one tree. A provider whose parent does not exist becomes a root, as does one provider of each
    loop.
    """
    parents = {provider.id: provider.parent_id for provider in providers}
    for start in [id_ for id_, root_id in find_roots(parents).items() if root_id is None]:
        # The first provider that is reached twice on the way up becomes a root.
        passed: set[int] = set()
        id_: int | None = start
        while id_ is not None and id_ not in passed:
            passed.add(id_)
            id_ = parents.get(id_)
        if id_ is not None:
            parents[id_] = None
    children: defaultdict[int | None, list[Provider]] = defaultdict(list)
    for provider in sorted(providers, key=lambda provider: (provider.name or '', provider.id)):
        parent_id = parents[provider.id]
        children[parent_id if parent_id in parents else None].append(provider)
    return [ProviderTree(root, children, sharing, histories) for root in children[None]]


def _read_histories(
    tx: sa.Connection, members: sa.Select[tuple[int]] | None
) -> dict[tuple[int, str], InventoryHistory]:
    """Read the histories of inventories, by the id of the provider and the class, in one statement.

    :param members: selects the ids of the providers. If None, only inventories that are over-committed or have a wrong
        recorded usage are read, because no index has the times.
    """
    changed = sa.func.coalesce(_inventories.updated_at, _inventories.created_at)
    written = sa.func.coalesce(_allocations.updated_at, _allocations.created_at)
    query = (
        sa.select(
            _inventories.resource_provider_id,
            _classes.name,
            _inventories.used,
            changed.label('changed'),
            sa.func.min(written).label('oldest'),
            sa.func.max(written).label('newest'),
            sa.func.coalesce(sa.func.sum(_allocations.used), 0).label('allocated'),
            sa.func.coalesce(sa.func.sum(sa.case((written < changed, _allocations.used))), 0).label('before'),
        )
        .join(tables.resource_classes, _classes.id == _inventories.resource_class_id)
        .outerjoin(tables.allocations, tables.ALLOCATION_OF_INVENTORY)
        .group_by(_inventories.id, _inventories.resource_provider_id, _classes.name, _inventories.used, changed)
    )
    if members is None:
        is_over_committed = sa.and_(_inventories.used > capacity_limit(_inventories), _inventories.used > 0)
        query = query.where(sa.or_(is_over_committed, _inventories.used != tables.ALLOCATED))
    else:
        query = query.where(_inventories.resource_provider_id.in_(members))
    return {
        (row.resource_provider_id, row.name): InventoryHistory(
            sql.with_utc(row.changed),
            sql.with_utc(row.oldest),
            sql.with_utc(row.newest),
            int(row.allocated),
            int(row.before),
            None if row.used == row.allocated else int(row.allocated),
        )
        for row in tx.execute(query)
    }
