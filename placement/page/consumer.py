"""The view of one consumer: all its allocations."""

from __future__ import annotations

from placement.page.parameters import BadInput, Missing, Parameters
from placement.page.rendering import Pages, View
from placement.page.sources import Sources
from placement.reports import consumers
from placement.web import validation

#: Allocations on one page.
_HELD = 100


def view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the allocations of a consumer by provider, and its project, user and type."""
    if not validation.is_uuid(uuid):
        raise BadInput(reason=f'A consumer is given by its uuid, which “{uuid}” is not.')
    found = consumers.one(sources.db, validation.canonical_uuid(uuid))
    if found is None:
        raise Missing(reason=f'There is no consumer with the uuid {uuid}.')
    pages = Pages(parameters.page(), _HELD, len(found.held))
    totals: dict[str, int] = {}
    for one in found.held:
        totals[one.resource_class] = totals.get(one.resource_class, 0) + one.amount
    data = {
        'uuid': found.uuid,
        'project': found.project,
        'user': found.user,
        'generation': found.generation,
        'type': found.type,
        'totals': totals,
        'held': found.held[pages.first : pages.last],
        **pages.data(),
    }
    return View('consumer.html', f'Consumer {found.uuid}', data, {'pages': pages})
