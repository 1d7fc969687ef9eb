"""JSON Schemas of request bodies and query strings, of responses, and their common parts.

Each schema is a constant for one window (range) of microversions. If there are several windows, they are a ``Windows``
table, newest first, and ``validation.for_version`` chooses from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]
#: A microversion as two numbers.
Version = tuple[int, int]
Windows = tuple[tuple[Version, Schema], ...]

# Patterns end in \Z because $ would let a trailing newline pass.
CUSTOM_NAME_PATTERN = r'^CUSTOM_[A-Z0-9_]+\Z'
RESOURCE_CLASS_PATTERN = r'^[A-Z0-9_]+\Z'
CONSUMER_TYPE_PATTERN = r'^[A-Z0-9_]+\Z'
#: A key with the characters and the length of a uuid. Handlers check whether it is a uuid.
UUID_KEY_PATTERN = r'^[0-9a-fA-F-]{36}\Z'

#: A keyword of our schemas: keywords that only the OpenAPI document has, because a handler checks them and words the
#: error. They add to the schema's own or replace them, and are a ``Windows`` table if they depend on the microversion.
#: Validators ignore it.
DOCUMENTED = 'x-documented'
#: The same for the keys of an object: their schema in the document. (``propertyNames`` would not be compiled, also not
#: inside ``DOCUMENTED``: see ``placement.validation``.)
DOCUMENTED_KEYS = 'x-documented-keys'

TEXT: Schema = {'type': 'string'}
#: A parameter with a syntax of its own, which ``placement.search.parsing`` parses.
SYNTAX: Schema = {'type': 'string', DOCUMENTED: {'minLength': 1}}


def all_values(value: Schema) -> Schema:
    """Return what the document says of a parameter that may be repeated, if all its values count: an array of them."""
    return {'type': 'array', 'items': value, 'minItems': 1}


def _matching(pattern: str) -> Schema:
    return {'type': 'string', 'minLength': 1, 'pattern': f'^({pattern})$'}


def _list_of(item: str) -> str:
    return f'{item}(,{item})*'


# The patterns match nothing that ``placement.search.parsing`` rejects. They leave out what clients should not send,
# although it is accepted: repeated exclamation marks, white space other than blanks, uuids with braces or as a URN; and
# names that nothing has, such as those with ``in:`` in them below 1.30.
_UUID_TEXT = '[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){4}[0-9a-fA-F]{8}'
_MEMBERS = f'{_UUID_TEXT}|in:{_list_of(_UUID_TEXT)}'
_TRAITS, _SIGNED_TRAITS = _list_of(' *[A-Z0-9_]+ *'), _list_of(' *!?[A-Z0-9_]+ *')

#: The parameters with which both searches and lists of providers choose providers.
RESOURCES: Schema = {**TEXT, DOCUMENTED: _matching(_list_of(r'[A-Z0-9_]+: *\+?0*[1-9][0-9]* *'))}
REQUIRED: Schema = {
    **TEXT,
    DOCUMENTED: (
        ((1, 39), all_values(_matching(f'{_SIGNED_TRAITS}|in:{_TRAITS}'))),
        ((1, 22), _matching(_SIGNED_TRAITS)),
        ((1, 0), _matching(_TRAITS)),
    ),
}
MEMBER_OF: Schema = {
    **TEXT,
    DOCUMENTED: (
        ((1, 32), all_values(_matching(f'!?({_MEMBERS})'))),
        ((1, 24), all_values(_matching(_MEMBERS))),
        ((1, 0), _matching(_MEMBERS)),
    ),
}
#: Only of searches.
ROOT_REQUIRED: Schema = {**TEXT, DOCUMENTED: _matching(_SIGNED_TRAITS)}
UUID: Schema = {'type': 'string', 'format': 'uuid'}
UUID_OR_NULL: Schema = {'type': ['string', 'null'], 'format': 'uuid'}
GENERATION: Schema = {'type': 'integer'}
CUSTOM_NAME: Schema = {'type': 'string', 'maxLength': 255, 'pattern': CUSTOM_NAME_PATTERN}
EXTERNAL_ID: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255}


def object_of(members: dict[str, Schema], required: Sequence[str] | None = None) -> Schema:
    """Return the schema of an object with these members and no others.

    :param required: the members that it must have; by default all.
    """
    # The order of the keywords is the order in which a value is checked.
    schema: Schema = {'type': 'object', 'properties': members}
    if required is None or required:
        schema['required'] = list(members if required is None else required)
    return {**schema, 'additionalProperties': False}


def by_uuid(value: Schema, minimum: int = 1) -> Schema:
    """Return the schema of an object from uuid to ``value``, with at least ``minimum`` members."""
    return {
        'type': 'object',
        'minProperties': minimum,
        'patternProperties': {UUID_KEY_PATTERN: value},
        'additionalProperties': False,
        DOCUMENTED_KEYS: {'type': 'string', 'format': 'uuid'},
    }


def with_members(
    since: Version, schema: Schema, *added: tuple[Version, dict[str, Schema]], required: Sequence[str] = ()
) -> Windows:
    """Return the windows of a schema to which microversions add members.

    :param since: the first microversion.
    :param added: pairs of a microversion and the members that it adds, oldest first.
    :param required: which of these members are required from that microversion on; the others are optional. The schema
        must have required members already.
    """
    windows: Windows = ((since, schema),)
    for version, members in added:
        schema = {**schema, 'properties': {**schema['properties'], **members}}
        if newly_required := [name for name in members if name in required]:
            schema['required'] = [*schema['required'], *newly_required]
        windows = ((version, schema), *windows)
    return windows
