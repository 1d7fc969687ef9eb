"""Schemas of /resource_classes and /resource_classes/{name}."""

from __future__ import annotations

from placement.schemas import Schema, common

#: The body of POST and of the renaming PUT (1.2 to 1.6); from 1.7 also what a name in the path of PUT must satisfy.
CUSTOM_CLASS: Schema = {
    'type': 'object',
    'properties': {'name': common.CUSTOM_NAME},
    'required': ['name'],
    'additionalProperties': False,
}
