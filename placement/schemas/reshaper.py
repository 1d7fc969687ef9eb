"""Schemas of /reshaper."""

from __future__ import annotations

from placement.schemas import Schema, Windows, allocation, common, inventory

# The keys of the inner object have no pattern: a key that cannot be the name of a class gets the error of an unknown
# class (api-ref/reshaper.md#post-reshaper).
_INVENTORIES: Schema = {
    'type': 'object',
    'minProperties': 1,
    'patternProperties': {
        common.UUID_KEY_PATTERN: {
            'type': 'object',
            'properties': {
                'resource_provider_generation': common.GENERATION,
                'inventories': {'type': 'object', 'additionalProperties': inventory.RECORD},
            },
            'required': ['resource_provider_generation', 'inventories'],
            'additionalProperties': False,
        },
    },
    'additionalProperties': False,
}


def _with_consumers(entry: Schema) -> Schema:
    return {
        'type': 'object',
        'properties': {'inventories': _INVENTORIES, 'allocations': allocation.by_consumer(entry, min_consumers=0)},
        'required': ['inventories', 'allocations'],
        'additionalProperties': False,
    }


#: A consumer is described as in POST /allocations at the same microversion.
POST: Windows = tuple((max(since, (1, 30)), _with_consumers(entry)) for since, entry in allocation.CONSUMER)
