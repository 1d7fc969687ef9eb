"""Usages: what is consumed of a provider, and by a project (contract B 4.6 and 4.7)."""

from __future__ import annotations

from collections.abc import Iterable

import webob

from placement.handlers import answers, modified
from placement.objects.usage import Usage, UsageList
from placement.policies import usage as policies
from placement.schemas import usage as schema
from placement.web import microversion, util, wsgi_wrapper


def _by_class(usages: Iterable[Usage]) -> dict[str, int]:
    return {usage.resource_class: usage.usage for usage in usages}


@wsgi_wrapper.PlacementWsgify
@util.check_accept('application/json')
@answers.answered()
def list_usages(req: webob.Request) -> webob.Response:
    """Show how much of each inventory of a provider is consumed."""
    context = req.environ['placement.context']
    context.can(policies.PROVIDER_USAGES)
    provider, usages = UsageList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    body = {'resource_provider_generation': provider.generation, 'usages': _by_class(usages)}
    return util.json_response(req, body, last_modified=modified.now())


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.9')
@util.check_accept('application/json')
@answers.answered()
def get_total_usages(req: webob.Request) -> webob.Response:
    """Show how much of each class a project, or one user in it, consumes everywhere."""
    context = req.environ['placement.context']
    context.can(policies.TOTAL_USAGES)
    params = util.validate_query_params(req, schema.TOTAL)
    usages = UsageList.get_all_by_project_user(context, params['project_id'], params.get('user_id'))
    return util.json_response(req, {'usages': _by_class(usages)}, last_modified=modified.now())
