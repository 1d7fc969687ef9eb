"""Schema of the query string of /usages."""

from __future__ import annotations

from placement.schemas import Schema, common

TOTAL: Schema = {
    'type': 'object',
    # Keywords are checked in the order in which they are written here, that of the table in api-ref/usages.md.
    'required': ['project_id'],
    'properties': {
        'project_id': common.EXTERNAL_ID,
        'user_id': common.EXTERNAL_ID,
    },
    'additionalProperties': False,
}
