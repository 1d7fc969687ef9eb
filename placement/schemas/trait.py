"""Schemas of /traits, /traits/{name} and /resource_providers/{uuid}/traits."""

from __future__ import annotations

from placement.schemas import Schema, common

CUSTOM_TRAIT_NAME: Schema = common.CUSTOM_NAME

PUT_FOR_PROVIDER: Schema = {
    'type': 'object',
    'properties': {
        'traits': {'type': 'array', 'items': {'type': 'string', 'minLength': 1, 'maxLength': 255}},
        'resource_provider_generation': common.GENERATION,
    },
    'required': ['traits', 'resource_provider_generation'],
    'additionalProperties': False,
}

LIST: Schema = {
    'type': 'object',
    'properties': {
        'name': common.TEXT,
        'associated': common.TEXT,
    },
    'additionalProperties': False,
}
