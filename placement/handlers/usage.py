"""Usages: the consumed amounts of a provider's inventories, and of each class by a project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webob import Request, Response
from webob.multidict import MultiDict

from placement.exception import BadQuery
from placement.objects import usage
from placement.schemas import requests, responses
from placement.web import http, microversion
from placement.web.authentication import RequestContext
from placement.web.operation import Microversions, RequiresPolicy, accepts_json, operation


@operation(
    accepts_json, RequiresPolicy('placement:resource_providers:usages'), responses={200: responses.PROVIDER_USAGES}
)
def list_resource_provider_usages(req: Request, context: RequestContext, uuid: str) -> Response:
    """Show the amount consumed of each inventory of a provider."""
    provider, usages = usage.get_with_provider(context, uuid)
    body = {'resource_provider_generation': provider.generation, 'usages': usages}
    return http.json_response(req, body, last_modified=http.now())


def _project_of_query(req: Request) -> dict[str, str]:
    """Return the target of the policy rule: the project in the query, or nothing if it has none.

    Policy is checked before the query, so a caller that the rule does not allow gets 403 for any query.
    """
    try:
        params = http.query_params(req)
    except BadQuery:
        return {}
    return {'project_id': params['project_id']} if 'project_id' in params else {}


@operation(
    Microversions((1, 9)),
    accepts_json,
    RequiresPolicy('placement:usages', _project_of_query, default='rule:admin_or_project_reader_or_service_api'),
    query=requests.GET_USAGES,
    responses={200: responses.USAGES},
)
def list_usages(req: Request, context: RequestContext, params: MultiDict) -> Response:
    """Show the usages of the project of the query, which is the target of the policy rule, or of one of its users."""
    project, user = params['project_id'], params.get('user_id')
    usages: Mapping[str, Any]
    if microversion.requested(req) >= (1, 38):
        usages = usage.get_by_consumer_type(context, project, user, params.get('consumer_type'))
    else:
        usages = usage.get_by_project(context, project, user)
    return http.json_response(req, {'usages': usages}, last_modified=http.now())
