"""Traits, and the traits of a provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from webob import Request, Response, exc
from webob.multidict import MultiDict

from placement import exception, schemas
from placement.objects.trait import ASSOCIATED, NOT_ASSOCIATED, Trait, read_traits
from placement.schemas import requests, responses
from placement.validation import ValidationError, Validator
from placement.web import http
from placement.web.authentication import RequestContext
from placement.web.error_responses import ErrorMapping
from placement.web.operation import JsonBody, Microversions, RequiresPolicy, accepts_json, operation

if TYPE_CHECKING:
    # Handlers hold no SQL, so they import db only for annotations.
    from placement.db.generation import ProviderGeneration

_NAME = Validator(schemas.CUSTOM_NAME)
_INVALID_NAME = (
    'The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "CUSTOM_" '
    'and use following characters: "A"-"Z", "0"-"9" and "_"'
)


def _for_provider(req: Request, provider: ProviderGeneration, traits: Sequence[Trait]) -> Response:
    body = {'traits': [trait.name for trait in traits], 'resource_provider_generation': provider.generation}
    return http.json_response(req, body, last_modified=http.last_modified(traits))


@operation(
    Microversions((1, 6)),
    accepts_json,
    RequiresPolicy('placement:resource_providers:traits:list'),
    responses={200: responses.PROVIDER_TRAITS},
)
def list_resource_provider_traits(req: Request, context: RequestContext, uuid: str) -> Response:
    """Show the traits of a provider."""
    provider, traits = Trait.get_all_with_provider(context, uuid)
    return _for_provider(req, provider, traits)


@operation(
    Microversions((1, 6)),
    JsonBody(requests.PUT_TRAITS),
    RequiresPolicy('placement:resource_providers:traits:update'),
    failures=(ErrorMapping(exception.TraitNotFound, 'No such trait {names}', exc.HTTPBadRequest),),
    responses={200: responses.PROVIDER_TRAITS},
)
def replace_resource_provider_traits(
    req: Request, context: RequestContext, data: dict[str, Any], uuid: str
) -> Response:
    """Replace the traits of a provider by the set in the body."""
    provider, present, named = read_traits(context, uuid, data['traits'])
    provider.raise_unless_equal(data['resource_provider_generation'])
    return _for_provider(req, *Trait.replace_all(context, provider, present, named, data['traits']))


@operation(Microversions((1, 6)), RequiresPolicy('placement:resource_providers:traits:delete'), responses={204: None})
def delete_resource_provider_traits(req: Request, context: RequestContext, uuid: str) -> Response:
    """Remove all traits from a provider."""
    provider, present, _named = read_traits(context, uuid)
    Trait.replace_all(context, provider, present, [], [])
    return http.empty_response(req, 204)


def _name_filter(value: str) -> dict[str, Any]:
    """Read ``in:A,B`` or ``startswith:PREFIX``. With any other operator, all traits match (api-ref/traits.md)."""
    operator, colon, operand = value.partition(':')
    if not colon:
        raise exc.HTTPBadRequest(
            'Badly formatted name parameter. Expected name query string parameter in form: '
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{value}"'
        )
    if operator == 'in':
        return {'names': frozenset(operand.split(','))}
    return {'prefix': operand} if operator == 'startswith' else {}


@operation(
    Microversions((1, 6)),
    accepts_json,
    RequiresPolicy('placement:traits:list'),
    query=requests.GET_TRAITS,
    responses={200: responses.TRAITS},
)
def list_traits(req: Request, context: RequestContext, params: MultiDict) -> Response:
    """List all traits, or the traits that the query string selects."""
    filters: dict[str, Any] = {}
    if 'name' in params:
        filters.update(_name_filter(params['name']))
    if 'associated' in params:
        value = params['associated']
        if value.lower() not in ('true', 'false'):
            raise exc.HTTPBadRequest(f'The query parameter "associated" only accepts "true" or "false". Got: "{value}"')
        filters['condition'] = ASSOCIATED if value.lower() == 'true' else NOT_ASSOCIATED
    names, modified = Trait.get_names(context, **filters)
    return http.json_response(req, {'traits': names}, last_modified=modified or http.now())


@operation(Microversions((1, 6)), RequiresPolicy('placement:traits:show'), responses={204: None})
def get_trait(req: Request, context: RequestContext, name: str) -> Response:
    """Check whether a trait exists."""
    trait = Trait.get_by_name(context, name)
    return http.empty_response(req, 204, last_modified=trait.modified)


@operation(Microversions((1, 6)), RequiresPolicy('placement:traits:update'), responses={201: None, 204: None})
def create_trait(req: Request, context: RequestContext, name: str) -> Response:
    """Create a custom trait, or confirm that it exists."""
    try:
        _NAME.validate(name)
    except ValidationError as error:
        raise exc.HTTPBadRequest(_INVALID_NAME) from error
    trait, created = Trait.ensure(context, name)
    return http.empty_response(
        req, 201 if created else 204, location=http.url(req.environ, 'traits', name), last_modified=trait.modified
    )


@operation(Microversions((1, 6)), RequiresPolicy('placement:traits:delete'), responses={204: None})
def delete_trait(req: Request, context: RequestContext, name: str) -> Response:
    """Remove a custom trait that no provider has."""
    Trait.destroy(context, name)
    return http.empty_response(req, 204)
