"""Schemas of /resource_providers and /resource_providers/{uuid}."""

from __future__ import annotations

from placement.schemas import TEXT, UUID, UUID_OR_NULL, Schema, object_of, with_members

# An empty name passes: the handler rejects it with another text.
_POST: Schema = object_of({'name': {'type': 'string', 'maxLength': 200}, 'uuid': UUID}, required=['name'])
_PUT: Schema = object_of({'name': {'type': 'string', 'minLength': 1, 'maxLength': 200}})
_LIST: Schema = object_of({'name': TEXT, 'uuid': UUID}, required=[])

POST = with_members((1, 0), _POST, ((1, 14), {'parent_provider_uuid': UUID_OR_NULL}))
PUT = with_members((1, 0), _PUT, ((1, 14), {'parent_provider_uuid': UUID_OR_NULL}))
LIST = with_members(
    (1, 0),
    _LIST,
    ((1, 3), {'member_of': TEXT}),
    ((1, 4), {'resources': TEXT}),
    ((1, 14), {'in_tree': UUID}),
    ((1, 18), {'required': TEXT}),
)
