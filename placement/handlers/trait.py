"""Traits, and the traits of a provider."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import webob
from webob import exc

from placement import exception, policies
from placement.objects import trait
from placement.objects.provider_query import ProviderVersion
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait, TraitList
from placement.schemas import responses
from placement.schemas import trait as schema
from placement.web import util, validation
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.operation import JSON, Consumes, Produces, RequiresPolicy, SinceVersion, operation

_INVALID_NAME = (
    'The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "CUSTOM_" '
    'and use following characters: "A"-"Z", "0"-"9" and "_"'
)


def _for_provider(
    req: webob.Request, provider: ResourceProvider | ProviderVersion, traits: Sequence[Trait]
) -> webob.Response:
    body = {
        'traits': [one.name for one in traits],
        'resource_provider_generation': provider.generation,
    }
    return util.json_response(req, body, last_modified=util.last_modified(traits))


@operation(
    SinceVersion('1.6'),
    Consumes(JSON),
    RequiresPolicy(policies.PROVIDER_TRAITS_LIST),
    responses={200: responses.PROVIDER_TRAITS},
)
def list_traits_for_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the traits of a provider."""
    provider, traits = TraitList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    return _for_provider(req, provider, traits)


@operation(
    SinceVersion('1.6'),
    Produces(JSON, schema.PUT_FOR_PROVIDER),
    RequiresPolicy(policies.PROVIDER_TRAITS_UPDATE),
    failures=(ErrorMapping(exception.TraitNotFound, 'No such trait {names}', exc.HTTPBadRequest),),
    responses={200: responses.PROVIDER_TRAITS},
)
def update_traits_for_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Replace the traits of a provider by the set in the body."""
    data = util.extract_json(req.body, schema.PUT_FOR_PROVIDER)
    read = functools.partial(trait.read_traits, wanted=data['traits'])
    provider = ResourceProvider.get_with(context, util.wsgi_path_item(req.environ, 'uuid'), read)
    provider.check_generation(data['resource_provider_generation'])
    return _for_provider(req, provider, provider.set_traits(data['traits']))


@operation(SinceVersion('1.6'), RequiresPolicy(policies.PROVIDER_TRAITS_DELETE), responses={204: None})
def delete_traits_for_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove all traits from a provider."""
    ResourceProvider.get_with(context, util.wsgi_path_item(req.environ, 'uuid'), trait.read_traits).clear_traits()
    return util.empty_response(req, 204)


def _name_filter(value: str) -> dict[str, Any]:
    """Read ``in:A,B`` or ``startswith:PREFIX``; with any other operator all traits match (api-ref/traits.md)."""
    operator, colon, operand = value.partition(':')
    if not colon:
        raise exc.HTTPBadRequest(
            'Badly formatted name parameter. Expected name query string parameter in form: '
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{value}"'
        )
    if operator == 'in':
        return {'names': operand.split(',')}
    return {'prefix': operand} if operator == 'startswith' else {}


@operation(
    SinceVersion('1.6'),
    Consumes(JSON),
    RequiresPolicy(policies.TRAITS_LIST),
    query=schema.LIST,
    responses={200: responses.TRAITS},
)
def list_traits(req: webob.Request, context: RequestContext) -> webob.Response:
    """List the traits, all or those that the query string selects."""
    params = util.validate_query_params(req, schema.LIST)
    filters: dict[str, Any] = {}
    if 'name' in params:
        filters.update(_name_filter(params['name']))
    if 'associated' in params:
        value = params['associated']
        if value.lower() not in ('true', 'false'):
            raise exc.HTTPBadRequest(f'The query parameter "associated" only accepts "true" or "false". Got: "{value}"')
        filters['associated'] = value.lower() == 'true'
    traits = TraitList.get_all(context, **filters)
    body = {'traits': [one.name for one in traits]}
    return util.json_response(req, body, last_modified=util.last_modified(traits))


@operation(SinceVersion('1.6'), RequiresPolicy(policies.TRAITS_SHOW), responses={204: None})
def get_trait(req: webob.Request, context: RequestContext) -> webob.Response:
    """Check whether a trait exists."""
    found = Trait.get_by_name(context, util.wsgi_path_item(req.environ, 'name'))
    return util.empty_response(req, 204, last_modified=found.modified)


@operation(SinceVersion('1.6'), RequiresPolicy(policies.TRAITS_UPDATE), responses={201: None, 204: None})
def put_trait(req: webob.Request, context: RequestContext) -> webob.Response:
    """Create a custom trait, or confirm that it exists."""
    name = util.wsgi_path_item(req.environ, 'name')
    try:
        validation.validate(name, schema.CUSTOM_TRAIT_NAME)
    except validation.ValidationError as error:
        raise exc.HTTPBadRequest(_INVALID_NAME) from error
    found, created = Trait.ensure(context, name)
    return util.empty_response(
        req,
        201 if created else 204,
        location=util.trait_url(req.environ, name),
        last_modified=found.modified,
    )


@operation(SinceVersion('1.6'), RequiresPolicy(policies.TRAITS_DELETE), responses={204: None})
def delete_trait(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove a custom trait that no provider has."""
    Trait.destroy(context, util.wsgi_path_item(req.environ, 'name'))
    return util.empty_response(req, 204)
