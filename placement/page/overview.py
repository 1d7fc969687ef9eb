"""The view Overview: how full the cloud is, and how many more fit."""

from __future__ import annotations

from typing import Any

from placement.page.asked import Asked
from placement.page.desk import Desk
from placement.page.rendering import Pages, View
from placement.reports import capacity
from placement.reports.how_many import Size, how_many

#: Aggregates of the heat map on one page.
_AGGREGATES = 25
#: Searches that one answer to "how many more" may take: some tenths of a second.
_SEARCHES = 2000


def view(desk: Desk, asked: Asked) -> View:
    """The figures by class, the heat map, and, for a size, how many more of it fit."""
    scope, page, resources = asked.scope(), asked.page(), asked.resources()
    state = desk.mirror.current()
    summary = capacity.summary(state, scope)
    heat = capacity.heat_map(state, (page - 1) * _AGGREGATES, _AGGREGATES)
    pages = Pages(page, _AGGREGATES, heat.aggregates)
    answer: dict[str, Any] | None = None
    if resources is not None:
        size = Size(resources, scope.traits, scope.aggregate)
        answer = {'size': size, 'count': how_many(state, size, _SEARCHES)}
    data = {
        'scope': scope,
        'providers': summary.providers,
        'trees': summary.trees,
        'classes': summary.classes,
        'heat_map': {'classes': heat.classes, 'rows': heat.rows, **pages.data()},
        'how_many_more': answer,
    }
    return View('overview.html', 'Overview', data, {'pages': pages, 'fullest': _fullest(summary)})


def _fullest(summary: capacity.Summary) -> capacity.ClassFigures | None:
    """The class of which the largest part is used."""
    return max(summary.classes, key=lambda one: capacity.Filling(one.capacity, one.used).share, default=None)
