"""Usages: the amounts consumed of a provider's inventories, and of each class by a project."""

from __future__ import annotations

from collections.abc import Iterable

import webob

from placement.handlers import modified
from placement.objects.usage import Usage, UsageList
from placement.policies import usage as policies
from placement.schemas import responses
from placement.schemas import usage as schema
from placement.web import util
from placement.web.context import RequestContext
from placement.web.operation import JSON, Accepts, Allowed, Since, operation


def _by_class(usages: Iterable[Usage]) -> dict[str, int]:
    return {usage.resource_class: usage.usage for usage in usages}


@operation(Accepts(JSON), Allowed(policies.PROVIDER_USAGES), responses={200: responses.PROVIDER_USAGES})
def list_usages(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the amount consumed of each inventory of a provider."""
    provider, usages = UsageList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    body = {'resource_provider_generation': provider.generation, 'usages': _by_class(usages)}
    return util.json_response(req, body, last_modified=modified.now())


@operation(
    Since('1.9'), Accepts(JSON), Allowed(policies.TOTAL_USAGES), query=schema.TOTAL, responses={200: responses.USAGES}
)
def get_total_usages(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the amount of each class that a project, or one of its users, consumes on all providers."""
    params = util.validate_query_params(req, schema.TOTAL)
    usages = UsageList.get_all_by_project_user(context, params['project_id'], params.get('user_id'))
    return util.json_response(req, {'usages': _by_class(usages)}, last_modified=modified.now())
