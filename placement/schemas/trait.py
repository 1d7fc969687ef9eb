"""Schemas of /traits, /traits/{name} and /resource_providers/{uuid}/traits."""

from __future__ import annotations

from placement.schemas import CUSTOM_NAME, GENERATION, TEXT, Schema, object_of

CUSTOM_TRAIT_NAME: Schema = CUSTOM_NAME

PUT_FOR_PROVIDER: Schema = object_of(
    {
        'traits': {'type': 'array', 'items': {'type': 'string', 'minLength': 1, 'maxLength': 255}},
        'resource_provider_generation': GENERATION,
    }
)

LIST: Schema = object_of({'name': TEXT, 'associated': TEXT}, required=[])
