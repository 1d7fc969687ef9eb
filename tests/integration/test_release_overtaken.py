"""A consumer is created while another request deletes it: its allocations are deleted whole or kept whole."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.claims.request import ConsumerClaim
from placement.db import tables
from placement.db.api import Database
from placement.objects.allocation import AllocationList
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support import databases, mirrors

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)


@pytest.fixture(scope='module')
def db(database: sa.URL) -> Iterator[Database]:
    with mirrors.database(database.render_as_string(hide_password=False)) as opened:
        opened.sync()
        yield opened


@pytest.fixture(scope='module')
def context(db: Database) -> RequestContext:
    return RequestContext(conf=None, db=db)  # type: ignore[arg-type]


def release(context: RequestContext, consumer: str) -> None:
    AllocationList.delete_all_by_consumer(context, consumer)


def clear(context: RequestContext, consumer: str) -> None:
    AllocationList.replace_all(context, [ConsumerClaim(consumer, 'project', 'user', {})])


@pytest.mark.parametrize('give_up', [release, clear])
def test_a_consumer_created_during_a_delete(
    context: RequestContext, db: Database, give_up: Callable[[RequestContext, str], None]
) -> None:
    """The claim commits after the DELETE has found no record of the consumer and before it reads allocations."""
    host, consumer = str(uuid.uuid4()), str(uuid.uuid4())
    provider = ResourceProvider.create(context, name=host, uuid=host)
    provider.set_inventories([Inventory.from_request('VCPU', {'total': 8})])
    claimed: list[bool] = []

    def overtake(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith('DELETE FROM placement_allocations') and not claimed:
            claimed.append(True)
            wanted = ConsumerClaim(consumer, 'project', 'user', {host: {'VCPU': 2}})
            AllocationList.replace_all(context, [wanted])

    sa.event.listen(db.engine, 'before_cursor_execute', overtake)
    try:
        give_up(context, consumer)
    finally:
        sa.event.remove(db.engine, 'before_cursor_execute', overtake)
    assert claimed
    with db.reader() as tx:
        allocations = tables.allocations.c.consumer_id == consumer
        assert tx.execute(sa.select(tables.allocations.c.id).where(allocations)).all() == []
        assert tx.execute(sa.select(tables.consumers.c.id).where(tables.consumers.c.uuid == consumer)).all() == []
        assert set(tx.scalars(sa.select(tables.inventories.c.used))) == {0}
