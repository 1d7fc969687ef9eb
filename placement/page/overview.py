"""The view Overview: hosts with problems, how full the cloud is, and how many more consumers of a size fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.cache.snapshot import Snapshot
from placement.page.parameters import Parameters
from placement.page.rendering import Pages, View
from placement.page.sources import Sources
from placement.reports import capacity, consumers, host_problems
from placement.reports.fit_estimate import Size, estimate_fit
from placement.reports.tree_filter import InventoryState, TreeFilter

#: Aggregates of the heat map on one page.
_AGGREGATES = 25
#: Maximum number of searches for one answer to "how many more"; they take some tenths of a second.
_SEARCHES = 2000
#: The consumers of which the commonest size is shown: the latest ones.
_SIZED_CONSUMERS = 2000


def view(sources: Sources, parameters: Parameters) -> View:
    """Show hosts with problems, the figures by class, the heat map, and, for a size, how many more of it fit."""
    trees, resources = parameters.trees(), parameters.resources()
    state = sources.provider_cache.current()
    summary = capacity.summary(state, trees)
    heat = capacity.heat_map(state)
    chosen = next(iter(trees.aggregates), None)
    pages = Pages(_page(parameters, heat, chosen), _AGGREGATES, heat.aggregates)
    answer: dict[str, Any] | None = None
    if resources is not None:
        size = Size(resources, trees.traits, chosen, trees.root_required, trees.root_forbidden)
        answer = {'size': size, 'estimate': estimate_fit(state, size, _SEARCHES)}
    data = {
        'scope': trees,
        'providers': summary.providers,
        'trees': summary.trees,
        'problems': _problems(sources, state, trees),
        'classes': summary.classes,
        'heat_map': {'classes': heat.classes, 'rows': heat.rows[pages.first : pages.last], **pages.data()},
        'fit_estimate': answer,
    }
    return View('overview.html', 'Overview', data, {'pages': pages, 'fullest': _fullest(summary), 'chosen': chosen})


def _page(parameters: Parameters, heat: capacity.HeatMap, chosen: str | None) -> int:
    """Return the page of the heat map: the one with the chosen aggregate, unless a page is given."""
    if chosen is None or parameters.text('page'):
        return parameters.page()
    return next((at for at, row in enumerate(heat.rows) if row.aggregate == chosen), 0) // _AGGREGATES + 1


def _problems(sources: Sources, state: Snapshot, trees: TreeFilter) -> Mapping[str, Any]:
    """Return how many hosts have each problem; ``without_capacity`` is None if no consumer has allocations."""
    found: dict[str, Any] = {
        one.value: host_problems.in_state(state, one, trees).hosts
        for one in (InventoryState.OVER_COMMITTED, InventoryState.RESERVED)
    }
    size = consumers.commonest_size(sources.db, _SIZED_CONSUMERS)
    found['without_capacity'] = size and {
        'hosts': host_problems.without_capacity(state, size.resources, trees).hosts,
        'size': size.resources,
    }
    return found


def _fullest(summary: capacity.Summary) -> capacity.ClassFigures | None:
    """Return the class of which the largest part is used."""
    return max(summary.classes, key=lambda one: capacity.Filling(one.capacity, one.used).share, default=None)
