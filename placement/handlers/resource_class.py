"""Resource classes."""

from __future__ import annotations

import functools
from typing import Any

import orjson
from webob import Request, Response

from placement import exception
from placement.objects.resource_class import ResourceClass
from placement.schemas import requests, responses
from placement.validation import Validator
from placement.web import http
from placement.web.authentication import RequestContext
from placement.web.error_responses import ErrorMapping
from placement.web.operation import ByMicroversion, JsonBody, Microversions, RequiresPolicy, accepts_json, operation

_CUSTOM_CLASS = Validator(requests.CUSTOM_CLASS)


def _serialize(collection: str, name: str) -> dict[str, Any]:
    return {'name': name, 'links': [{'rel': 'self', 'href': collection + http.url({}, name)}]}


def _collection(req: Request) -> str:
    return http.url(req.environ, 'resource_classes')


@functools.lru_cache(maxsize=8)
def _serialize_all(names: tuple[str, ...]) -> bytes:
    """Return the list of all classes, without a mount prefix. An unchanged list is not serialized again."""
    collection = http.url({}, 'resource_classes')
    return orjson.dumps({'resource_classes': [_serialize(collection, name) for name in names]})


@operation(
    Microversions((1, 2)),
    accepts_json,
    RequiresPolicy('placement:resource_classes:list'),
    responses={200: responses.RESOURCE_CLASSES},
)
def list_resource_classes(req: Request, context: RequestContext) -> Response:
    """List all classes, the standard ones first."""
    names, modified = ResourceClass.get_names(context)
    body = orjson.Fragment(http.add_prefix(req, _serialize_all(names)))
    return http.json_response(req, body, last_modified=modified or http.now())


@operation(
    Microversions((1, 2)),
    JsonBody(requests.CUSTOM_CLASS),
    RequiresPolicy('placement:resource_classes:create'),
    failures=(
        ErrorMapping(exception.ResourceClassExists, 'Conflicting resource class already exists: {resource_class}'),
    ),
    responses={201: None},
)
def create_resource_class(req: Request, context: RequestContext, data: dict[str, str]) -> Response:
    """Create a custom class."""
    ResourceClass.create(context, data['name'])
    return http.empty_response(req, 201, location=http.url(req.environ, 'resource_classes', data['name']))


@operation(
    Microversions((1, 2)),
    accepts_json,
    RequiresPolicy('placement:resource_classes:show'),
    responses={200: responses.RESOURCE_CLASS},
)
def get_resource_class(req: Request, context: RequestContext, name: str) -> Response:
    """Show one class."""
    resource_class = ResourceClass.get_by_name(context, name)
    body = _serialize(_collection(req), resource_class.name)
    return http.json_response(req, body, last_modified=resource_class.modified)


@operation(
    Microversions((1, 2), last=(1, 6)),
    JsonBody(requests.CUSTOM_CLASS),
    RequiresPolicy('placement:resource_classes:update'),
    responses={200: responses.RESOURCE_CLASS},
)
def rename_resource_class(req: Request, context: RequestContext, data: dict[str, str], name: str) -> Response:
    """From 1.2 to 1.6, rename a custom class."""
    resource_class = ResourceClass.get_by_name(context, name)
    resource_class.rename(data['name'])
    return http.json_response(req, _serialize(_collection(req), resource_class.name))


@operation(Microversions((1, 7)), RequiresPolicy('placement:resource_classes:update'), responses={201: None, 204: None})
def ensure_resource_class(req: Request, context: RequestContext, name: str) -> Response:
    """From 1.7 on, create a custom class, or confirm that it exists."""
    http.validated_json(orjson.dumps({'name': name}), _CUSTOM_CLASS)
    _, created = ResourceClass.ensure(context, name)
    location = http.url(req.environ, 'resource_classes', name)
    return http.empty_response(req, 201 if created else 204, location=location)


#: PUT renames a class up to 1.6 and creates one from 1.7 on.
update_resource_class = ByMicroversion(rename_resource_class, ensure_resource_class)


@operation(
    Microversions((1, 2)),
    RequiresPolicy('placement:resource_classes:delete'),
    failures=(
        ErrorMapping(exception.CannotDeleteStandardResourceClass, 'Error in delete resource class: {error}'),
        ErrorMapping(exception.ResourceClassInUse, 'Error in delete resource class: {error}'),
    ),
    responses={204: None},
)
def delete_resource_class(req: Request, context: RequestContext, name: str) -> Response:
    """Remove a custom class that has no inventory."""
    ResourceClass.destroy(context, name)
    return http.empty_response(req, 204)
