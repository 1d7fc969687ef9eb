"""Traits, and the traits of a provider (contract A 5.7 to 5.9)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import webob
from webob import exc

from placement import exception
from placement.handlers import answers, modified
from placement.handlers.answers import Answer
from placement.objects import trait
from placement.objects.provider_parts import Provider
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait, TraitList
from placement.policies import trait as policies
from placement.schemas import trait as schema
from placement.web import microversion, util, validation, wsgi_wrapper

_INVALID_NAME = (
    'The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "CUSTOM_" '
    'and use following characters: "A"-"Z", "0"-"9" and "_"'
)


def _for_provider(req: webob.Request, provider: ResourceProvider | Provider, traits: Sequence[Trait]) -> webob.Response:
    body = {
        'traits': [one.name for one in traits],
        'resource_provider_generation': provider.generation,
    }
    return util.json_response(req, body, last_modified=modified.newest(traits))


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@util.check_accept('application/json')
@answers.answered()
def list_traits_for_resource_provider(req: webob.Request) -> webob.Response:
    """Show the traits of a provider."""
    context = req.environ['placement.context']
    context.can(policies.RP_LIST)
    provider, traits = TraitList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    return _for_provider(req, provider, traits)


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@util.require_content('application/json')
@answers.answered(
    Answer(
        exception.ProviderGenerationMismatch,
        "Resource provider's generation already changed. Please update the generation and try again.",
    ),
    Answer(exception.TraitNotFound, 'No such trait {names}', exc.HTTPBadRequest),
)
def update_traits_for_resource_provider(req: webob.Request) -> webob.Response:
    """Replace the traits of a provider by the set in the body."""
    context = req.environ['placement.context']
    context.can(policies.RP_UPDATE)
    data = util.extract_json(req.body, schema.PUT_FOR_PROVIDER)
    read = functools.partial(trait.read, wanted=data['traits'])
    provider = ResourceProvider.get_with(context, util.wsgi_path_item(req.environ, 'uuid'), read)
    provider.check_generation(data['resource_provider_generation'])
    return _for_provider(req, provider, provider.set_traits(data['traits']))


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@answers.answered()
def delete_traits_for_resource_provider(req: webob.Request) -> webob.Response:
    """Take all traits from a provider."""
    context = req.environ['placement.context']
    context.can(policies.RP_DELETE)
    ResourceProvider.get_with(context, util.wsgi_path_item(req.environ, 'uuid'), trait.read).clear_traits()
    return util.empty_response(req, 204)


def _name_filter(value: str) -> dict[str, Any]:
    """Read ``in:A,B`` or ``startswith:PREFIX``; another operator filters nothing (contract A 8, D15)."""
    operator, colon, operand = value.partition(':')
    if not colon:
        raise exc.HTTPBadRequest(
            'Badly formatted name parameter. Expected name query string parameter in form: '
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{value}"'
        )
    if operator == 'in':
        return {'names': operand.split(',')}
    return {'prefix': operand} if operator == 'startswith' else {}


def _associated_filter(value: str) -> dict[str, Any]:
    if value.lower() not in ('true', 'false'):
        raise exc.HTTPBadRequest(f'The query parameter "associated" only accepts "true" or "false". Got: "{value}"')
    return {'associated': value.lower() == 'true'}


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@util.check_accept('application/json')
@answers.answered()
def list_traits(req: webob.Request) -> webob.Response:
    """List the traits, all or those that the query string selects."""
    context = req.environ['placement.context']
    context.can(policies.LIST)
    params = util.validate_query_params(req, schema.LIST)
    filters: dict[str, Any] = {}
    if 'name' in params:
        filters.update(_name_filter(params['name']))
    if 'associated' in params:
        filters.update(_associated_filter(params['associated']))
    traits = TraitList.get_all(context, **filters)
    body = {'traits': [one.name for one in traits]}
    return util.json_response(req, body, last_modified=modified.newest(traits))


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@answers.answered()
def get_trait(req: webob.Request) -> webob.Response:
    """Say whether a trait exists."""
    context = req.environ['placement.context']
    context.can(policies.SHOW)
    found = Trait.get_by_name(context, util.wsgi_path_item(req.environ, 'name'))
    return util.empty_response(req, 204, last_modified=found.modified)


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@answers.answered()
def put_trait(req: webob.Request) -> webob.Response:
    """Create a custom trait, or confirm that it exists."""
    context = req.environ['placement.context']
    context.can(policies.UPDATE)
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


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.6')
@answers.answered()
def delete_trait(req: webob.Request) -> webob.Response:
    """Remove a custom trait that no provider has."""
    context = req.environ['placement.context']
    context.can(policies.DELETE)
    Trait.destroy(context, util.wsgi_path_item(req.environ, 'name'))
    return util.empty_response(req, 204)
