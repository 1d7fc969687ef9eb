"""Usages: what is consumed of a provider, and by a project."""

from __future__ import annotations

from collections.abc import Iterable

import webob

from placement.handlers import modified
from placement.objects.usage import Usage, UsageList
from placement.policies import usage as policies
from placement.schemas import shown
from placement.schemas import usage as schema
from placement.web import util
from placement.web.context import RequestContext
from placement.web.operation import JSON, Accepts, Allowed, Since, operation


def _by_class(usages: Iterable[Usage]) -> dict[str, int]:
    return {usage.resource_class: usage.usage for usage in usages}


@operation(Accepts(JSON), Allowed(policies.PROVIDER_USAGES), gives={200: shown.PROVIDER_USAGES})
def list_usages(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show how much of each inventory of a provider is consumed."""
    provider, usages = UsageList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    body = {'resource_provider_generation': provider.generation, 'usages': _by_class(usages)}
    return util.json_response(req, body, last_modified=modified.now())


@operation(Since('1.9'), Accepts(JSON), Allowed(policies.TOTAL_USAGES), query=schema.TOTAL, gives={200: shown.USAGES})
def get_total_usages(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show how much of each class a project, or one user in it, consumes everywhere."""
    params = util.validate_query_params(req, schema.TOTAL)
    usages = UsageList.get_all_by_project_user(context, params['project_id'], params.get('user_id'))
    return util.json_response(req, {'usages': _by_class(usages)}, last_modified=modified.now())
