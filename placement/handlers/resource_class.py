"""Resource classes (contract A 5.10 and 5.11)."""

from __future__ import annotations

from typing import Any

import orjson
import webob

from placement import exception
from placement.handlers import answers, modified
from placement.handlers.answers import Answer
from placement.objects.resource_class import ResourceClass, ResourceClassList
from placement.policies import resource_class as policies
from placement.schemas import resource_class as schema
from placement.web import microversion, util, wsgi_wrapper


def _serialize(req: webob.Request, resource_class: ResourceClass) -> dict[str, Any]:
    name = resource_class.name
    return {
        'name': name,
        'links': [{'rel': 'self', 'href': util.resource_class_url(req.environ, name)}],
    }


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.2')
@util.check_accept('application/json')
@answers.answered()
def list_resource_classes(req: webob.Request) -> webob.Response:
    """List all classes, the standard ones first."""
    context = req.environ['placement.context']
    context.can(policies.LIST)
    classes = ResourceClassList.get_all(context)
    body = {'resource_classes': [_serialize(req, resource_class) for resource_class in classes]}
    return util.json_response(req, body, last_modified=modified.newest(classes))


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.2')
@util.require_content('application/json')
@answers.answered(
    Answer(exception.ResourceClassExists, 'Conflicting resource class already exists: {resource_class}'),
)
def create_resource_class(req: webob.Request) -> webob.Response:
    """Create a custom class."""
    context = req.environ['placement.context']
    context.can(policies.CREATE)
    data = util.extract_json(req.body, schema.CUSTOM_CLASS)
    ResourceClass.create(context, data['name'])
    return util.empty_response(req, 201, location=util.resource_class_url(req.environ, data['name']))


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.2')
@util.check_accept('application/json')
@answers.answered()
def get_resource_class(req: webob.Request) -> webob.Response:
    """Show one class."""
    context = req.environ['placement.context']
    context.can(policies.SHOW)
    resource_class = ResourceClass.get_by_name(context, util.wsgi_path_item(req.environ, 'name'))
    return util.json_response(req, _serialize(req, resource_class), last_modified=resource_class.modified)


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.2', '1.6')
@util.require_content('application/json')
@answers.answered()
def update_resource_class(req: webob.Request) -> webob.Response:
    """Rename a custom class."""
    context = req.environ['placement.context']
    context.can(policies.UPDATE)
    data = util.extract_json(req.body, schema.CUSTOM_CLASS)
    resource_class = ResourceClass.get_by_name(context, util.wsgi_path_item(req.environ, 'name'))
    resource_class.rename(data['name'])
    return util.json_response(req, _serialize(req, resource_class))


@wsgi_wrapper.PlacementWsgify  # type: ignore[no-redef]
@microversion.version_handler('1.7')
@answers.answered()
def update_resource_class(req: webob.Request) -> webob.Response:  # noqa: F811
    """Create a custom class, or confirm that it exists."""
    context = req.environ['placement.context']
    context.can(policies.UPDATE)
    name = util.wsgi_path_item(req.environ, 'name')
    util.extract_json(orjson.dumps({'name': name}), schema.CUSTOM_CLASS)
    _, created = ResourceClass.ensure(context, name)
    location = util.resource_class_url(req.environ, name)
    return util.empty_response(req, 201 if created else 204, location=location)


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.2')
@answers.answered(
    Answer(exception.CannotDeleteStandardResourceClass, 'Error in delete resource class: {error}'),
    Answer(exception.ResourceClassInUse, 'Error in delete resource class: {error}'),
)
def delete_resource_class(req: webob.Request) -> webob.Response:
    """Remove a custom class that no provider has inventory of."""
    context = req.environ['placement.context']
    context.can(policies.DELETE)
    ResourceClass.destroy(context, util.wsgi_path_item(req.environ, 'name'))
    return util.empty_response(req, 204)
