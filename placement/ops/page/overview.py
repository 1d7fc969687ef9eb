"""The view Overview: hosts with problems, how full the cloud is, and how many more consumers of a size fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import os_resource_classes as orc

from placement.cache.snapshot import Snapshot
from placement.ops.page.view import Pagination, Parameters, Sources, View, is_read_only
from placement.ops.planning.fits import FitCount, count_size, one_consumer
from placement.ops.reports import capacity_report, consumer_reports
from placement.ops.reports.tree_filter import InventoryState, TreeFilter

#: The classes that instances in general need. Others, such as devices and bare metal, may be full on purpose.
_COMMON_CLASSES = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB})
#: The number of aggregates on one page of the heat map.
_AGGREGATES = 25
#: Maximum numbers of searches that count how many consumers fit, in the whole cloud and in each aggregate. All searches
#: of a view take a few tenths of a second.
_SEARCHES, _AGGREGATE_SEARCHES = 2000, 80
#: The number of latest consumers that are examined for the most common size.
_SIZED_CONSUMERS = 2000


def overview_view(sources: Sources, parameters: Parameters) -> View:
    """Show hosts with problems, the figures by class, the heat map, and, for a size, how many more consumers fit."""
    trees, resources = parameters.trees(), parameters.resources()
    snapshot = sources.provider_cache.up_to_date()
    summary = capacity_report.summary(snapshot, trees)
    heat = capacity_report.heat_map(snapshot)
    chosen = next(iter(trees.aggregates), None)
    number = parameters.page()
    if chosen is not None and not parameters.text('page'):
        # Show the page that has the chosen aggregate.
        aggregates = [row.aggregate for row in heat.rows]
        number = aggregates.index(chosen) // _AGGREGATES + 1 if chosen in aggregates else 1
    pages = Pagination(number, _AGGREGATES, len(heat.rows))
    fullest = max(
        (figures for figures in summary.classes if figures.resource_class in _COMMON_CLASSES),
        key=lambda figures: capacity_report.Utilization(figures.capacity, figures.used).share,
        default=None,
    )
    rows = heat.rows[pages.first : pages.last]
    result: dict[str, Any] | None = None
    fits: dict[str, FitCount] | None = None
    if resources is not None:
        result = {'size': resources, 'estimate': count_size(snapshot, one_consumer(resources, trees), _SEARCHES)}
        scopes = {row.aggregate: replace(trees, aggregates=frozenset({row.aggregate})) for row in rows}
        fits = {
            aggregate: count_size(snapshot, one_consumer(resources, scope), _AGGREGATE_SEARCHES)
            for aggregate, scope in scopes.items()
        }
    data = {
        'scope': trees,
        'providers': summary.providers,
        'trees': summary.trees,
        'problems': _problems(sources, snapshot, trees),
        'classes': summary.classes,
        'heat_map': {'classes': heat.classes, 'rows': rows, 'fits': fits, **pages.data()},
        'fit_estimate': result,
    }
    return View('overview.html', 'Overview', data, {'pages': pages, 'fullest': fullest, 'chosen': chosen})


def _problems(sources: Sources, snapshot: Snapshot, trees: TreeFilter) -> Mapping[str, Any]:
    """Return how many hosts have each problem, and whether the database is read-only.

    ``without_capacity`` is None if no consumer has allocations, ``not_evacuable`` if failing hosts are not checked yet.
    """
    size = consumer_reports.most_common_size(sources.db, _SIZED_CONSUMERS)
    over_committed, reserved = (
        replace(trees, states=frozenset({state})) for state in (InventoryState.OVER_COMMITTED, InventoryState.RESERVED)
    )
    failures = sources.plan and sources.plan.latest()
    return {
        'database_read_only': is_read_only(sources),
        'over_committed': over_committed.count(snapshot),
        'not_evacuable': failures and failures['not_evacuable'],
        'tolerated_failures': failures and failures['tolerated_failures'],
        'reserved': reserved.count(snapshot),
        'without_capacity': size and {'hosts': replace(trees, lacking=size).count(snapshot), 'size': size},
    }
