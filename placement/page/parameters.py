"""The query parameters of the page."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from placement import exception
from placement.reports.capacity import Scope
from placement.web import query, validation

#: Most characters of a query string.
_LONGEST = 20_000
#: The highest page number that is allowed.
_LAST_PAGE = 10**6


class BadInput(exception.PlacementError):
    """A URL has an invalid value. The message says which, and what is valid."""

    template = '{reason}'


class Missing(exception.NotFound):
    """What a URL names does not exist."""

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
        """The value of a parameter, stripped of whitespace; empty when it is not given."""
        return self.values.get(name, '').strip()

    @property
    def wants_json(self) -> bool:
        """Whether the response shall be JSON instead of HTML."""
        return self.choice('format', ('html', 'json')) == 'json'

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """The value of a parameter that must be one of ``known``; the first of these when it is not given.

        :raises BadInput: the value is not one of ``known``.
        """
        value = self.text(name) or known[0]
        if value not in known:
            raise BadInput(reason=f'“{name}” is one of {", ".join(known)}, not “{value}”.')
        return value

    def page(self, name: str = 'page') -> int:
        """The page number of a list, from 1.

        :raises BadInput: the value is not such a number.
        """
        value = self.text(name) or '1'
        if not (value.isascii() and value.isdigit() and len(value) < 8 and 1 <= int(value) <= _LAST_PAGE):
            raise BadInput(reason=f'“{name}” is a number from 1 to {_LAST_PAGE}, not “{value}”.')
        return int(value)

    def scope(self) -> Scope:
        """The trees to include, by ``aggregate`` (a uuid), ``trait`` and ``root_trait`` (names separated by commas).

        :raises BadInput: the aggregate is not a uuid, or ``root_trait`` has an empty name.
        """
        aggregate = self.text('aggregate')
        if aggregate and not validation.is_uuid(aggregate):
            raise BadInput(reason=f'An aggregate is given by its uuid, which “{aggregate}” is not.')
        value = self.text('root_trait')
        try:
            roots = query.parse_traits(value) if value else query.TraitFilter()
        except query.BadQuery as error:
            raise BadInput(reason=f'Traits of the root have the form A,!B, not “{value}”.') from error
        uuid = validation.canonical_uuid(aggregate) if aggregate else None
        return Scope(uuid, self.traits(), roots.required, roots.forbidden)

    def traits(self) -> frozenset[str]:
        """The names in ``trait``, which are separated by commas."""
        return frozenset(filter(None, (name.strip() for name in self.text('trait').split(','))))

    def resources(self) -> dict[str, int] | None:
        """The amounts by class in ``size``, such as ``VCPU:4,MEMORY_MB:8192``; None when it is not given.

        :raises BadInput: the value has another form.
        """
        value = self.text('size').replace(' ', '')
        if not value:
            return None
        try:
            return query.parse_resources(value)
        except query.BadQuery as error:
            raise BadInput(reason=f'A size has the form VCPU:4,MEMORY_MB:8192, not “{value}”.') from error
