"""Finds the providers that pass the filters of ``GET /resource_providers`` (api-ref/resource-providers.md)."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from oslo_utils import timeutils

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition
from placement.cache.snapshot import KnownNames, Snapshot


@dataclasses.dataclass(frozen=True)
class ProviderFilters:
    """The filters of a list, all of which a provider has to pass; every provider passes an empty one.

    ``member_of``: each set must hold at least one aggregate (uuid) of the provider, and ``forbidden_aggregates`` none.
    ``resources``: class name to amount that the provider itself must have room for. ``required`` and ``forbidden``:
    trait names; of each set of ``required_any`` the provider must have at least one. ``in_tree``: the uuid of any
    provider of the tree.
    """

    name: str | None = None
    uuid: str | None = None
    in_tree: str | None = None
    member_of: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    resources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    required_any: frozenset[frozenset[str]] = frozenset()


def filter_providers(snapshot: Snapshot, filters: ProviderFilters) -> Iterator[tuple[Partition, list[int]]]:
    """Yield each partition that has providers which pass the filters, with their positions in it, ascending.

    :raises ResourceClassNotFound: a class does not exist; raised when the first item is asked for, as is the next.
    :raises TraitNotFound: some traits do not exist.
    """
    # First: an unknown name is an error even if ``in_tree`` matches nothing.
    snapshot.names.check(filters.resources, filters.required.union(filters.forbidden, *filters.required_any))
    root_id = None
    if filters.in_tree:
        member = snapshot.find_provider(filters.in_tree)
        if member is None:
            return
        root_id = member.root_id
    for partition in snapshot.partitions:
        passing = _passing(snapshot.names, partition, filters, root_id)
        rows: list[int] = np.flatnonzero(passing).tolist()
        if rows:
            yield partition, rows


def latest_change(listed: Iterable[tuple[Partition, Sequence[int]]]) -> dt.datetime:
    """Return the time of the latest change of the listed providers; now if there are none or no time is recorded.

    :param listed: what ``matching`` yields.
    """
    known = (partition.rows[row].modified for partition, rows in listed for row in rows)
    return max(filter(None, known), default=timeutils.utcnow(with_timezone=True))


def _passing(names: KnownNames, partition: Partition, filters: ProviderFilters, root_id: int | None) -> Flags:
    passing = _identity(partition, filters, root_id)
    for name, amount in filters.resources.items():
        passing &= partition.with_capacity(names.class_ids[name], amount)
    if filters.member_of:
        passing &= partition.in_aggregates(filters.member_of)
    if filters.forbidden_aggregates:
        passing &= partition.not_in_aggregates(filters.forbidden_aggregates)
    if filters.required or filters.forbidden or filters.required_any:
        passing &= partition.with_traits(filters.required, filters.forbidden, filters.required_any)
    return passing


def _identity(partition: Partition, filters: ProviderFilters, root_id: int | None) -> Flags:
    """Return for each provider whether it passes the filters ``uuid``, ``name`` and ``in_tree``."""
    if not (filters.name or filters.uuid or root_id is not None):
        return np.ones(len(partition.rows), np.bool_)
    passing = np.zeros(len(partition.rows), np.bool_)
    rows: list[int] = []
    if filters.uuid:
        rows = [partition.by_uuid[filters.uuid]] if filters.uuid in partition.by_uuid else []
    elif filters.name:
        rows = [partition.by_name[filters.name]] if filters.name in partition.by_name else []
    elif root_id is not None:
        number = partition.tree_number(root_id)
        rows = [] if number is None else list(range(*partition.starts[number : number + 2].tolist()))
    passing[[row for row in rows if _has_identity(partition, row, filters, root_id)]] = True
    return passing


def _has_identity(partition: Partition, position: int, filters: ProviderFilters, root_id: int | None) -> bool:
    row = partition.rows[position]
    return (
        (not filters.uuid or row.uuid == filters.uuid)
        and (not filters.name or row.name == filters.name)
        and (root_id is None or row.root_id == root_id)
    )
