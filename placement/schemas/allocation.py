"""Schemas of /allocations and /allocations/{consumer_uuid}."""

from __future__ import annotations

from placement.schemas import (
    CONSUMER_TYPE_PATTERN,
    EXTERNAL_ID,
    GENERATION,
    RESOURCE_CLASS_PATTERN,
    UUID,
    UUID_KEY_PATTERN,
    Schema,
    Windows,
    by_uuid,
    object_of,
)

_RESOURCES: Schema = {
    'type': 'object',
    'minProperties': 1,
    'patternProperties': {RESOURCE_CLASS_PATTERN: {'type': 'integer', 'minimum': 1}},
    'additionalProperties': False,
}

_OWNER: Schema = {'project_id': EXTERNAL_ID, 'user_id': EXTERNAL_ID}

_CONSUMER_GENERATION: Schema = {'type': ['integer', 'null']}

_PROVIDER: Schema = object_of({'uuid': UUID})

_LIST_FORM: Schema = {
    'type': 'array',
    'minItems': 1,
    'items': object_of({'resource_provider': _PROVIDER, 'resources': _RESOURCES}),
}

_EMPTYABLE_OBJECT_FORM: Schema = {
    'type': 'object',
    'patternProperties': {
        # The service ignores the generation. It is allowed so that clients can send the body of a GET back.
        UUID_KEY_PATTERN: object_of({'generation': GENERATION, 'resources': _RESOURCES}, required=['resources']),
    },
    'additionalProperties': False,
}

_OBJECT_FORM: Schema = {**_EMPTYABLE_OBJECT_FORM, 'minProperties': 1}

PUT_1_0: Schema = object_of({'allocations': _LIST_FORM})

PUT_1_8: Schema = object_of({'allocations': _LIST_FORM, **_OWNER})

PUT_1_12: Schema = {**PUT_1_8, 'properties': {'allocations': _OBJECT_FORM, **_OWNER}}

PUT_1_28: Schema = object_of(
    {'allocations': _EMPTYABLE_OBJECT_FORM, **_OWNER, 'consumer_generation': _CONSUMER_GENERATION}
)

# The request groups that the providers of a candidate serve. The service ignores them. They are allowed so that clients
# can send an element of ``allocation_requests`` unchanged.
_MAPPINGS: Schema = {
    'type': 'object',
    'minProperties': 1,
    'additionalProperties': {'type': 'array', 'minItems': 1, 'items': UUID},
}

PUT_1_34: Schema = {**PUT_1_28, 'properties': {**PUT_1_28['properties'], 'mappings': _MAPPINGS}}

# The pattern excludes the empty text.
_CONSUMER_TYPE: Schema = {'type': 'string', 'maxLength': 255, 'pattern': CONSUMER_TYPE_PATTERN}

PUT_1_38: Schema = {
    **PUT_1_34,
    'properties': {**PUT_1_34['properties'], 'consumer_type': _CONSUMER_TYPE},
    'required': [*PUT_1_34['required'], 'consumer_type'],
}

#: The body of PUT, and the part of POST for each consumer. The two differ below 1.28.
CONSUMER: Windows = (((1, 38), PUT_1_38), ((1, 34), PUT_1_34), ((1, 28), PUT_1_28))

PUT: Windows = (*CONSUMER, ((1, 12), PUT_1_12), ((1, 8), PUT_1_8), ((1, 0), PUT_1_0))


# Unlike PUT, POST may remove all allocations of a consumer at every microversion.
POST_1_13: Schema = by_uuid({**PUT_1_12, 'properties': {'allocations': _EMPTYABLE_OBJECT_FORM, **_OWNER}})

POST: Windows = (*((since, by_uuid(entry)) for since, entry in CONSUMER), ((1, 13), POST_1_13))
