"""Schema of the query string of /usages."""

from __future__ import annotations

from placement.schemas import CONSUMER_TYPE_PATTERN, EXTERNAL_ID, Schema, with_members

_TOTAL: Schema = {
    'type': 'object',
    # Keywords are checked in this order, which is also the order of the table in api-ref/usages.md.
    'required': ['project_id'],
    'properties': {
        'project_id': EXTERNAL_ID,
        'user_id': EXTERNAL_ID,
    },
    'additionalProperties': False,
}

# The name of a type, ``all`` for all consumers, or ``unknown`` for consumers without a type.
_CONSUMER_TYPE: Schema = {
    'type': 'string',
    'maxLength': 255,
    'pattern': rf'{CONSUMER_TYPE_PATTERN}|^all\Z|^unknown\Z',
}

TOTAL = with_members((1, 9), _TOTAL, ((1, 38), {'consumer_type': _CONSUMER_TYPE}))
