"""The query parameters of the page."""

from __future__ import annotations

from collections.abc import Mapping

import webob

from placement import exception, validation
from placement.ops.reports.tree_filter import InventoryState, TreeFilter
from placement.search import syntax

#: Maximum number of characters of a query string.
_MAX_CHARACTERS = 20_000
#: Maximum number of parameters.
_MAX_PARAMETERS = 50
#: The highest page number that is allowed.
_MAX_PAGE = 10**6


class BadInput(exception.PlacementError):
    """A value in a URL is invalid. The message names the value and says what is valid."""

    template = '{reason}'


class Missing(exception.NotFound):
    """A URL names something that does not exist."""

    template = '{reason}'


class Parameters:
    """The parameters of one request.

    :raises BadInput: the query string is not UTF-8, is too long, or has too many parameters.
    """

    def __init__(self, request: webob.Request) -> None:
        if len(request.query_string) > _MAX_CHARACTERS:
            raise BadInput(reason=f'The address is longer than the {_MAX_CHARACTERS} characters that this page reads.')
        try:
            pairs = list(request.GET.items())
        except UnicodeDecodeError:
            pairs = None
        if pairs is None or len(pairs) > _MAX_PARAMETERS:
            raise BadInput(reason='The address has too many parameters, or is not encoded in UTF-8.')
        #: The values by name, without empty values. If a parameter is repeated, its last value counts.
        self.values: Mapping[str, str] = {name: value for name, value in pairs if value}

    def text(self, name: str) -> str:
        """Return the value of a parameter without whitespace around it; empty if the parameter is not given."""
        return self.values.get(name, '').strip()

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the value of a parameter that must be one of ``choices``. The first choice is the default.

        :raises BadInput: the value is not one of ``choices``.
        """
        value = self.text(name) or choices[0]
        if value not in choices:
            raise BadInput(reason=f'“{name}” must be one of {", ".join(choices)}, not “{value}”.')
        return value

    def page(self, name: str = 'page') -> int:
        """Return the page number of a list; the first page is 1.

        :raises BadInput: the value is not a page number.
        """
        value = self.text(name) or '1'
        if not (value.isascii() and value.isdigit() and len(value) < 8 and 1 <= int(value) <= _MAX_PAGE):
            raise BadInput(reason=f'“{name}” must be a number from 1 to {_MAX_PAGE}, not “{value}”.')
        return int(value)

    def trees(self) -> TreeFilter:
        """Return the filter for trees.

        Its parameters are ``aggregate`` (a uuid), ``class``, ``q`` (a name), ``state``, ``lacking`` (a size), and
        ``trait`` and ``root_trait`` (names separated by commas).

        :raises BadInput: the aggregate is not a uuid, or a value has another form.
        """
        aggregate = self.text('aggregate')
        if aggregate and not validation.is_uuid(aggregate):
            raise BadInput(reason=f'“aggregate” must be a uuid, not “{aggregate}”.')
        value = self.text('root_trait')
        try:
            roots = syntax.parse_traits(value) if value else syntax.TraitFilter()
        except exception.BadQuery as error:
            raise BadInput(reason=f'Traits of the root have the form A,!B, not “{value}”.') from error
        state = self.choice('state', ('any', *(choice.value for choice in InventoryState)))
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
        """Return the amounts by class in a parameter such as ``VCPU:4,MEMORY_MB:8192``; None if it is not given.

        :raises BadInput: the value has another form.
        """
        value = self.text(name).replace(' ', '')
        if not value:
            return None
        try:
            return syntax.parse_resources(value)
        except exception.BadQuery as error:
            raise BadInput(reason=f'A size has the form VCPU:4,MEMORY_MB:8192, not “{value}”.') from error
