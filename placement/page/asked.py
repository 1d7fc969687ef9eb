"""What is asked of the page: the parameters of its addresses."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from placement import exception
from placement.reports.capacity import Scope
from placement.web import query, validation

#: Longest value that is looked at.
_LONGEST = 20_000
#: The last page that can be asked for.
_LAST_PAGE = 10**6


class BadInput(exception.PlacementError):
    """An address has a value that makes no sense. The message says which, and what would."""

    template = '{reason}'


class Missing(exception.NotFound):
    """What an address names is not there."""

    template = '{reason}'


class Asked:
    """The parameters of one request.

    :param query_string: as it arrived.
    :raises BadInput: it is no UTF-8, or too long.
    """

    def __init__(self, query_string: str) -> None:
        if len(query_string) > _LONGEST:
            raise BadInput(reason=f'The address is longer than the {_LONGEST} characters that this page reads.')
        try:
            pairs = urllib.parse.parse_qsl(query_string, errors='strict', max_num_fields=50)
        except ValueError as error:
            raise BadInput(reason='The address has too many parameters, or is not encoded in UTF-8.') from error
        #: By name; of a parameter that comes twice the last value.
        self.values: Mapping[str, str] = dict(pairs)

    def text(self, name: str) -> str:
        """The value of a parameter without blanks around it, empty when it is not given."""
        return self.values.get(name, '').strip()

    @property
    def wants_json(self) -> bool:
        """Whether the answer is to be JSON instead of HTML."""
        wanted = self.choice('format', ('html', 'json'))
        return wanted == 'json'

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """One of ``known``, the first when nothing is said."""
        value = self.text(name) or known[0]
        if value not in known:
            raise BadInput(reason=f'“{name}” is one of {", ".join(known)}, not “{value}”.')
        return value

    def page(self, name: str = 'page') -> int:
        """The number of a page of a long list, from 1."""
        value = self.text(name) or '1'
        if not (value.isascii() and value.isdigit() and len(value) < 8 and 1 <= int(value) <= _LAST_PAGE):
            raise BadInput(reason=f'“{name}” is a number from 1 to {_LAST_PAGE}, not “{value}”.')
        return int(value)

    def scope(self) -> Scope:
        """The trees that ``aggregate`` and ``trait`` (names with commas in between) are about."""
        aggregate = self.text('aggregate')
        if aggregate and not validation.is_uuid(aggregate):
            raise BadInput(reason=f'An aggregate is given by its uuid, which “{aggregate}” is not.')
        return Scope(validation.canonical_uuid(aggregate) if aggregate else None, self.traits())

    def traits(self) -> frozenset[str]:
        """The names in ``trait``."""
        return frozenset(filter(None, (name.strip() for name in self.text('trait').split(','))))

    def resources(self) -> dict[str, int] | None:
        """The amounts by class in ``size``; None when it is not given."""
        value = self.text('size').replace(' ', '')
        if not value:
            return None
        try:
            return query.parse_resources(value)
        except query.BadQuery as error:
            raise BadInput(reason=f'A size has the form VCPU:4,MEMORY_MB:8192, not “{value}”.') from error
