"""The views of consumers: a search by uuid, project or user, and the allocations of one consumer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from placement import uuid_spelling
from placement.ops.page.view import BadInput, Missing, Pagination, Parameters, Sources, View
from placement.ops.reports import consumer_reports
from placement.ops.reports.tree_filter import TreeFilter

#: Maximum numbers of consumers and of allocations on one page, and of projects in the list.
_CONSUMERS, _ALLOCATIONS, _PROJECTS = 25, 100, 50


def consumers_view(sources: Sources, parameters: Parameters) -> View:
    """List the consumers that match the parameter ``q``; without it, the projects with the most consumers.

    ``trees`` counts the provider trees with a matching name or uuid, for users who search for a host here.
    """
    text, page = parameters.text('q'), parameters.page()
    data: dict[str, Any] = {'search': text, 'projects': None, 'consumers': None, 'trees': 0}
    if not text:
        data['projects'] = consumer_reports.largest_projects(sources.db, _PROJECTS)
        return View('consumers.html', 'Consumers', data)
    total, rows = consumer_reports.find_consumers(sources.db, text, (page - 1) * _CONSUMERS, _CONSUMERS)
    if not total and uuid_spelling.is_uuid(text):
        # The uuid may be in another spelling, or the consumer may have no record.
        consumer = consumer_reports.read_consumer(sources.db, uuid_spelling.canonical_uuid(text))
        if consumer is not None:
            total, rows = 1, [consumer]
    pages = Pagination(page, _CONSUMERS, total)
    trees = TreeFilter(name=text).count(sources.provider_cache.up_to_date())
    data |= {'consumers': rows, 'trees': trees, **pages.data()}
    return View('consumers.html', 'Consumers', data, {'pages': pages})


def consumer_view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the allocations of a consumer by provider, and its project, user and type."""
    if not uuid_spelling.is_uuid(uuid):
        raise BadInput(reason=f'“{uuid}” is not the uuid of a consumer.')
    consumer = consumer_reports.read_consumer(sources.db, uuid_spelling.canonical_uuid(uuid))
    if consumer is None:
        raise Missing(reason=f'There is no consumer with the uuid {uuid}.')
    pages = Pagination(parameters.page(), _ALLOCATIONS, len(consumer.allocations))
    totals: Counter[str] = Counter()
    for allocation in consumer.allocations:
        totals[allocation.resource_class] += allocation.amount
    data = {
        **vars(consumer),
        'totals': totals,
        'allocations': consumer.allocations[pages.first : pages.last],
        **pages.data(),
    }
    return View('consumer.html', f'Consumer {consumer.uuid}', data, {'pages': pages})
