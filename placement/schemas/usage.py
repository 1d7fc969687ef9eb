"""Schema of the query string of /usages."""

from __future__ import annotations

from placement.schemas import Schema, Windows, common

TOTAL_1_9: Schema = {
    'type': 'object',
    # Keywords are checked in this order, which is also the order of the table in api-ref/usages.md.
    'required': ['project_id'],
    'properties': {
        'project_id': common.EXTERNAL_ID,
        'user_id': common.EXTERNAL_ID,
    },
    'additionalProperties': False,
}

# The name of a type, ``all`` for all consumers, or ``unknown`` for consumers without a type.
_CONSUMER_TYPE: Schema = {
    'type': 'string',
    'maxLength': 255,
    'pattern': rf'{common.CONSUMER_TYPE_PATTERN}|^all\Z|^unknown\Z',
}

TOTAL_1_38: Schema = {**TOTAL_1_9, 'properties': {**TOTAL_1_9['properties'], 'consumer_type': _CONSUMER_TYPE}}

TOTAL: Windows = (((1, 38), TOTAL_1_38), ((1, 9), TOTAL_1_9))
