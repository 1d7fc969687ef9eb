"""The views of consumers: a search by uuid, project or user, and the allocations of one consumer."""

from __future__ import annotations

from typing import Any

from placement.page.parameters import BadInput, Missing, Parameters
from placement.page.rendering import Pages, View
from placement.page.sources import Sources
from placement.reports import consumers, tree_list
from placement.reports.tree_filter import TreeFilter
from placement.web import validation

#: Maximum numbers of consumers and allocations on one page, and of listed projects.
_CONSUMERS, _ALLOCATIONS, _PROJECTS = 25, 100, 50


def list_view(sources: Sources, parameters: Parameters) -> View:
    """List the consumers that match the parameter ``q``; without it, the projects with the most consumers.

    ``trees`` is how many provider trees have a name or uuid that matches, for users who search for a host here.
    """
    text, page = parameters.text('q'), parameters.page()
    data: dict[str, Any] = {'search': text, 'projects': None, 'consumers': None, 'trees': 0}
    if not text:
        data['projects'] = consumers.by_project(sources.db, _PROJECTS)
        return View('consumers.html', 'Consumers', data)
    found = consumers.find(sources.db, text, (page - 1) * _CONSUMERS, _CONSUMERS)
    if not found.consumers and validation.is_uuid(text):
        # In another spelling, or without a record of the consumer.
        one = consumers.one(sources.db, validation.canonical_uuid(text))
        found = consumers.ConsumerPage(1, [one]) if one else found
    pages = Pages(page, _CONSUMERS, found.consumers)
    trees = tree_list.listing(sources.provider_cache.current(), TreeFilter(name=text), count=0).trees
    data |= {'consumers': found.rows, 'trees': trees, **pages.data()}
    return View('consumers.html', 'Consumers', data, {'pages': pages})


def view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the allocations of a consumer by provider, and its project, user and type."""
    if not validation.is_uuid(uuid):
        raise BadInput(reason=f'A consumer is given by its uuid, which “{uuid}” is not.')
    found = consumers.one(sources.db, validation.canonical_uuid(uuid))
    if found is None:
        raise Missing(reason=f'There is no consumer with the uuid {uuid}.')
    pages = Pages(parameters.page(), _ALLOCATIONS, len(found.allocations))
    totals: dict[str, int] = {}
    for one in found.allocations:
        totals[one.resource_class] = totals.get(one.resource_class, 0) + one.amount
    data = {
        'uuid': found.uuid,
        'project': found.project,
        'user': found.user,
        'generation': found.generation,
        'type': found.type,
        'totals': totals,
        'allocations': found.allocations[pages.first : pages.last],
        **pages.data(),
    }
    return View('consumer.html', f'Consumer {found.uuid}', data, {'pages': pages})
