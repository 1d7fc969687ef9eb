"""Schemas of request bodies and query strings, but for GET /allocation_candidates (``allocation_candidate``)."""

from __future__ import annotations

import sys

from placement import capacity
from placement.schemas import (
    CONSUMER_TYPE_PATTERN,
    CUSTOM_NAME,
    DOCUMENTED,
    DOCUMENTED_KEYS,
    EXTERNAL_ID,
    GENERATION,
    MEMBER_OF,
    REQUIRED,
    RESOURCE_CLASS_PATTERN,
    RESOURCES,
    TEXT,
    UUID,
    UUID_KEY_PATTERN,
    UUID_OR_NULL,
    Schema,
    Windows,
    by_uuid,
    object_of,
    with_members,
)

# Resource classes and traits -----------------------------------------------------------------------------------

#: The body of POST, and of PUT from 1.2 to 1.6. From 1.7 on, it validates the name in the path of PUT.
CUSTOM_CLASS: Schema = object_of({'name': CUSTOM_NAME})

PUT_TRAITS: Schema = object_of(
    {
        'traits': {'type': 'array', 'items': {'type': 'string', 'minLength': 1, 'maxLength': 255}},
        'resource_provider_generation': GENERATION,
    }
)

GET_TRAITS: Schema = object_of(
    {
        'name': {'type': 'string', DOCUMENTED: {'pattern': '^(startswith|in):'}},
        'associated': {'type': 'string', DOCUMENTED: {'enum': ['true', 'false']}},
    },
    required=[],
)

# Resource providers --------------------------------------------------------------------------------------------

# An empty name passes: the handler rejects it with another text.
_PROVIDER: Schema = object_of(
    {'name': {'type': 'string', 'maxLength': 200, DOCUMENTED: {'minLength': 1}}, 'uuid': UUID}, required=['name']
)
_NEW_NAME: Schema = object_of({'name': {'type': 'string', 'minLength': 1, 'maxLength': 200}})
_FILTERS: Schema = object_of({'name': TEXT, 'uuid': UUID}, required=[])

POST_PROVIDER = with_members((1, 0), _PROVIDER, ((1, 14), {'parent_provider_uuid': UUID_OR_NULL}))
PUT_PROVIDER = with_members((1, 0), _NEW_NAME, ((1, 14), {'parent_provider_uuid': UUID_OR_NULL}))
GET_PROVIDERS = with_members(
    (1, 0),
    _FILTERS,
    ((1, 3), {'member_of': MEMBER_OF}),
    ((1, 4), {'resources': RESOURCES}),
    ((1, 14), {'in_tree': UUID}),
    ((1, 18), {'required': REQUIRED}),
)

# Aggregates ----------------------------------------------------------------------------------------------------

_AGGREGATES: Schema = {'type': 'array', 'items': UUID, 'uniqueItems': True}

_AGGREGATES_1_19: Schema = object_of({'aggregates': _AGGREGATES, 'resource_provider_generation': GENERATION})

PUT_AGGREGATES: Windows = (((1, 19), _AGGREGATES_1_19), ((1, 1), _AGGREGATES))

# Inventories ---------------------------------------------------------------------------------------------------

MAX_RATIO = 3.40282e38


def _integer(field: str) -> Schema:
    return {'type': 'integer', 'minimum': capacity.MINIMUMS[field], 'maximum': capacity.MAX_INT32}


# A negative ratio passes, because the handler rejects it after the check of the generation. The schema rejects only
# ratios above ``MAX_RATIO``, and integers below the range of a double.
_RECORD: Schema = {
    'total': _integer('total'),
    'reserved': _integer('reserved'),
    'min_unit': _integer('min_unit'),
    'max_unit': _integer('max_unit'),
    'step_size': _integer('step_size'),
    'allocation_ratio': {
        'type': 'number',
        'minimum': -sys.float_info.max,
        'maximum': MAX_RATIO,
        DOCUMENTED: {'minimum': capacity.MINIMUMS['allocation_ratio']},
    },
    'resource_provider_generation': GENERATION,
}

_INVENTORY: Schema = object_of(_RECORD, required=['total'])

POST_INVENTORY: Schema = object_of(
    {'resource_class': {'type': 'string', 'pattern': RESOURCE_CLASS_PATTERN}, **_RECORD},
    required=['resource_class', 'total'],
)

PUT_INVENTORY: Schema = object_of(_RECORD, required=['resource_provider_generation', 'total'])

# Keys have no pattern: a key that cannot be the name of a class gets the error of an unknown class
# (api-ref/inventories.md, api-ref/reshaper.md#post-reshaper).
PUT_INVENTORIES: Schema = object_of(
    {
        'resource_provider_generation': GENERATION,
        'inventories': {
            'type': 'object',
            'additionalProperties': _INVENTORY,
            DOCUMENTED_KEYS: {'type': 'string', 'pattern': RESOURCE_CLASS_PATTERN},
        },
    }
)

# Allocations ---------------------------------------------------------------------------------------------------

_RESOURCES: Schema = {
    'type': 'object',
    'minProperties': 1,
    'patternProperties': {RESOURCE_CLASS_PATTERN: {'type': 'integer', 'minimum': 1}},
    'additionalProperties': False,
}

_OWNER: Schema = {'project_id': EXTERNAL_ID, 'user_id': EXTERNAL_ID}

_CONSUMER_GENERATION: Schema = {'type': ['integer', 'null']}

_PROVIDER_UUID: Schema = object_of({'uuid': UUID})

_LIST_FORM: Schema = {
    'type': 'array',
    'minItems': 1,
    'items': object_of({'resource_provider': _PROVIDER_UUID, 'resources': _RESOURCES}),
}

_EMPTYABLE_OBJECT_FORM: Schema = {
    'type': 'object',
    'patternProperties': {
        # The service ignores the generation. It is allowed so that clients can send the body of a GET back.
        UUID_KEY_PATTERN: object_of({'generation': GENERATION, 'resources': _RESOURCES}, required=['resources']),
    },
    'additionalProperties': False,
    DOCUMENTED_KEYS: {'type': 'string', 'format': 'uuid'},
}

_OBJECT_FORM: Schema = {**_EMPTYABLE_OBJECT_FORM, 'minProperties': 1}

_CONSUMER_1_0: Schema = object_of({'allocations': _LIST_FORM})

_CONSUMER_1_8: Schema = object_of({'allocations': _LIST_FORM, **_OWNER})

_CONSUMER_1_12: Schema = {**_CONSUMER_1_8, 'properties': {'allocations': _OBJECT_FORM, **_OWNER}}

_CONSUMER_1_28: Schema = object_of(
    {'allocations': _EMPTYABLE_OBJECT_FORM, **_OWNER, 'consumer_generation': _CONSUMER_GENERATION}
)

# The request groups that the providers of a candidate serve. The service ignores them. They are allowed so that clients
# can send an element of ``allocation_requests`` unchanged.
_MAPPINGS: Schema = {
    'type': 'object',
    'minProperties': 1,
    'additionalProperties': {'type': 'array', 'minItems': 1, 'items': UUID},
}

# The pattern excludes the empty text.
_CONSUMER_TYPE: Schema = {'type': 'string', 'maxLength': 255, 'pattern': CONSUMER_TYPE_PATTERN}

#: The body of PUT, and the part of POST for each consumer. The two differ below 1.28.
_CONSUMER: Windows = with_members(
    (1, 28),
    _CONSUMER_1_28,
    ((1, 34), {'mappings': _MAPPINGS}),
    ((1, 38), {'consumer_type': _CONSUMER_TYPE}),
    required=['consumer_type'],
)

PUT_ALLOCATIONS: Windows = (*_CONSUMER, ((1, 12), _CONSUMER_1_12), ((1, 8), _CONSUMER_1_8), ((1, 0), _CONSUMER_1_0))

# Unlike PUT, POST may remove all allocations of a consumer at every microversion.
_CONSUMER_1_13: Schema = {**_CONSUMER_1_12, 'properties': {'allocations': _EMPTYABLE_OBJECT_FORM, **_OWNER}}

POST_ALLOCATIONS: Windows = tuple(
    (since, by_uuid(consumer)) for since, consumer in (*_CONSUMER, ((1, 13), _CONSUMER_1_13))
)

# Reshaper ------------------------------------------------------------------------------------------------------

#: A consumer is described as in POST /allocations at the same microversion.
POST_RESHAPER: Windows = tuple(
    (
        max(since, (1, 30)),
        object_of({'inventories': by_uuid(PUT_INVENTORIES), 'allocations': by_uuid(consumer, minimum=0)}),
    )
    for since, consumer in _CONSUMER
)

# Usages --------------------------------------------------------------------------------------------------------

_USAGES: Schema = {
    'type': 'object',
    # Keywords are checked in this order, which is also the order of the table in api-ref/usages.md.
    'required': ['project_id'],
    'properties': {'project_id': EXTERNAL_ID, 'user_id': EXTERNAL_ID},
    'additionalProperties': False,
}

# The name of a type, ``all`` for all consumers, or ``unknown`` for consumers without a type.
_CONSUMER_TYPES: Schema = {
    'type': 'string',
    'maxLength': 255,
    'pattern': rf'{CONSUMER_TYPE_PATTERN}|^all\Z|^unknown\Z',
}

GET_USAGES = with_members((1, 9), _USAGES, ((1, 38), {'consumer_type': _CONSUMER_TYPES}))
