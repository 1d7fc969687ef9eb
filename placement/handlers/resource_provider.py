"""Resource providers: the list with its filters, and one provider."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
import webob
from oslo_utils import uuidutils
from webob import exc

from placement import exception, policies, schemas
from placement.cache import provider_list
from placement.cache.partition import Partition
from placement.cache.provider_list import ProviderFilters
from placement.candidates.providers import Provider
from placement.objects import resource_provider as objects
from placement.schemas import resource_provider as schema
from placement.schemas import responses
from placement.web import error_mapping, microversion, query, util
from placement.web.context import RequestContext
from placement.web.error_mapping import UNKNOWN_CLASS_IN_QUERY, ErrorMapping
from placement.web.operation import JSON, Consumes, Produces, RequiresPolicy, operation

# The name of each link besides ``self``, and the first microversion that has it.
_SUB_RESOURCES = (
    ('inventories', (1, 0)),
    ('usages', (1, 0)),
    ('aggregates', (1, 1)),
    ('traits', (1, 6)),
    ('allocations', (1, 11)),
)


def _serialize(req: webob.Request, provider: objects.ResourceProvider | Provider) -> dict[str, Any]:
    url = util.resource_provider_url(req.environ, provider.uuid)
    version = microversion.wanted(req)
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
    return None if uuid is None else util.canonical_uuid(uuid)


def _filters(req: webob.Request) -> ProviderFilters:
    """Read the query string, as the microversion allows it."""
    version = microversion.wanted(req)
    params = util.validate_query_params(req, schemas.for_version(schema.LIST, version))
    member_of = query.parse_member_of(params.getall('member_of'), version)
    resources = query.parse_resources(params['resources']) if 'resources' in params else {}
    traits = query.parse_required(params.getall('required'), version)
    return ProviderFilters(
        name=params.get('name') or None,
        uuid=_canonical(params.get('uuid')),
        in_tree=_canonical(params.get('in_tree')),
        member_of=member_of.any_of,
        forbidden_aggregates=member_of.forbidden,
        resources=resources,
        required=traits.required,
        forbidden=traits.forbidden,
        required_any=traits.any_of,
    )


@operation(
    Consumes(JSON),
    RequiresPolicy(policies.PROVIDERS_LIST),
    failures=(
        UNKNOWN_CLASS_IN_QUERY,
        ErrorMapping(exception.TraitNotFound, 'Invalid trait(s) in "required" parameter: {error}', exc.HTTPBadRequest),
    ),
    query=schema.LIST,
    responses={200: responses.PROVIDERS},
)
def list_resource_providers(req: webob.Request, context: RequestContext) -> webob.Response:
    """List the providers that pass every filter of the query string."""
    listed = list(provider_list.filter_providers(context.provider_cache.current(), _filters(req)))
    members = {'resource_providers': ('[]', _entries(req, listed))}
    return util.fragments_response(req, members, last_modified=provider_list.latest_change(listed))


def _entries(req: webob.Request, listed: Iterable[tuple[Partition, Sequence[int]]]) -> list[bytes]:
    """Encode each provider as ``_serialize`` describes it. The cache keeps the result for later requests."""
    version = microversion.wanted(req)
    form = ('entry', util.resource_provider_url(req.environ, ''), *(version >= since for _, since in _SUB_RESOURCES))
    form += (version >= (1, 14),)

    def write(provider: Provider) -> bytes:
        # Copied, because the bytes that orjson returns occupy more memory than their length, and these are cached.
        return bytes(memoryview(orjson.dumps(_serialize(req, provider))))

    return [entry for partition, positions in listed for entry in partition.fragments(form, positions, write)]


@operation(
    Produces(JSON, schema.POST),
    RequiresPolicy(policies.PROVIDERS_CREATE),
    responses=(((1, 20), {200: responses.PROVIDER}), ((1, 0), {201: None})),
)
def create_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Create a provider; the response is 201 without a body below 1.20, and 200 with the provider from 1.20 on."""
    version = microversion.wanted(req)
    data = util.extract_json(req.body, schemas.for_version(schema.POST, version))
    name, uuid = data['name'], _canonical(data.get('uuid')) or uuidutils.generate_uuid()
    lead = 'Unable to create resource provider "{name}", {uuid}: '
    if not name:
        raise exc.HTTPBadRequest(lead.format(name=name, uuid=uuid) + 'the name must not be empty')
    with error_mapping.mapped(
        ErrorMapping(exception.ParentProviderIsSelf, lead + '{error}'),
        ErrorMapping(exception.ParentProviderNotFound, lead + '{error}'),
        name=name,
        uuid=uuid,
    ):
        provider = objects.ResourceProvider.create(
            context, name=name, uuid=uuid, parent_provider_uuid=_canonical(data.get('parent_provider_uuid'))
        )
    location = util.resource_provider_url(req.environ, uuid)
    if version < (1, 20):
        return util.empty_response(req, 201, location=location)
    response = util.json_response(req, _serialize(req, provider), last_modified=provider.modified)
    response.location = req.host_url + location
    return response


@operation(Consumes(JSON), RequiresPolicy(policies.PROVIDERS_SHOW), responses={200: responses.PROVIDER})
def get_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show one provider."""
    provider = objects.ResourceProvider.get_by_uuid(context, util.wsgi_path_item(req.environ, 'uuid'))
    return util.json_response(req, _serialize(req, provider), last_modified=provider.modified)


@operation(
    Produces(JSON, schema.PUT),
    RequiresPolicy(policies.PROVIDERS_UPDATE),
    failures=(
        ErrorMapping(exception.ParentProviderNotFound, 'Unable to save resource provider {uuid}: {error}'),
        ErrorMapping(exception.Invalid, 'Unable to save resource provider {uuid}: {error}'),
        ErrorMapping(exception.DuplicateProviderName, 'Conflicting resource provider {name} already exists'),
    ),
    responses={200: responses.PROVIDER},
)
def update_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Rename a provider and, from 1.14, give a root a parent, from 1.37 change any parent.

    Without the member for it the parent stays as it is.
    """
    version = microversion.wanted(req)
    uuid = util.wsgi_path_item(req.environ, 'uuid')
    with missing_provider_first(context, uuid):
        data = util.extract_json(req.body, schemas.for_version(schema.PUT, version))
    provider = objects.ResourceProvider.reference(context, uuid)
    if 'parent_provider_uuid' in data:
        parent = _canonical(data['parent_provider_uuid'])
        provider.rename_and_move(data['name'], parent, reparenting=version >= (1, 37))
    else:
        provider.rename(data['name'])
    return util.json_response(req, _serialize(req, provider), last_modified=provider.modified)


@operation(
    RequiresPolicy(policies.PROVIDERS_DELETE),
    failures=(ErrorMapping(exception.ResourceProviderNotFound, '{error} for delete'),),
    responses={204: None},
)
def delete_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove a provider with its inventories and associations."""
    objects.ResourceProvider.destroy(context, util.wsgi_path_item(req.environ, 'uuid'))
    return util.empty_response(req, 204)


@contextlib.contextmanager
def missing_provider_first(context: RequestContext, uuid: str) -> Iterator[None]:
    """Report a provider that does not exist before an invalid body, which the block reads.

    If the block succeeds, no statement is executed: the write that follows detects a missing provider.

    :param uuid: of the provider in the path.
    :raises ResourceProviderNotFound: the block raised HTTPBadRequest, and there is no such provider.
    """
    try:
        yield
    except exc.HTTPBadRequest:
        objects.ResourceProvider.get_by_uuid(context, uuid)
        raise
