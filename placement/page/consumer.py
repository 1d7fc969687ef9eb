"""The page of one consumer: all it holds."""

from __future__ import annotations

from placement.page.asked import Asked, BadInput, Missing
from placement.page.desk import Desk
from placement.page.rendering import Pages, View
from placement.reports import consumers
from placement.web import validation

_HELD = 100


def view(desk: Desk, asked: Asked, uuid: str) -> View:
    """What a consumer holds of which provider, and whose it is."""
    if not validation.is_uuid(uuid):
        raise BadInput(reason=f'A consumer is given by its uuid, which “{uuid}” is not.')
    found = consumers.one(desk.db, validation.canonical_uuid(uuid))
    if found is None:
        raise Missing(reason=f'There is no consumer with the uuid {uuid}.')
    pages = Pages(asked.page(), _HELD, len(found.held))
    totals: dict[str, int] = {}
    for one in found.held:
        totals[one.resource_class] = totals.get(one.resource_class, 0) + one.amount
    data = {
        'uuid': found.uuid,
        'project': found.project,
        'user': found.user,
        'generation': found.generation,
        'totals': totals,
        'held': found.held[pages.first : pages.last],
        **pages.data(),
    }
    return View('consumer.html', f'Consumer {found.uuid}', data, {'pages': pages})
