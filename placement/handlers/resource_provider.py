"""Resource providers: the list with its filters, and one provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from oslo_utils import uuidutils
from webob import Request, Response, exc
from webob.multidict import MultiDict

from placement import exception, uuid_spelling
from placement.cache.partition import Partition
from placement.cache.providers import Provider
from placement.objects.resource_provider import ResourceProvider
from placement.schemas import requests, responses
from placement.search import filter_providers, parsing
from placement.search.request import RequestGroup
from placement.web import http, microversion
from placement.web.authentication import RequestContext
from placement.web.error_responses import UNKNOWN_CLASS_IN_QUERY, ErrorMapping
from placement.web.operation import JsonBody, RequiresPolicy, accepts_json, operation

# The names of the links other than ``self``, each with the first microversion that has it.
_SUB_RESOURCES = (
    ('inventories', (1, 0)),
    ('usages', (1, 0)),
    ('aggregates', (1, 1)),
    ('traits', (1, 6)),
    ('allocations', (1, 11)),
)


def _serialize(req: Request, provider: ResourceProvider) -> dict[str, Any]:
    return _entry(provider, microversion.requested(req), req.environ)


def _entry(provider: ResourceProvider | Provider, version: Any, environ: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a provider, with links below the mount prefix of ``environ``."""
    url = http.url(environ, 'resource_providers', provider.uuid)
    below = [{'rel': name, 'href': f'{url}/{name}'} for name, since in _SUB_RESOURCES if version >= since]
    body = {
        'uuid': provider.uuid,
        'name': provider.name,
        'generation': provider.generation,
        'links': [{'rel': 'self', 'href': url}, *below],
    }
    if version >= (1, 14):
        body['parent_provider_uuid'] = provider.parent_provider_uuid
        body['root_provider_uuid'] = provider.root_provider_uuid
    return body


def _canonical(uuid: str | None) -> str | None:
    return None if uuid is None else uuid_spelling.canonical_uuid(uuid)


def _filters(params: MultiDict, version: Any) -> RequestGroup:
    """Read the filters that searches also have, by the rules of the microversion."""
    aggregates = parsing.parse_member_of(params.getall('member_of'), version)
    amounts, required = params.get('resources'), params.getall('required')
    if version < (1, 30):
        resources = {} if amounts is None else parsing.parse_resources(amounts)
        traits = parsing.parse_required(required, version)
    else:
        # Malformed traits are reported before malformed amounts.
        traits = parsing.parse_required(required, version)
        resources = {} if amounts is None else parsing.parse_resources(amounts)
    return RequestGroup(
        suffix='',
        use_same_provider=True,
        resources=resources,
        in_tree=_canonical(params.get('in_tree')),
        traits=traits,
        aggregates=aggregates,
    )


@operation(
    accepts_json,
    RequiresPolicy('placement:resource_providers:list'),
    failures=(
        UNKNOWN_CLASS_IN_QUERY,
        ErrorMapping(exception.TraitNotFound, 'Invalid trait(s) in "required" parameter: {error}', exc.HTTPBadRequest),
    ),
    query=requests.GET_PROVIDERS,
    responses={200: responses.PROVIDERS},
)
def list_resource_providers(req: Request, context: RequestContext, params: MultiDict) -> Response:
    """List the providers that pass every filter of the query string.

    A tree that is all that is asked for is read from the tables, because it is small.
    """
    group = _filters(params, microversion.requested(req))
    name, uuid = params.get('name') or None, _canonical(params.get('uuid'))
    providers: list[ResourceProvider] | list[Provider]
    if set(params) == {'in_tree'}:
        providers = ResourceProvider.list_tree(context, str(group.in_tree))
        entries = [orjson.dumps(_entry(provider, microversion.requested(req), {})) for provider in providers]
    else:
        snapshot = context.provider_cache.up_to_date()
        listed = list(filter_providers(snapshot, group, name, uuid))
        providers = [partition.providers[position] for partition, positions in listed for position in positions]
        entries = _entries(req, listed)
    members = {'resource_providers': ('[]', entries)}
    times = [provider.modified for provider in providers]
    latest = max(filter(None, times), default=http.now())
    return http.fragments_response(req, members, last_modified=latest)


def _entries(req: Request, listed: Iterable[tuple[Partition, Sequence[int]]]) -> list[bytes]:
    """Encode each provider in the form of ``_entry``, without a mount prefix. The cache keeps the results."""
    version = microversion.requested(req)
    form = ('entry', version >= (1, 14), *(version >= since for _, since in _SUB_RESOURCES))

    def write(provider: Provider) -> bytes:
        # Copied, because the bytes that orjson returns occupy more memory than their length, and these are cached.
        return bytes(memoryview(orjson.dumps(_entry(provider, version, {}))))

    entries: list[bytes] = []
    for partition, positions in listed:
        entries += partition.fragments(form, positions, write)
    return entries


@operation(
    JsonBody(requests.POST_PROVIDER),
    RequiresPolicy('placement:resource_providers:create'),
    responses=(((1, 20), {200: responses.PROVIDER}), ((1, 0), {201: None})),
)
def create_resource_provider(req: Request, context: RequestContext, data: dict[str, Any]) -> Response:
    """Create a provider.

    The response is 201 without a body below 1.20, and 200 with the provider from 1.20 on.
    """
    name, uuid = data['name'], _canonical(data.get('uuid')) or uuidutils.generate_uuid()
    parent = _canonical(data.get('parent_provider_uuid'))
    if not name:
        raise exc.HTTPBadRequest(f'Unable to create resource provider "", {uuid}: the name must not be empty')
    try:
        provider = ResourceProvider.create(context, name=name, uuid=uuid, parent_provider_uuid=parent)
    except (exception.ParentProviderIsSelf, exception.ParentProviderNotFound) as error:
        raise exc.HTTPBadRequest(f'Unable to create resource provider "{name}", {uuid}: {error}') from error
    location = http.url(req.environ, 'resource_providers', uuid)
    if microversion.requested(req) < (1, 20):
        return http.empty_response(req, 201, location=location)
    response = http.json_response(req, _serialize(req, provider), last_modified=provider.modified)
    response.location = req.host_url + location
    return response


def require_provider(context: RequestContext, path: Mapping[str, str]) -> None:
    """Check that the provider in the path exists.

    :raises ResourceProviderNotFound: it does not exist.
    """
    ResourceProvider.get_by_uuid(context, path['uuid'])


@operation(accepts_json, RequiresPolicy('placement:resource_providers:show'), responses={200: responses.PROVIDER})
def get_resource_provider(req: Request, context: RequestContext, uuid: str) -> Response:
    """Show one provider."""
    provider = ResourceProvider.get_by_uuid(context, uuid)
    return http.json_response(req, _serialize(req, provider), last_modified=provider.modified)


@operation(
    JsonBody(requests.PUT_PROVIDER),
    RequiresPolicy('placement:resource_providers:update'),
    failures=(
        ErrorMapping(exception.ParentProviderNotFound, 'Unable to save resource provider {uuid}: {error}'),
        ErrorMapping(exception.Invalid, 'Unable to save resource provider {uuid}: {error}'),
        ErrorMapping(
            exception.DuplicateProviderName,
            'Conflicting resource provider {name} already exists. The provider with this name: {holder}',
        ),
    ),
    responses={200: responses.PROVIDER},
    path_error=require_provider,
)
def update_resource_provider(req: Request, context: RequestContext, data: dict[str, Any], uuid: str) -> Response:
    """Rename a provider. From 1.14 on, a root can get a parent; from 1.37 on, any parent can be changed.

    If the body has no ``parent_provider_uuid``, the parent stays the same.
    """
    if 'parent_provider_uuid' in data:
        parent, reparenting = _canonical(data['parent_provider_uuid']), microversion.requested(req) >= (1, 37)
        provider = ResourceProvider.rename_and_move(context, uuid, data['name'], parent, reparenting=reparenting)
    else:
        provider = ResourceProvider.rename(context, uuid, data['name'])
    return http.json_response(req, _serialize(req, provider), last_modified=provider.modified)


@operation(
    RequiresPolicy('placement:resource_providers:delete'),
    failures=(ErrorMapping(exception.ResourceProviderNotFound, '{error} for delete'),),
    responses={204: None},
)
def delete_resource_provider(req: Request, context: RequestContext, uuid: str) -> Response:
    """Remove a provider with its inventories and associations."""
    ResourceProvider.destroy(context, uuid)
    return http.empty_response(req, 204)
