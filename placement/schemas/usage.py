"""Schema of the query string of /usages (contract B 4.7)."""

from __future__ import annotations

from placement.schemas import Schema, common

TOTAL: Schema = {
    'type': 'object',
    'properties': {
        'project_id': common.EXTERNAL_ID,
        'user_id': common.EXTERNAL_ID,
    },
    'required': ['project_id'],
    'additionalProperties': False,
}
