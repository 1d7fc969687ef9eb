"""The view Overview: how full the cloud is, and how many more consumers of a size fit."""

from __future__ import annotations

from typing import Any

from placement.page.parameters import Parameters
from placement.page.rendering import Pages, View
from placement.page.sources import Sources
from placement.reports import capacity
from placement.reports.fit_estimate import Size, estimate_fit

#: Aggregates of the heat map on one page.
_AGGREGATES = 25
#: Most searches for one answer to "how many more"; they take some tenths of a second.
_SEARCHES = 2000


def view(sources: Sources, parameters: Parameters) -> View:
    """Show the figures by class, the heat map, and, if a size is given, how many more consumers of it fit."""
    scope, page, resources = parameters.scope(), parameters.page(), parameters.resources()
    state = sources.provider_cache.current()
    summary = capacity.summary(state, scope)
    heat = capacity.heat_map(state, (page - 1) * _AGGREGATES, _AGGREGATES)
    pages = Pages(page, _AGGREGATES, heat.aggregates)
    answer: dict[str, Any] | None = None
    if resources is not None:
        size = Size(resources, scope.traits, scope.aggregate, scope.root_required, scope.root_forbidden)
        answer = {'size': size, 'estimate': estimate_fit(state, size, _SEARCHES)}
    data = {
        'scope': scope,
        'providers': summary.providers,
        'trees': summary.trees,
        'classes': summary.classes,
        'heat_map': {'classes': heat.classes, 'rows': heat.rows, **pages.data()},
        'fit_estimate': answer,
    }
    return View('overview.html', 'Overview', data, {'pages': pages, 'fullest': _fullest(summary)})


def _fullest(summary: capacity.Summary) -> capacity.ClassFigures | None:
    """The class of which the largest part is used."""
    return max(summary.classes, key=lambda one: capacity.Filling(one.capacity, one.used).share, default=None)
