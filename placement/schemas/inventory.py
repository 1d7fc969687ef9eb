"""Schemas of /resource_providers/{uuid}/inventories and below."""

from __future__ import annotations

import sys

from placement import capacity
from placement.schemas import GENERATION, RESOURCE_CLASS_PATTERN, Schema, object_of

MAX_RATIO = 3.40282e38


def _integer(minimum: int) -> Schema:
    return {'type': 'integer', 'minimum': minimum, 'maximum': capacity.MAX_INT32}


# A negative ratio passes, because the handler rejects it after the check of the generation. The schema rejects only
# ratios above ``MAX_RATIO``, and integers below the range of a double.
_RECORD_PROPERTIES: Schema = {
    'total': _integer(1),
    'reserved': _integer(0),
    'min_unit': _integer(1),
    'max_unit': _integer(1),
    'step_size': _integer(1),
    'allocation_ratio': {'type': 'number', 'minimum': -sys.float_info.max, 'maximum': MAX_RATIO},
    'resource_provider_generation': GENERATION,
}

RECORD: Schema = object_of(_RECORD_PROPERTIES, required=['total'])

POST_ONE: Schema = object_of(
    {'resource_class': {'type': 'string', 'pattern': RESOURCE_CLASS_PATTERN}, **_RECORD_PROPERTIES},
    required=['resource_class', 'total'],
)

PUT_ONE: Schema = object_of(_RECORD_PROPERTIES, required=['resource_provider_generation', 'total'])

# Keys have no pattern: a key that cannot be the name of a class gets the error of an unknown class
# (api-ref/inventories.md, api-ref/reshaper.md#post-reshaper).
PUT_ALL: Schema = object_of(
    {
        'resource_provider_generation': GENERATION,
        'inventories': {'type': 'object', 'additionalProperties': RECORD},
    }
)
