"""Schemas of /resource_providers/{uuid}/aggregates."""

from __future__ import annotations

from placement.schemas import Schema, Windows, common

PUT_1_1: Schema = {'type': 'array', 'items': common.UUID, 'uniqueItems': True}

PUT_1_19: Schema = {
    'type': 'object',
    'properties': {
        'aggregates': PUT_1_1,
        'resource_provider_generation': common.GENERATION,
    },
    'required': ['aggregates', 'resource_provider_generation'],
    'additionalProperties': False,
}

PUT: Windows = (((1, 19), PUT_1_19), ((1, 1), PUT_1_1))
