"""Schemas of the query string of /allocation_candidates: its keys, and the values of ``limit`` and ``group_policy``.

The values of the other parameters are parsed by ``placement.search.parsing`` and ``placement.search.syntax``.
"""

from __future__ import annotations

from placement.schemas import Schema, Windows

_POLICIES = ['none', 'isolate']

# [0-9], because \d also matches digits of other scripts. \Z, because $ also matches before a final newline.
LIMIT = r'^[1-9][0-9]*\Z'
GROUP_POLICY = rf'^({"|".join(_POLICIES)})\Z'
# A key of a request group: the parameter, and the suffix of the group.
_GROUP_KEY_1_25 = r'^(resources|required|member_of)([1-9][0-9]*)?\Z'
_GROUP_KEY_1_31 = r'^(resources|required|member_of|in_tree)([1-9][0-9]*)?\Z'
#: Matches the keys of request groups at all microversions, and a few other keys, which the schemas reject.
GROUP_KEY = r'^(resources|required|member_of|in_tree)([1-9][0-9]*|[a-zA-Z0-9_-]{1,64})?\Z'
_GROUP_KEY_1_33 = r'^(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?\Z'

_TEXT: Schema = {'type': 'string'}
_LIMIT: Schema = {'type': 'string', 'pattern': LIMIT}

# Keywords are checked in this order: missing and unknown keys come before invalid values.

GET_1_10: Schema = {
    'type': 'object',
    'required': ['resources'],
    'additionalProperties': False,
    'properties': {'resources': _TEXT},
}

GET_1_16: Schema = {**GET_1_10, 'properties': {**GET_1_10['properties'], 'limit': _LIMIT}}

GET_1_17: Schema = {**GET_1_16, 'properties': {**GET_1_16['properties'], 'required': _TEXT}}

GET_1_21: Schema = {**GET_1_17, 'properties': {**GET_1_17['properties'], 'member_of': _TEXT}}


def _by_pattern(group_key: str, *keys: str) -> Schema:
    """Return the schema of a query string from 1.25 on. ``keys`` are the keys without a suffix that came later."""
    return {
        'type': 'object',
        'additionalProperties': False,
        'patternProperties': {
            group_key: _TEXT,
            r'^limit\Z': _LIMIT,
            r'^group_policy\Z': {'type': 'string', 'enum': _POLICIES},
            **{rf'^{key}\Z': _TEXT for key in keys},
        },
    }


GET_1_25 = _by_pattern(_GROUP_KEY_1_25)
GET_1_31 = _by_pattern(_GROUP_KEY_1_31)
GET_1_33 = _by_pattern(_GROUP_KEY_1_33)
GET_1_35 = _by_pattern(_GROUP_KEY_1_33, 'root_required')
GET_1_36 = _by_pattern(_GROUP_KEY_1_33, 'root_required', 'same_subtree')

GET: Windows = (
    ((1, 36), GET_1_36),
    ((1, 35), GET_1_35),
    ((1, 33), GET_1_33),
    ((1, 31), GET_1_31),
    ((1, 25), GET_1_25),
    ((1, 21), GET_1_21),
    ((1, 17), GET_1_17),
    ((1, 16), GET_1_16),
    ((1, 10), GET_1_10),
)
