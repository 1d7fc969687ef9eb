"""What a view of the page gets and returns: the sources of data, the query parameters, the content of a response."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import webob
from oslo_config import cfg

from placement import exception, uuid_spelling
from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.ops.background_query import BackgroundQuery
from placement.ops.display_names import DisplayNames
from placement.ops.reports.tree_filter import InventoryState, TreeFilter
from placement.search import parsing

if TYPE_CHECKING:
    # Importing the library takes time and reads PROMETHEUS_MULTIPROC_DIR; the page needs only the registry it gets.
    from prometheus_client import CollectorRegistry

#: Maximum number of characters of a query string.
_MAX_CHARACTERS = 20_000
#: Maximum number of parameters.
_MAX_PARAMETERS = 50
#: The highest page number that is allowed.
_MAX_PAGE = 10**6


@dataclass(frozen=True)
class Sources:
    """The configuration, the database and the other sources that the views read.

    ``check`` finds out whether the database responds. ``metrics`` are those of the service; None if not available.
    """

    conf: cfg.ConfigOpts
    db: Database
    provider_cache: ProviderCache
    check: TimedCheck
    metrics: CollectorRegistry | None = None
    #: The check of failing hosts, which runs in the background; None if there is none.
    plan: BackgroundQuery[dict[str, Any]] | None = None

    @functools.cached_property
    def names(self) -> DisplayNames:
        """The names of aggregates, projects and users."""
        return DisplayNames(self.conf.placement.names_file)

    @property
    def log(self) -> pathlib.Path | None:
        """The log file in the configuration of the service; None if it does not log to a file."""
        return pathlib.Path(self.conf.log_dir or '', self.conf.log_file) if self.conf.log_file else None


def is_read_only(sources: Sources) -> bool:
    """Return whether the database rejects changes, as far as this process or a process of the service has noticed."""
    noticed = sources.metrics and sources.metrics.get_sample_value('placement_database_read_only')
    return sources.db.availability.is_read_only or bool(noticed)


class Parameters:
    """The parameters of one request.

    :raises BadQuery: the query string is not UTF-8, is too long, or has too many parameters.
    """

    def __init__(self, request: webob.Request) -> None:
        if len(request.query_string) > _MAX_CHARACTERS:
            raise exception.BadQuery(
                f'The address is longer than the {_MAX_CHARACTERS} characters that this page reads.'
            )
        try:
            pairs = list(request.GET.items())
        except UnicodeDecodeError:
            pairs = None
        if pairs is None or len(pairs) > _MAX_PARAMETERS:
            raise exception.BadQuery('The address has too many parameters, or is not encoded in UTF-8.')
        #: The values by name, without empty values. If a parameter is repeated, its last value counts.
        self.values: Mapping[str, str] = {name: value for name, value in pairs if value}

    def text(self, name: str) -> str:
        """Return the value of a parameter without whitespace around it; empty if the parameter is not given."""
        return self.values.get(name, '').strip()

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the value of a parameter that must be one of ``choices``. The first choice is the default.

        :raises BadQuery: the value is not one of ``choices``.
        """
        value = self.text(name) or choices[0]
        if value not in choices:
            raise exception.BadQuery(f'“{name}” must be one of {", ".join(choices)}, not “{value}”.')
        return value

    def page(self, name: str = 'page') -> int:
        """Return the page number of a list; the first page is 1.

        :raises BadQuery: the value is not a page number.
        """
        value = self.text(name) or '1'
        if not (value.isascii() and value.isdigit() and len(value) < 8 and 1 <= int(value) <= _MAX_PAGE):
            raise exception.BadQuery(f'“{name}” must be a number from 1 to {_MAX_PAGE}, not “{value}”.')
        return int(value)

    def trees(self) -> TreeFilter:
        """Return the filter for trees.

        Its parameters are ``aggregate`` (a uuid), ``class``, ``q`` (a name), ``state``, ``lacking`` (a size), and
        ``trait`` and ``root_trait`` (names separated by commas).

        :raises BadQuery: the aggregate is not a uuid, or a value has another form.
        """
        aggregate = self.text('aggregate')
        if aggregate and not uuid_spelling.is_uuid(aggregate):
            raise exception.BadQuery(f'“aggregate” must be a uuid, not “{aggregate}”.')
        value = self.text('root_trait')
        try:
            required, forbidden = parsing.parse_traits(value) if value else (frozenset(), frozenset())
        except exception.BadQuery as error:
            raise exception.BadQuery(f'Traits of the root have the form A,!B, not “{value}”.') from error
        state = self.choice('state', ('any', *(choice.value for choice in InventoryState)))
        return TreeFilter(
            aggregates=frozenset({uuid_spelling.aggregate_uuid(aggregate)} if aggregate else ()),
            traits=frozenset(filter(None, (name.strip() for name in self.text('trait').split(',')))),
            root_required=required,
            root_forbidden=forbidden,
            classes=frozenset(filter(None, (self.text('class'),))),
            name=self.text('q'),
            states=frozenset() if state == 'any' else frozenset({InventoryState(state)}),
            lacking=self.resources('lacking') or {},
        )

    def resources(self, name: str = 'size') -> dict[str, int] | None:
        """Return the amounts by class in a parameter such as ``VCPU:4,MEMORY_MB:8192``; None if it is not given.

        :raises BadQuery: the value has another form.
        """
        value = self.text(name).replace(' ', '')
        if not value:
            return None
        try:
            return parsing.parse_resources(value)
        except exception.BadQuery as error:
            raise exception.BadQuery(f'A size has the form VCPU:4,MEMORY_MB:8192, not “{value}”.') from error


@dataclass(frozen=True)
class View:
    """The content of one response: ``data`` is the JSON document, ``extra`` is for the template only."""

    template: str
    title: str
    data: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Pagination:
    """One page of a list: its number, the entries per page and in total, and the query parameter for the number."""

    number: int
    size: int
    total: int
    name: str = 'page'

    @property
    def first(self) -> int:
        """The number of entries before this page."""
        return (self.number - 1) * self.size

    @property
    def last(self) -> int:
        """The number of entries up to the end of this page."""
        return min(self.first + self.size, self.total)

    @property
    def count(self) -> int:
        """The number of pages."""
        return max(math.ceil(self.total / self.size), 1)

    def data(self) -> dict[str, int]:
        """Return the members of the JSON document."""
        return {'page': self.number, 'pages': self.count, 'total': self.total}
