"""Writes a view as HTML, with the templates in ``templates/``, or as JSON."""

from __future__ import annotations

import collections
import math
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jinja2
import markupsafe
import orjson
import os_traits

from placement import units

#: The CSS class of a bar from each share of the capacity on.
_LEVELS = ((1.0, 'full'), (0.8, 'high'), (0.0, 'fine'))
#: Upper bounds of the shares for the colours of the heat map.
_HEAT = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
#: Traits that affect placement on a provider, and are shown before others.
_SHOWN_TRAITS = (os_traits.COMPUTE_STATUS_DISABLED, os_traits.MISC_SHARES_VIA_AGGREGATE)


@dataclass(frozen=True)
class View:
    """The content of one response: ``data`` is the JSON document, ``extra`` is for the template only."""

    template: str
    title: str
    data: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Pages:
    """One page of a list: its number, entries per page, entries in all, and the query parameter for the number."""

    number: int
    size: int
    total: int
    name: str = 'page'

    @property
    def first(self) -> int:
        """How many entries come before this page."""
        return (self.number - 1) * self.size

    @property
    def last(self) -> int:
        """How many entries there are up to the end of this page."""
        return min(self.first + self.size, self.total)

    @property
    def count(self) -> int:
        """How many pages there are."""
        return max(math.ceil(self.total / self.size), 1)

    def data(self) -> dict[str, int]:
        """Return the members of the JSON document."""
        return {'page': self.number, 'pages': self.count, 'total': self.total}


class Renderer:
    """Writes the views of one request.

    :param prefix: the mount prefix of the page.
    :param path: the path of the view, below the prefix.
    :param values: the query parameters of the request, which links to the same view keep.
    """

    def __init__(self, prefix: str, path: str, values: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._path = path
        self._values = values

    def html(self, view: View) -> bytes:
        """Return the view as an HTML document."""
        template = _ENVIRONMENT.get_template(view.template)
        here = {
            'link': self._link,
            'here': self._here,
            'path': self._path,
            'given': collections.defaultdict(str, self._values),
        }
        return template.render({**view.data, **view.extra, **here, 'title': view.title}).encode()

    def json(self, view: View) -> bytes:
        """Return the data of the view as a JSON document."""
        return orjson.dumps(view.data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE, default=_as_json)

    def _link(self, path: str, **values: Any) -> str:
        """Return the URL of another view."""
        quoted = urllib.parse.quote(path)
        return self._prefix + quoted + _query(values)

    def _here(self, **values: Any) -> str:
        """Return the URL of this view with some query parameters changed; an empty value removes a parameter."""
        return self._link(self._path, **{**self._values, **values})


def _query(values: Mapping[str, Any]) -> str:
    given = {name: value for name, value in values.items() if value not in ('', None)}
    return f'?{urllib.parse.urlencode(given)}' if given else ''


def _as_json(value: Any) -> Any:
    """Convert a value of a type that orjson does not support."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(type(value).__name__)


# Filters of the templates ---------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with commas between thousands."""
    return f'{value:,}'


def amount(value: int, resource_class: str, round_down: bool = False) -> str:
    """Return an amount with its unit, and, where that is not the number itself, with the number as the title."""
    return _titled(units.amount(resource_class, value, round_down), number(value))


def used_of(filling: Any, resource_class: str) -> str:
    """Return the ``used`` and ``capacity`` of an object with their units, and with the numbers as the title."""
    shown = units.used_of_capacity(resource_class, filling.used, filling.capacity)
    return _titled(shown, f'{number(filling.used)} of {number(filling.capacity)}')


def _titled(shown: str, exact: str) -> str:
    if shown == exact:
        return shown
    return markupsafe.Markup('<span title="{}">{}</span>').format(exact, shown)


def percent(filling: Any) -> str:
    """Return the used share of an object with ``used`` and ``capacity`` as a percentage, rounded down."""
    return units.percent(filling.used, filling.capacity)


def level(share: float) -> str:
    """Return the CSS class of a bar."""
    return next(name for bound, name in _LEVELS if share >= bound)


def heat(share: float) -> str:
    """Return the CSS class of a cell of the heat map."""
    if share >= 1:
        return 'heat-full'
    return f'heat-{next(at for at, bound in enumerate(_HEAT) if share <= bound)}'


def width(share: float) -> float:
    """Return the length of a bar out of 100; at least 1.5 for a share above 0, so that it can be seen."""
    return 0.0 if share <= 0 else round(max(min(share, 1.0) * 100, 1.5), 1)


def size_text(resources: Mapping[str, int]) -> str:
    """Amounts by class as query parameters have them, such as ``VCPU:4,MEMORY_MB:8192``."""
    return ','.join(f'{name}:{value}' for name, value in resources.items())


def ago(seconds: float) -> str:
    """Return a time span in the largest unit that fits, such as ``3 minutes ago``."""
    whole = max(int(seconds), 0)
    for size, unit in ((86400, 'day'), (3600, 'hour'), (60, 'minute')):
        if whole >= size:
            many = whole // size
            return f'{many} {unit}{"s" if many > 1 else ""} ago'
    return f'{whole} s ago' if whole else 'just now'


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a number with a noun, in the singular or the plural."""
    return f'{number(count)} {one if count == 1 else many or one + "s"}'


def is_shown_trait(name: str) -> bool:
    """Return whether a trait is shown without expanding: it says something that most hosts do not have in common."""
    return name.startswith('CUSTOM_') or name in _SHOWN_TRAITS


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader('placement.page'),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(
    amount=amount,
    used_of=used_of,
    number=number,
    percent=percent,
    level=level,
    heat=heat,
    width=width,
    ago=ago,
    plural=plural,
    size_text=size_text,
)
_ENVIRONMENT.tests['shown_trait'] = is_shown_trait
