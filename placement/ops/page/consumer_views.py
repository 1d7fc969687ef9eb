"""The views of consumers: a search by uuid or project, and the allocations of one consumer."""

from __future__ import annotations

import contextlib
from collections import Counter

from placement import exception, uuid_spelling
from placement.ops.page.view import Pagination, Parameters, Sources, View
from placement.ops.reports import consumer_reports

#: Maximum numbers of consumers and of allocations on one page.
_CONSUMERS, _ALLOCATIONS = 25, 100


def consumers_view(sources: Sources, parameters: Parameters) -> View:
    """List the consumers of the project with the id ``q``, or otherwise the one with this uuid."""
    text, page = parameters.text('q'), parameters.page()
    if not text:
        return View('consumers.html', 'Consumers', {'search': text, 'consumers': [], 'total': 0})
    total, rows = consumer_reports.consumers_of_project(sources.db, text, (page - 1) * _CONSUMERS, _CONSUMERS)
    if not total and uuid_spelling.is_uuid(text):
        with contextlib.suppress(consumer_reports.ConsumerNotFound):
            total, rows = 1, [consumer_reports.read_consumer(sources.db, text)]
    pages = Pagination(page, _CONSUMERS, total)
    data = {'search': text, 'consumers': rows, **pages.data()}
    return View('consumers.html', 'Consumers', data, {'pages': pages})


def consumer_view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the allocations of a consumer by provider, and its project, user and type."""
    if not uuid_spelling.is_uuid(uuid):
        raise exception.BadQuery(f'“{uuid}” is not the uuid of a consumer.')
    consumer = consumer_reports.read_consumer(sources.db, uuid)
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
