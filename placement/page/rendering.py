"""Writes a view as HTML, with the templates in ``templates/``, or as JSON."""

from __future__ import annotations

import collections
import math
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jinja2
import orjson

#: The CSS class of a bar from each share of the capacity on.
_LEVELS = ((1.0, 'full'), (0.8, 'high'), (0.0, 'fine'))
#: Upper bounds of the shares for the colours of the heat map.
_HEAT = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class View:
    """The content of one response: ``data`` is the JSON document, ``extra`` is for the template only."""

    template: str
    title: str
    data: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)


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
        """The members of the JSON document."""
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
        """The URL of another view."""
        quoted = urllib.parse.quote(path)
        return self._prefix + quoted + _query(values)

    def _here(self, **values: Any) -> str:
        """The URL of this view with some query parameters changed; an empty value removes a parameter."""
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
    """A number with commas between thousands."""
    return f'{value:,}'


def percent(share: float) -> str:
    """A share as a percentage, rounded down; a share below 1% but not 0 is shown as ``<1%``."""
    if 0 < share < 0.01:
        return '<1%'
    return f'{min(math.floor(share * 100 + 1e-9), 9999)}%'


def level(share: float) -> str:
    """The CSS class of a bar."""
    return next(name for bound, name in _LEVELS if share >= bound)


def heat(share: float) -> str:
    """The CSS class of a cell of the heat map."""
    if share >= 1:
        return 'heat-full'
    return f'heat-{next(at for at, bound in enumerate(_HEAT) if share <= bound)}'


def width(share: float) -> float:
    """The length of a bar out of 100; at least 1.5 for a share above 0, so that it can be seen."""
    return 0.0 if share <= 0 else round(max(min(share, 1.0) * 100, 1.5), 1)


def ago(seconds: float) -> str:
    """A time span in the largest unit that fits, such as ``3 minutes ago``."""
    whole = max(int(seconds), 0)
    for size, unit in ((86400, 'day'), (3600, 'hour'), (60, 'minute')):
        if whole >= size:
            many = whole // size
            return f'{many} {unit}{"s" if many > 1 else ""} ago'
    return f'{whole} s ago' if whole else 'just now'


def plural(count: int, one: str, many: str | None = None) -> str:
    """A number with a noun, in the singular or the plural."""
    return f'{number(count)} {one if count == 1 else many or one + "s"}'


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader('placement.page'),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(number=number, percent=percent, level=level, heat=heat, width=width, ago=ago, plural=plural)
