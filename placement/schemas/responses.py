"""Schemas of successful responses, for the OpenAPI document. The service does not validate responses with them."""

from __future__ import annotations

from placement.schemas import TEXT, UUID, UUID_OR_NULL, Schema, Windows, object_of, with_members

_NUMBER: Schema = {'type': 'integer'}
LINKS: Schema = {'type': 'array', 'items': object_of({'rel': TEXT, 'href': TEXT})}


def _object(**members: Schema) -> Schema:
    """Return the schema of an object with exactly these members."""
    return object_of(members)


def _by_name(value: Schema) -> Schema:
    return {'type': 'object', 'additionalProperties': value}


def _list_of(value: Schema) -> Schema:
    return {'type': 'array', 'items': value}


_AMOUNTS = _by_name(_NUMBER)
_OWNED: Schema = {'project_id': TEXT, 'user_id': TEXT}

# The version document -----------------------------------------------------------------------------------------

VERSIONS = _object(versions=_list_of(_object(id=TEXT, max_version=TEXT, min_version=TEXT, status=TEXT, links=LINKS)))

# Resource classes and traits ------------------------------------------------------------------------------------

RESOURCE_CLASS = _object(name=TEXT, links=LINKS)
RESOURCE_CLASSES = _object(resource_classes=_list_of(RESOURCE_CLASS))
TRAITS = _object(traits=_list_of(TEXT))
PROVIDER_TRAITS = _object(traits=_list_of(TEXT), resource_provider_generation=_NUMBER)

# Resource providers ---------------------------------------------------------------------------------------------

_PROVIDER: Schema = {'uuid': UUID, 'name': TEXT, 'generation': _NUMBER, 'links': LINKS}
_TREE: Schema = {'parent_provider_uuid': UUID_OR_NULL, 'root_provider_uuid': UUID}

PROVIDER_1_14 = _object(**_PROVIDER, **_TREE)
PROVIDER_1_0 = _object(**_PROVIDER)
PROVIDER: Windows = (((1, 14), PROVIDER_1_14), ((1, 0), PROVIDER_1_0))
PROVIDERS: Windows = tuple((since, _object(resource_providers=_list_of(schema))) for since, schema in PROVIDER)

# Inventories and usages -----------------------------------------------------------------------------------------

_RECORD: Schema = {
    **dict.fromkeys(('total', 'reserved', 'min_unit', 'max_unit', 'step_size'), _NUMBER),
    'allocation_ratio': {'type': 'number'},
}
INVENTORY = _object(**_RECORD, resource_provider_generation=_NUMBER)
INVENTORIES = _object(resource_provider_generation=_NUMBER, inventories=_by_name(_object(**_RECORD)))
PROVIDER_USAGES = _object(resource_provider_generation=_NUMBER, usages=_AMOUNTS)
_GROUP: Schema = {
    'type': 'object',
    'properties': {'consumer_count': _NUMBER},
    'required': ['consumer_count'],
    'additionalProperties': _NUMBER,
}
USAGES: Windows = (((1, 38), _object(usages=_by_name(_GROUP))), ((1, 9), _object(usages=_AMOUNTS)))

# Aggregates -----------------------------------------------------------------------------------------------------

AGGREGATES: Windows = (
    ((1, 19), _object(aggregates=_list_of(UUID), resource_provider_generation=_NUMBER)),
    ((1, 1), _object(aggregates=_list_of(UUID))),
)

# Allocations ----------------------------------------------------------------------------------------------------

# Only ``allocations`` is required: the response for an unknown consumer has no owner and no generation.
_OF_CONSUMER: Schema = object_of({'allocations': _by_name(_object(generation=_NUMBER, resources=_AMOUNTS))})
CONSUMER_ALLOCATIONS = with_members(
    (1, 0),
    _OF_CONSUMER,
    ((1, 12), _OWNED),
    ((1, 28), {'consumer_generation': {'type': ['integer', 'null']}}),
    ((1, 38), {'consumer_type': TEXT}),
)

PROVIDER_ALLOCATIONS: Windows = (
    (
        (1, 28),
        _object(
            allocations=_by_name(_object(resources=_AMOUNTS, consumer_generation={'type': ['integer', 'null']})),
            resource_provider_generation=_NUMBER,
        ),
    ),
    ((1, 0), _object(allocations=_by_name(_object(resources=_AMOUNTS)), resource_provider_generation=_NUMBER)),
)

# Allocation candidates ------------------------------------------------------------------------------------------

_SUMMARY: Schema = {'resources': _by_name(_object(capacity=_NUMBER, used=_NUMBER))}
_SUMMARY_1_17: Schema = {**_SUMMARY, 'traits': _list_of(TEXT)}
_AS_LIST = _object(allocations=_list_of(_object(resource_provider=_object(uuid=UUID), resources=_AMOUNTS)))
_AS_OBJECT = _object(allocations=_by_name(_object(resources=_AMOUNTS)))
_WITH_MAPPINGS = _object(allocations=_by_name(_object(resources=_AMOUNTS)), mappings=_by_name(_list_of(UUID)))


def _candidates(request: Schema, summary: Schema) -> Schema:
    return _object(allocation_requests=_list_of(request), provider_summaries=_by_name(_object(**summary)))


CANDIDATES: Windows = (
    ((1, 34), _candidates(_WITH_MAPPINGS, {**_SUMMARY_1_17, **_TREE})),
    ((1, 29), _candidates(_AS_OBJECT, {**_SUMMARY_1_17, **_TREE})),
    ((1, 17), _candidates(_AS_OBJECT, _SUMMARY_1_17)),
    ((1, 12), _candidates(_AS_OBJECT, _SUMMARY)),
    ((1, 10), _candidates(_AS_LIST, _SUMMARY)),
)
