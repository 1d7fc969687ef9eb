"""Writes a view as HTML, with the templates in ``templates/``, or as JSON."""

from __future__ import annotations

import collections
import math
import urllib.parse
from collections.abc import Mapping
from typing import Any

import jinja2
import markupsafe
import orjson
import webob
from jinja2.runtime import Context

from placement import units
from placement.cache.providers import DISABLED_TRAIT, SHARING_TRAIT
from placement.ops.display_names import DisplayNames
from placement.ops.page.view import View

#: The CSS class of a bar for each lower bound of the used share. A corrupt usage may be negative.
_LEVELS = ((1.0, 'full'), (0.8, 'high'), (-math.inf, 'fine'))
#: Upper bounds of the shares for the colors of the heat map.
_HEAT = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
#: Traits that affect placement on a provider. They are shown without expanding the list of traits.
_SHOWN_TRAITS = (DISABLED_TRAIT, SHARING_TRAIT)


def html(view: View, request: webob.Request, path: str, values: Mapping[str, str], names: DisplayNames) -> str:
    """Write a view as an HTML document.

    :param path: the path of the view, below the mount prefix of the page.
    :param values: the query parameters of the request, as ``given`` in templates. Links to the same view keep them.
    :param names: the names of aggregates, projects and users.
    """
    template = _ENVIRONMENT.get_template(view.template)
    in_every_view = {
        'request': request,
        'path': path,
        'given': collections.defaultdict(str, values),
        'title': view.title,
        'names': names,
    }
    return template.render({**view.data, **view.extra, **in_every_view})


# A query parameter may have any name, so the other arguments are positional-only.
@jinja2.pass_context
def link(context: Context, path: str, /, **values: Any) -> str:
    """Return the URL of a view. A parameter without a value is left out."""
    query = urllib.parse.urlencode({name: value for name, value in values.items() if value not in ('', None)})
    prefix: str = context['request'].script_name
    return prefix + urllib.parse.quote(path) + (f'?{query}' if query else '')


@jinja2.pass_context
def here(context: Context, /, **changes: Any) -> str:
    """Return the URL of the current view with some query parameters changed; an empty value removes a parameter."""
    return link(context, context['path'], **{**context['given'], **changes})


def json(view: View) -> bytes:
    """Write the data of a view as a JSON document. Sets become sorted lists."""
    return orjson.dumps(view.data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE, default=sorted)


# Filters of the templates ---------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with commas between thousands."""
    return f'{value:,}'


def amount(value: int, resource_class: str, round_down: bool = False) -> str:
    """Return an amount with its unit. If this is not the plain number, the title has the plain number."""
    return _titled(units.amount(resource_class, value, round_down), number(value))


def used_of(used: int, capacity: int, resource_class: str) -> str:
    """Return a usage and its capacity with their units; the title has the exact numbers."""
    shown = units.used_of_capacity(resource_class, used, capacity)
    return _titled(shown, f'{number(used)} of {number(capacity)}')


def _titled(shown: str, exact: str) -> str:
    if shown == exact:
        return shown
    return markupsafe.Markup('<span title="{}">{}</span>').format(exact, shown)


def level(share: float) -> str:
    """Return the CSS class of a bar."""
    return next(name for bound, name in _LEVELS if share >= bound)


def heat(share: float) -> str:
    """Return the CSS class of a cell of the heat map."""
    if share >= 1:
        return 'heat-full'
    return f'heat-{next(index for index, bound in enumerate(_HEAT) if share <= bound)}'


def width(share: float) -> float:
    """Return the length of a bar out of 100: at least 1.5 for a share above 0, so that it is visible."""
    return 0.0 if share <= 0 else round(max(min(share, 1.0) * 100, 1.5), 1)


def is_shown_trait(name: str) -> bool:
    """Return whether a trait is shown without expanding the list, because few hosts have it."""
    return name.startswith('CUSTOM_') or name in _SHOWN_TRAITS


#: The functions that are filters as they are.
_FILTERS_OF_UNITS = (units.percent, units.ago, units.moment, units.plural, units.size_text)

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader('placement.ops.page'),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(link=link, here=here)
for _filter in (amount, used_of, number, level, heat, width, *_FILTERS_OF_UNITS):
    _ENVIRONMENT.filters[_filter.__name__] = _filter
_ENVIRONMENT.tests['shown_trait'] = is_shown_trait
