"""Schemas of /allocations and /allocations/{consumer_uuid}."""

from __future__ import annotations

from placement.schemas import Schema, Windows, common

_RESOURCES: Schema = {
    'type': 'object',
    'minProperties': 1,
    'patternProperties': {common.RESOURCE_CLASS_PATTERN: {'type': 'integer', 'minimum': 1}},
    'additionalProperties': False,
}

_OWNER: Schema = {'project_id': common.EXTERNAL_ID, 'user_id': common.EXTERNAL_ID}

_CONSUMER_GENERATION: Schema = {'type': ['integer', 'null']}

_PROVIDER: Schema = {
    'type': 'object',
    'properties': {'uuid': common.UUID},
    'required': ['uuid'],
    'additionalProperties': False,
}

_LIST_FORM: Schema = {
    'type': 'array',
    'minItems': 1,
    'items': {
        'type': 'object',
        'properties': {'resource_provider': _PROVIDER, 'resources': _RESOURCES},
        'required': ['resource_provider', 'resources'],
        'additionalProperties': False,
    },
}

_EMPTYABLE_OBJECT_FORM: Schema = {
    'type': 'object',
    'patternProperties': {
        common.UUID_KEY_PATTERN: {
            'type': 'object',
            # The service ignores the generation. It is allowed so that clients can send the body of a GET back.
            'properties': {'generation': common.GENERATION, 'resources': _RESOURCES},
            'required': ['resources'],
            'additionalProperties': False,
        },
    },
    'additionalProperties': False,
}

_OBJECT_FORM: Schema = {**_EMPTYABLE_OBJECT_FORM, 'minProperties': 1}

PUT_1_0: Schema = {
    'type': 'object',
    'properties': {'allocations': _LIST_FORM},
    'required': ['allocations'],
    'additionalProperties': False,
}

PUT_1_8: Schema = {
    'type': 'object',
    'properties': {'allocations': _LIST_FORM, **_OWNER},
    'required': ['allocations', 'project_id', 'user_id'],
    'additionalProperties': False,
}

PUT_1_12: Schema = {**PUT_1_8, 'properties': {'allocations': _OBJECT_FORM, **_OWNER}}

PUT_1_28: Schema = {
    'type': 'object',
    'properties': {'allocations': _EMPTYABLE_OBJECT_FORM, **_OWNER, 'consumer_generation': _CONSUMER_GENERATION},
    'required': ['allocations', 'project_id', 'user_id', 'consumer_generation'],
    'additionalProperties': False,
}

# The request groups that the providers of a candidate serve. The service ignores them. They are allowed so that clients
# can send an element of ``allocation_requests`` unchanged.
_MAPPINGS: Schema = {
    'type': 'object',
    'minProperties': 1,
    'additionalProperties': {'type': 'array', 'minItems': 1, 'items': common.UUID},
}

PUT_1_34: Schema = {**PUT_1_28, 'properties': {**PUT_1_28['properties'], 'mappings': _MAPPINGS}}

# The pattern excludes the empty text.
_CONSUMER_TYPE: Schema = {'type': 'string', 'maxLength': 255, 'pattern': common.CONSUMER_TYPE_PATTERN}

PUT_1_38: Schema = {
    **PUT_1_34,
    'properties': {**PUT_1_34['properties'], 'consumer_type': _CONSUMER_TYPE},
    'required': [*PUT_1_34['required'], 'consumer_type'],
}

#: The body of PUT, and the part of POST for each consumer. The two differ below 1.28.
CONSUMER: Windows = (((1, 38), PUT_1_38), ((1, 34), PUT_1_34), ((1, 28), PUT_1_28))

PUT: Windows = (*CONSUMER, ((1, 12), PUT_1_12), ((1, 8), PUT_1_8), ((1, 0), PUT_1_0))


def by_consumer(entry: Schema, min_consumers: int = 1) -> Schema:
    """Return the schema of an object from consumer uuid to ``entry``, with at least ``min_consumers`` members."""
    return {
        'type': 'object',
        'minProperties': min_consumers,
        'patternProperties': {common.UUID_KEY_PATTERN: entry},
        'additionalProperties': False,
    }


# Unlike PUT, POST may remove all allocations of a consumer at every microversion.
POST_1_13: Schema = by_consumer({**PUT_1_12, 'properties': {'allocations': _EMPTYABLE_OBJECT_FORM, **_OWNER}})

POST: Windows = (*((since, by_consumer(entry)) for since, entry in CONSUMER), ((1, 13), POST_1_13))
