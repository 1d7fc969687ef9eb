"""Resource classes."""

from __future__ import annotations

from typing import Any

import orjson
import webob

from placement import exception, policies
from placement.objects.resource_class import ResourceClass, ResourceClassList
from placement.schemas import resource_class as schema
from placement.schemas import responses
from placement.web import util
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.operation import JSON, Consumes, Produces, RequiresPolicy, SinceVersion, Versions, operation


def _serialize(req: webob.Request, resource_class: ResourceClass) -> dict[str, Any]:
    name = resource_class.name
    return {
        'name': name,
        'links': [{'rel': 'self', 'href': util.resource_class_url(req.environ, name)}],
    }


@operation(
    SinceVersion('1.2'),
    Consumes(JSON),
    RequiresPolicy(policies.CLASSES_LIST),
    responses={200: responses.RESOURCE_CLASSES},
)
def list_resource_classes(req: webob.Request, context: RequestContext) -> webob.Response:
    """List all classes, the standard ones first."""
    classes = ResourceClassList.get_all(context)
    body = {'resource_classes': [_serialize(req, resource_class) for resource_class in classes]}
    return util.json_response(req, body, last_modified=util.last_modified(classes))


@operation(
    SinceVersion('1.2'),
    Produces(JSON, schema.CUSTOM_CLASS),
    RequiresPolicy(policies.CLASSES_CREATE),
    failures=(
        ErrorMapping(exception.ResourceClassExists, 'Conflicting resource class already exists: {resource_class}'),
    ),
    responses={201: None},
)
def create_resource_class(req: webob.Request, context: RequestContext) -> webob.Response:
    """Create a custom class."""
    data = util.extract_json(req.body, schema.CUSTOM_CLASS)
    ResourceClass.create(context, data['name'])
    return util.empty_response(req, 201, location=util.resource_class_url(req.environ, data['name']))


@operation(
    SinceVersion('1.2'),
    Consumes(JSON),
    RequiresPolicy(policies.CLASSES_SHOW),
    responses={200: responses.RESOURCE_CLASS},
)
def get_resource_class(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show one class."""
    resource_class = ResourceClass.get_by_name(context, util.wsgi_path_item(req.environ, 'name'))
    return util.json_response(req, _serialize(req, resource_class), last_modified=resource_class.modified)


@operation(
    SinceVersion('1.2', last='1.6'),
    Produces(JSON, schema.CUSTOM_CLASS),
    RequiresPolicy(policies.CLASSES_UPDATE),
    responses={200: responses.RESOURCE_CLASS},
)
def rename_resource_class(req: webob.Request, context: RequestContext) -> webob.Response:
    """Rename a custom class."""
    data = util.extract_json(req.body, schema.CUSTOM_CLASS)
    resource_class = ResourceClass.get_by_name(context, util.wsgi_path_item(req.environ, 'name'))
    resource_class.rename(data['name'])
    return util.json_response(req, _serialize(req, resource_class))


@operation(SinceVersion('1.7'), RequiresPolicy(policies.CLASSES_UPDATE), responses={201: None, 204: None})
def ensure_resource_class(req: webob.Request, context: RequestContext) -> webob.Response:
    """Create a custom class, or confirm that it exists."""
    name = util.wsgi_path_item(req.environ, 'name')
    util.extract_json(orjson.dumps({'name': name}), schema.CUSTOM_CLASS)
    _, created = ResourceClass.ensure(context, name)
    location = util.resource_class_url(req.environ, name)
    return util.empty_response(req, 201 if created else 204, location=location)


#: PUT renames a class up to 1.6 and creates one from 1.7 on.
update_resource_class = Versions(rename_resource_class, ensure_resource_class)


@operation(
    SinceVersion('1.2'),
    RequiresPolicy(policies.CLASSES_DELETE),
    failures=(
        ErrorMapping(exception.CannotDeleteStandardResourceClass, 'Error in delete resource class: {error}'),
        ErrorMapping(exception.ResourceClassInUse, 'Error in delete resource class: {error}'),
    ),
    responses={204: None},
)
def delete_resource_class(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove a custom class that no provider has inventory of."""
    ResourceClass.destroy(context, util.wsgi_path_item(req.environ, 'name'))
    return util.empty_response(req, 204)
