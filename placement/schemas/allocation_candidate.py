"""The parameters of the query string of /allocation_candidates, and its schemas, which are made from them.

The values of parameters without a pattern are parsed by ``placement.search.parsing``.
"""

from __future__ import annotations

from typing import NamedTuple

from placement.schemas import (
    DOCUMENTED,
    MEMBER_OF,
    REQUIRED,
    RESOURCES,
    ROOT_REQUIRED,
    SYNTAX,
    TEXT,
    Schema,
    Version,
    Windows,
    all_values,
)

_POLICIES = ['none', 'isolate']
#: The uuid of a provider, in any spelling.
_PROVIDER_UUID: Schema = {'type': 'string', DOCUMENTED: {'minLength': 1, 'format': 'uuid'}}

# [0-9], because \d also matches digits of other scripts. \Z, because $ also matches before a final newline.
LIMIT = r'^[1-9][0-9]*\Z'
GROUP_POLICY = rf'^({"|".join(_POLICIES)})\Z'


class Parameter(NamedTuple):
    """A query parameter."""

    name: str
    #: The microversion that added it.
    since: Version
    schema: Schema = SYNTAX
    #: Whether each request group can have it. Since 1.25 such a schema is only documentation: the parser of the value
    #: has to check it.
    of_group: bool = False


#: Every parameter, in the order of the microversions.
PARAMETERS = [
    Parameter('resources', (1, 10), RESOURCES, of_group=True),
    Parameter('limit', (1, 16), {'type': 'string', 'pattern': LIMIT}),
    Parameter('required', (1, 17), REQUIRED, of_group=True),
    Parameter('member_of', (1, 21), MEMBER_OF, of_group=True),
    Parameter('group_policy', (1, 25), {'type': 'string', 'enum': _POLICIES}),
    Parameter('in_tree', (1, 31), _PROVIDER_UUID, of_group=True),
    Parameter('root_required', (1, 35), ROOT_REQUIRED),
    Parameter('same_subtree', (1, 36), {**TEXT, DOCUMENTED: all_values(SYNTAX)}),
]

#: The suffixes of request groups by the microversion that added them, newest first.
_SUFFIXES = {(1, 33): '[a-zA-Z0-9_-]{1,64}', (1, 25): '[1-9][0-9]*'}


def _groups(version: Version) -> tuple[str, str | None]:
    """Return patterns of the parameters of request groups and of their suffix; None if suffixes do not exist yet."""
    names = '|'.join(parameter.name for parameter in PARAMETERS if parameter.of_group and parameter.since <= version)
    return names, next((suffix for since, suffix in _SUFFIXES.items() if since <= version), None)


#: Matches the keys of request groups at all microversions, and a few other keys, which the schemas reject.
GROUP_KEY = rf'^({_groups(PARAMETERS[-1].since)[0]})({"|".join(_SUFFIXES.values())})?\Z'


def suffixed_keys(version: Version) -> str | None:
    """Return the pattern of the keys of suffixed request groups at ``version``; None if there are no such groups."""
    names, suffix = _groups(version)
    return suffix and rf'^({names})({suffix})\Z'


def _schema(version: Version) -> Schema:
    """Return the schema at ``version``. Missing and unknown keys are checked before values, so they come first."""
    parameters = [parameter for parameter in PARAMETERS if parameter.since <= version]
    names, suffix = _groups(version)
    if suffix is None:
        return {
            'type': 'object',
            'required': ['resources'],
            'additionalProperties': False,
            'properties': {parameter.name: parameter.schema for parameter in parameters},
        }
    single = {rf'^{parameter.name}\Z': parameter.schema for parameter in parameters if not parameter.of_group}
    patterns = {rf'^({names})({suffix})?\Z': TEXT, **single}
    return {'type': 'object', 'additionalProperties': False, 'patternProperties': patterns}


GET: Windows = tuple(
    (since, _schema(since))
    for since in sorted({*_SUFFIXES, *(parameter.since for parameter in PARAMETERS)}, reverse=True)
)
