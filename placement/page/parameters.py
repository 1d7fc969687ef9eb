"""The query parameters of the page."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from placement import exception
from placement.reports.tree_filter import InventoryState, TreeFilter
from placement.web import query, validation

#: Maximum number of characters of a query string.
_LONGEST = 20_000
#: The highest page number that is allowed.
_LAST_PAGE = 10**6


class BadInput(exception.PlacementError):
    """A URL has an invalid value. The message says which, and what is valid."""

    template = '{reason}'


class Missing(exception.NotFound):
    """A URL names something that does not exist."""

    template = '{reason}'


class Parameters:
    """The parameters of one request.

    :param query_string: the WSGI variable QUERY_STRING.
    :raises BadInput: it is not UTF-8, is too long, or has too many parameters.
    """

    def __init__(self, query_string: str) -> None:
        if len(query_string) > _LONGEST:
            raise BadInput(reason=f'The address is longer than the {_LONGEST} characters that this page reads.')
        try:
            pairs = urllib.parse.parse_qsl(query_string, errors='strict', max_num_fields=50)
        except ValueError as error:
            raise BadInput(reason='The address has too many parameters, or is not encoded in UTF-8.') from error
        #: The values by name; if a parameter is given several times, its last value.
        self.values: Mapping[str, str] = dict(pairs)

    def text(self, name: str) -> str:
        """Return the value of a parameter, stripped of whitespace; empty when it is not given."""
        return self.values.get(name, '').strip()

    @property
    def wants_json(self) -> bool:
        """Whether the response shall be JSON instead of HTML."""
        return self.choice('format', ('html', 'json')) == 'json'

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """Return the value of a parameter that must be one of ``known``; the first of these when it is not given.

        :raises BadInput: the value is not one of ``known``.
        """
        value = self.text(name) or known[0]
        if value not in known:
            raise BadInput(reason=f'“{name}” is one of {", ".join(known)}, not “{value}”.')
        return value

    def page(self, name: str = 'page') -> int:
        """Return the page number of a list, from 1.

        :raises BadInput: the value is not such a number.
        """
        value = self.text(name) or '1'
        if not (value.isascii() and value.isdigit() and len(value) < 8 and 1 <= int(value) <= _LAST_PAGE):
            raise BadInput(reason=f'“{name}” is a number from 1 to {_LAST_PAGE}, not “{value}”.')
        return int(value)

    def trees(self) -> TreeFilter:
        """Return the filter by ``aggregate`` (a uuid), ``class``, ``q`` (a name), ``state`` and ``lacking`` (a size).

        Also by ``trait`` and ``root_trait``, which are names separated by commas.

        :raises BadInput: the aggregate is not a uuid, or a value has another form.
        """
        aggregate = self.text('aggregate')
        if aggregate and not validation.is_uuid(aggregate):
            raise BadInput(reason=f'An aggregate is given by its uuid, which “{aggregate}” is not.')
        value = self.text('root_trait')
        try:
            roots = query.parse_traits(value) if value else query.TraitFilter()
        except query.BadQuery as error:
            raise BadInput(reason=f'Traits of the root have the form A,!B, not “{value}”.') from error
        state = self.choice('state', ('any', *(one.value for one in InventoryState)))
        return TreeFilter(
            aggregates=frozenset({validation.canonical_uuid(aggregate)} if aggregate else ()),
            traits=self.traits(),
            root_required=roots.required,
            root_forbidden=roots.forbidden,
            classes=frozenset(filter(None, (self.text('class'),))),
            name=self.text('q'),
            states=frozenset() if state == 'any' else frozenset({InventoryState(state)}),
            lacking=self.resources('lacking') or {},
        )

    def traits(self) -> frozenset[str]:
        """Return the names in ``trait``, which are separated by commas."""
        return frozenset(filter(None, (name.strip() for name in self.text('trait').split(','))))

    def resources(self, name: str = 'size') -> dict[str, int] | None:
        """Return the amounts by class in a parameter, such as ``VCPU:4,MEMORY_MB:8192``; None when it is not given.

        :raises BadInput: the value has another form.
        """
        value = self.text(name).replace(' ', '')
        if not value:
            return None
        try:
            return query.parse_resources(value)
        except query.BadQuery as error:
            raise BadInput(reason=f'A size has the form VCPU:4,MEMORY_MB:8192, not “{value}”.') from error
