"""What would change if the allocation ratio of a class were another one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement import exception
from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.ops.planning.flavors import Flavor, FlavorFit, count_flavors
from placement.ops.reports import capacity_report
from placement.ops.reports.capacity_report import ClassFigures
from placement.ops.reports.tree_filter import TreeFilter


@dataclass(frozen=True)
class AboveCapacity:
    """A provider whose usage would exceed its capacity: nothing more fits there until enough consumers leave."""

    uuid: str
    name: str
    used: int
    capacity: int


@dataclass(frozen=True)
class RatioReport:
    """The figures of a class before and after a change of its allocation ratio."""

    resource_class: str
    allocation_ratio: float
    inventories_changed: int
    before: ClassFigures
    after: ClassFigures
    #: Those above their capacity after the change, the worst first.
    above_capacity: Sequence[AboveCapacity]
    #: How many more of each flavor fit.
    flavors_before: Sequence[FlavorFit]
    flavors_after: Sequence[FlavorFit]


def parse_change(text: str) -> tuple[str, float]:
    """Return the class and the ratio of a text such as ``VCPU=4.0``.

    :raises BadQuery: it has another form.
    """
    name, _, value = text.partition('=')
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not name or not 0 < number < float('inf'):
        raise exception.BadQuery(f'Expected CLASS=VALUE with a value above 0, not {text!r}.')
    return name, number


def with_ratio(snapshot: Snapshot, resource_class: str, ratio: float, aggregate: str | None = None) -> Snapshot:
    """Return a snapshot with another allocation ratio of one class.

    :param aggregate: only in trees with a provider in this aggregate; None for all.
    :raises AggregateNotFound: no provider is in the aggregate.
    """
    trees = TreeFilter(frozenset(() if aggregate is None else (aggregate,)))
    trees.raise_unless_aggregates_exist(snapshot)
    roots = {id_ for partition, included in trees.select(snapshot) for id_ in partition.roots[included].tolist()}

    def changed(provider: Provider) -> Provider:
        inventory = provider.inventories.get(resource_class)
        if inventory is None or provider.root_id not in roots:
            return provider
        inventories = {**provider.inventories, resource_class: inventory._replace(allocation_ratio=ratio)}
        return replace(provider, inventories=inventories)

    return Snapshot.build(snapshot.names, map(changed, snapshot.providers()))


def compare_ratio(
    before: Snapshot, resource_class: str, ratio: float, aggregate: str | None, flavors: Sequence[Flavor]
) -> RatioReport:
    """Compare a snapshot with the same one at another allocation ratio.

    :param aggregate: as for ``with_ratio``.
    :raises BadQuery: no provider has inventory of the class.
    """
    after = with_ratio(before, resource_class, ratio, aggregate)
    figures = [
        {of_class.resource_class: of_class for of_class in capacity_report.summary(snapshot).classes}
        for snapshot in (before, after)
    ]
    if resource_class not in figures[0]:
        raise exception.BadQuery(f'No provider has inventory of {resource_class}.')
    columns = (list(snapshot.inventory_columns(resource_class)) for snapshot in (before, after))
    changed = 0
    above: list[AboveCapacity] = []
    for (_, old), (partition, new) in zip(*columns, strict=True):
        changed += int((old.capacity_limit != new.capacity_limit).sum())
        limits = np.maximum(new.capacity_limit, 0)
        for index in np.flatnonzero(new.used > limits).tolist():
            provider = partition.providers[int(new.positions[index])]
            above.append(AboveCapacity(provider.uuid, provider.display_name, int(new.used[index]), int(limits[index])))
    above.sort(key=lambda provider: (provider.capacity - provider.used, provider.uuid))
    return RatioReport(
        resource_class=resource_class,
        allocation_ratio=ratio,
        inventories_changed=changed,
        before=figures[0][resource_class],
        after=figures[1][resource_class],
        above_capacity=above,
        flavors_before=count_flavors(before, flavors),
        flavors_after=count_flavors(after, flavors),
    )
