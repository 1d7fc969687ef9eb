"""Schemas of /resource_providers and /resource_providers/{uuid}."""

from __future__ import annotations

from placement.schemas import Schema, common, with_members

# An empty name passes: the handler rejects it with another text.
_POST: Schema = {
    'type': 'object',
    'properties': {'name': {'type': 'string', 'maxLength': 200}, 'uuid': common.UUID},
    'required': ['name'],
    'additionalProperties': False,
}
_PUT: Schema = {
    'type': 'object',
    'properties': {'name': {'type': 'string', 'minLength': 1, 'maxLength': 200}},
    'required': ['name'],
    'additionalProperties': False,
}
_LIST: Schema = {
    'type': 'object',
    'properties': {'name': common.TEXT, 'uuid': common.UUID},
    'additionalProperties': False,
}

POST = with_members((1, 0), _POST, ((1, 14), {'parent_provider_uuid': common.UUID_OR_NULL}))
PUT = with_members((1, 0), _PUT, ((1, 14), {'parent_provider_uuid': common.UUID_OR_NULL}))
LIST = with_members(
    (1, 0),
    _LIST,
    ((1, 3), {'member_of': common.TEXT}),
    ((1, 4), {'resources': common.TEXT}),
    ((1, 14), {'in_tree': common.UUID}),
    ((1, 18), {'required': common.TEXT}),
)
