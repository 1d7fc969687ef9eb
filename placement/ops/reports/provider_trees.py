"""Provider trees as operators see them: built from the parents, with sharing providers, and with the times at which
inventories and their allocations were written, which tell why an inventory is over-committed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_utils import timeutils

from placement import exception, units, uuid_spelling
from placement.cache import loader
from placement.cache.providers import Provider
from placement.cache.snapshot import KnownNames, Snapshot
from placement.capacity import InventoryRecord
from placement.db import sql, tables
from placement.db.api import Database
from placement.ops.provider_roots import find_roots
from placement.ops.reports.capacity_report import Utilization

_inventories, _allocations, _classes = tables.inventories, tables.allocations, tables.resource_classes
_providers = tables.resource_providers


class UnknownProvider(exception.NotFound):
    template = 'There is no resource provider with the uuid or name {identifier!r}.'


class ProviderIsConsumer(UnknownProvider):
    template = '{identifier} is a consumer, not a resource provider. See: placement-manage consumer {identifier}'


@dataclasses.dataclass(frozen=True)
class InventoryHistory:
    """The aware times at which an inventory and its allocations were written; None if unknown.

    ``updated_at`` is the time of the latest change of the inventory, or of its creation; claims do not change it.
    ``allocated`` is the sum of all allocations, ``allocated_before`` the sum of those written before that time. The
    recorded usage differs from ``allocated`` if another program has written to the database.
    """

    updated_at: dt.datetime | None
    allocations_from: dt.datetime | None
    allocations_to: dt.datetime | None
    allocated: int
    allocated_before: int


@dataclasses.dataclass(frozen=True, eq=False)
class ProviderTree:
    """One tree of a snapshot.

    ``members`` are its providers, the root first. ``sharing`` has the sharing providers of all trees, by aggregate.
    ``histories`` are by provider id and class. If all trees were read, only inventories that are over-committed or have
    a wrong recorded usage have one.
    """

    members: Sequence[Provider]
    sharing: Mapping[str, Sequence[Provider]] = dataclasses.field(default_factory=dict)
    histories: Mapping[tuple[int, str], InventoryHistory] = dataclasses.field(default_factory=dict)

    @property
    def root(self) -> Provider:
        return self.members[0]

    @functools.cached_property
    def children(self) -> Mapping[int | None, Sequence[Provider]]:
        """The children of each provider by its id, ordered by name."""
        children: defaultdict[int | None, list[Provider]] = defaultdict(list)
        for provider in sorted(self.members[1:], key=lambda provider: (provider.name or '', provider.id)):
            children[provider.parent_id].append(provider)
        return children

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
        return history.allocated if history else provider.inventories[resource_class].used

    def explain_over_commitment(self, provider: Provider, resource_class: str, *, iso_times: bool = False) -> str:
        """Return sentences about when and why an inventory was over-committed, as far as the times show it.

        They are empty if it is not over-committed, or if the times are unknown.

        :param iso_times: whether to write times in the format of ISO 8601, for JSON documents.
        """
        inventory = provider.inventories[resource_class]
        history = self.histories.get((provider.id, resource_class))
        if history is None or not inventory_utilization(inventory).over_committed:
            return ''
        if not history.updated_at or not history.allocations_from or not history.allocations_to:
            return ''
        moments = (history.updated_at, history.allocations_from, history.allocations_to)
        if iso_times:
            changed, earliest, latest = (moment.isoformat() for moment in moments)
        else:
            age = (timeutils.utcnow(with_timezone=True) - history.updated_at).total_seconds()
            changed, earliest, latest = map(units.moment, moments)
            changed = f'{units.ago(age)} ({changed})'
        times = f'Inventory changed {changed}; allocations from {earliest} to {latest}.'
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

    def data(self, consumers: Mapping[str, Sequence[Any]] | None) -> dict[str, Any]:
        """Return the tree as JSON documents show it. The list of providers is flat, as parsers limit the nesting.

        :param consumers: the consumers of each provider by its uuid; None to leave them out.
        """
        providers = [self.provider_data(provider) for provider in self.walk()]
        if consumers is not None:
            for provider in providers:
                provider['consumers'] = consumers.get(provider['uuid'], ())
        return {'root': self.root.uuid, 'providers': providers, 'sharing_providers': self.sharing_data()}

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
                    'over_commitment': self.explain_over_commitment(provider, name, iso_times=True),
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
        ids = {provider.id for provider in self.members}
        aggregates = frozenset().union(*(provider.aggregates for provider in self.members))
        reaching = {provider.id: provider for uuid in aggregates for provider in self.sharing.get(uuid, ())}
        return [
            {'uuid': provider.uuid, 'name': provider.name or '', 'aggregates': sorted(provider.aggregates & aggregates)}
            for provider in sorted(reaching.values(), key=lambda provider: (provider.name or '', provider.uuid))
            if provider.id not in ids
        ]


def inventory_utilization(inventory: InventoryRecord) -> Utilization:
    """Return the capacity of one inventory (at least 0), its usage, and the usage beyond the capacity."""
    limit = max(inventory.capacity, 0)
    return Utilization(limit, inventory.used, max(inventory.used - limit, 0))


def load(db: Database, identifier: str | None = None) -> tuple[list[ProviderTree], Snapshot]:
    """Read the trees, ordered by the name of the root, and a snapshot of them for filters and sums, in one transaction.

    The number of statements does not depend on the number of rows, except for trees of more than 900 providers. The
    snapshot also has providers without a recorded root, which the provider cache does not have.

    :param identifier: uuid or name of a provider whose tree is read; None for all trees.
    :raises UnknownProvider: there is no such provider.
    :raises ProviderIsConsumer: ``identifier`` is the uuid of a consumer.
    """
    with db.reader() as tx:
        uuid = None if identifier is None else _find_uuid(tx, identifier)
        names = loader.load_names(tx)
        snapshot = _by_parents(names, loader.read_providers(tx, names.classes, with_rootless=True))
        if uuid is not None:
            members = _find_tree(snapshot, uuid)
            tree = ProviderTree(members, _sharing_by_aggregate(snapshot), _read_histories(tx, members))
            return [tree], Snapshot.build(names, members)
        histories = _read_histories(tx)
    sharing = _sharing_by_aggregate(snapshot)
    trees = [
        ProviderTree(partition.tree(number), sharing, histories)
        for partition in snapshot.partitions
        for number in range(len(partition.roots))
    ]
    return sorted(trees, key=lambda tree: (tree.root.name or '', tree.root.id)), snapshot


def tree_of(db: Database, snapshot: Snapshot, uuid: str) -> ProviderTree:
    """Return the tree of a provider from the snapshot of the cache. Only its histories are read.

    :raises UnknownProvider: there is no such provider.
    """
    try:
        recorded = _find_tree(snapshot, uuid)
    except UnknownProvider:
        # The cache does not have providers without a recorded root.
        [tree], _ = load(db, uuid)
        return tree
    members = _find_tree(_by_parents(snapshot.names, recorded), uuid)
    with db.reader() as tx:
        return ProviderTree(members, _sharing_by_aggregate(snapshot), _read_histories(tx, members))


def _by_parents(names: KnownNames, providers: Iterable[Provider]) -> Snapshot:
    """Make a snapshot in which each provider is in the tree to which its parents lead, whatever its recorded root.

    A provider whose parent does not exist becomes a root, as does one provider of each loop.
    """
    members = list(providers)
    root_ids = find_roots({provider.id: provider.parent_id for provider in members}, cut_loops=True)
    for index, provider in enumerate(members):
        root_id = root_ids[provider.id]
        if root_id is not None and root_id != provider.root_id:
            members[index] = dataclasses.replace(provider, root_id=root_id)
    return Snapshot.build(names, members)


def _sharing_by_aggregate(snapshot: Snapshot) -> Mapping[str, Sequence[Provider]]:
    by_aggregate: defaultdict[str, list[Provider]] = defaultdict(list)
    for provider in snapshot.sharing:
        for uuid in provider.aggregates:
            by_aggregate[uuid].append(provider)
    return by_aggregate


def _find_tree(snapshot: Snapshot, uuid: str) -> Sequence[Provider]:
    """Return the providers of the tree of a provider, the root first.

    :raises UnknownProvider: the snapshot has no such provider.
    """
    provider = snapshot.find_provider(uuid)
    if provider is None:
        raise UnknownProvider(identifier=uuid)
    partition, number = snapshot.find_tree(provider.root_id)
    return partition.tree(number)


def _find_uuid(tx: sa.Connection, identifier: str) -> str:
    """Return the uuid of the provider with this uuid, or otherwise with this name.

    This reads no other providers: many identifiers are mistyped, or are uuids of consumers.
    """
    uuid = uuid_spelling.canonical_uuid(identifier.lower())
    query = sa.select(_providers.c.uuid).where(sa.or_(_providers.c.uuid == uuid, _providers.c.name == identifier))
    uuids = tx.execute(query).scalars().all() if sql.storable(identifier) else []
    if uuids:
        return uuid if uuid in uuids else uuids[0]
    has_allocations = sa.select(_allocations.c.consumer_id).where(_allocations.c.consumer_id == uuid).limit(1)
    is_consumer = sql.storable(identifier) and tx.execute(has_allocations).first()
    raise ProviderIsConsumer(identifier=uuid) if is_consumer else UnknownProvider(identifier=identifier)


def _read_histories(
    tx: sa.Connection, members: Sequence[Provider] | None = None
) -> dict[tuple[int, str], InventoryHistory]:
    """Read the histories of inventories, by the id of the provider and the class.

    :param members: the providers; this takes one statement for each 900 of them. If None, only inventories that are
        over-committed or have a wrong recorded usage are read, because no index has the times.
    """
    changed = sa.func.coalesce(_inventories.c.updated_at, _inventories.c.created_at)
    written = sa.func.coalesce(_allocations.c.updated_at, _allocations.c.created_at)
    query = (
        sa.select(
            _inventories.c.resource_provider_id,
            _classes.c.name,
            changed,
            sa.func.min(written),
            sa.func.max(written),
            sa.func.coalesce(sa.func.sum(_allocations.c.used), 0),
            sa.func.coalesce(sa.func.sum(sa.case((written < changed, _allocations.c.used))), 0),
        )
        .join(_classes, _classes.c.id == _inventories.c.resource_class_id)
        .outerjoin(tables.allocations, tables.ALLOCATION_OF_INVENTORY)
        .group_by(_inventories.c.id, _inventories.c.resource_provider_id, _classes.c.name, changed)
    )
    if members is None:
        is_over_committed = sa.and_(_inventories.c.used > tables.CAPACITY_LIMIT, _inventories.c.used > 0)
        conditions = [sa.or_(is_over_committed, _inventories.c.used != tables.ALLOCATED)]
    else:
        ids = [provider.id for provider in members]
        conditions = [_inventories.c.resource_provider_id.in_(chunk) for chunk in sql.chunks(ids)]
    return {
        (provider_id, name): InventoryHistory(
            sql.with_utc(changed_at), sql.with_utc(oldest), sql.with_utc(newest), int(allocated), int(before)
        )
        for condition in conditions
        for provider_id, name, changed_at, oldest, newest, allocated, before in tx.execute(query.where(condition))
    }
