"""Schemas of the query string of /allocation_candidates: its keys, and the values of ``limit`` and ``group_policy``.

The values of ``resources``, ``required`` and ``member_of`` are parsed by ``placement.web.query``.
"""

from __future__ import annotations

from placement.schemas import Schema, Windows

_POLICIES = ['none', 'isolate']

# [0-9] and not \d, which matches digits of other scripts; \Z and not $, which also matches before a final newline.
LIMIT = r'^[1-9][0-9]*\Z'
GROUP_POLICY = rf'^({"|".join(_POLICIES)})\Z'
#: A key of a request group: the kind of parameter, and the suffix of the group.
GROUP_KEY = r'^(resources|required|member_of)([1-9][0-9]*)?\Z'

_TEXT: Schema = {'type': 'string'}
_LIMIT: Schema = {'type': 'string', 'pattern': LIMIT}

# Keywords are checked in the order in which they are written here: missing and unknown keys before invalid values.

GET_1_10: Schema = {
    'type': 'object',
    'required': ['resources'],
    'additionalProperties': False,
    'properties': {'resources': _TEXT},
}

GET_1_16: Schema = {**GET_1_10, 'properties': {**GET_1_10['properties'], 'limit': _LIMIT}}

GET_1_17: Schema = {**GET_1_16, 'properties': {**GET_1_16['properties'], 'required': _TEXT}}

GET_1_21: Schema = {**GET_1_17, 'properties': {**GET_1_17['properties'], 'member_of': _TEXT}}

GET_1_25: Schema = {
    'type': 'object',
    'additionalProperties': False,
    'patternProperties': {
        GROUP_KEY: _TEXT,
        r'^limit\Z': _LIMIT,
        r'^group_policy\Z': {'type': 'string', 'enum': _POLICIES},
    },
}

GET: Windows = (
    ((1, 25), GET_1_25),
    ((1, 21), GET_1_21),
    ((1, 17), GET_1_17),
    ((1, 16), GET_1_16),
    ((1, 10), GET_1_10),
)
