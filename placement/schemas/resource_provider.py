"""Schemas of /resource_providers and /resource_providers/{uuid}."""

from __future__ import annotations

from placement.schemas import Schema, Windows, common

# An empty name passes: the handler rejects it with another text.
POST_1_0: Schema = {
    'type': 'object',
    'properties': {
        'name': {'type': 'string', 'maxLength': 200},
        'uuid': common.UUID,
    },
    'required': ['name'],
    'additionalProperties': False,
}

POST_1_14: Schema = {
    **POST_1_0,
    'properties': {**POST_1_0['properties'], 'parent_provider_uuid': common.UUID_OR_NULL},
}

PUT_1_0: Schema = {
    'type': 'object',
    'properties': {
        'name': {'type': 'string', 'minLength': 1, 'maxLength': 200},
    },
    'required': ['name'],
    'additionalProperties': False,
}

PUT_1_14: Schema = {
    **PUT_1_0,
    'properties': {**PUT_1_0['properties'], 'parent_provider_uuid': common.UUID_OR_NULL},
}

LIST_1_0: Schema = {
    'type': 'object',
    'properties': {
        'name': {'type': 'string'},
        'uuid': common.UUID,
    },
    'additionalProperties': False,
}

LIST_1_3: Schema = {**LIST_1_0, 'properties': {**LIST_1_0['properties'], 'member_of': {'type': 'string'}}}

LIST_1_4: Schema = {**LIST_1_3, 'properties': {**LIST_1_3['properties'], 'resources': {'type': 'string'}}}

LIST_1_14: Schema = {**LIST_1_4, 'properties': {**LIST_1_4['properties'], 'in_tree': common.UUID}}

LIST_1_18: Schema = {**LIST_1_14, 'properties': {**LIST_1_14['properties'], 'required': {'type': 'string'}}}

POST: Windows = (((1, 14), POST_1_14), ((1, 0), POST_1_0))
PUT: Windows = (((1, 14), PUT_1_14), ((1, 0), PUT_1_0))
LIST: Windows = (
    ((1, 18), LIST_1_18),
    ((1, 14), LIST_1_14),
    ((1, 4), LIST_1_4),
    ((1, 3), LIST_1_3),
    ((1, 0), LIST_1_0),
)
