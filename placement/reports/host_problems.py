"""Hosts that need attention: over-committed, without capacity for a usual consumer, or reserved as a whole.

A host is a provider tree. Each report has the filter that selects its hosts, for ``tree_list.listing`` and links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from placement.cache.snapshot import Snapshot
from placement.reports import capacity
from placement.reports.tree_filter import InventoryState, TreeFilter


@dataclass(frozen=True)
class HostProblem:
    """The numbers of trees with a problem and of their inventories with it (None if not counted), and the filter."""

    hosts: int
    inventories: int | None
    trees: TreeFilter


def in_state(state: Snapshot, inventory_state: InventoryState, trees: TreeFilter | None = None) -> HostProblem:
    """Return the hosts with an inventory in ``inventory_state``, and count these inventories.

    :param inventory_state: one of ``tree_filter.FULL``.
    :param trees: the trees to include; None for all.
    :raises ResourceClassNotFound: a class of ``trees`` does not exist.
    :raises TraitNotFound: a trait of ``trees`` does not exist.
    """
    chosen = replace(trees or TreeFilter(), states=frozenset({inventory_state}))
    found = capacity.summary(state, chosen)
    counts = (getattr(one, f'providers_{inventory_state.value}') for one in found.classes)
    return HostProblem(found.trees, sum(counts), chosen)


def without_capacity(state: Snapshot, size: Mapping[str, int], trees: TreeFilter | None = None) -> HostProblem:
    """Return the hosts that supply all classes of ``size`` but have no provider for one of its amounts.

    Each amount is compared with one provider, and the amounts of several request groups are not added up, so that other
    hosts may lack capacity as well.

    :param size: amounts by class, such as those of ``consumers.commonest_size``.
    :param trees: the trees to include; None for all.
    :raises ResourceClassNotFound: a class of ``size`` or ``trees`` does not exist.
    :raises TraitNotFound: a trait of ``trees`` does not exist.
    """
    chosen = replace(trees or TreeFilter(), lacking=size)
    return HostProblem(capacity.summary(state, chosen).trees, None, chosen)
