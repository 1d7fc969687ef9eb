"""A consumer is created while another request deletes it: its allocations are deleted whole or kept whole."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import tables
from placement.objects.allocation import AllocationList
from placement.web.context import RequestContext
from tests.support import applications, databases
from tests.support.event_hooks import listening
from tests.support.objects import claim, create_provider

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)


@pytest.fixture(scope='module')
def context(load_application: Callable[..., Any]) -> RequestContext:
    return applications.administrator(load_application({}).db)


def release(context: RequestContext, consumer: str) -> None:
    AllocationList.delete_all_by_consumer(context, consumer)


def clear(context: RequestContext, consumer: str) -> None:
    claim(context, {}, consumer)


@pytest.mark.parametrize('give_up', [release, clear])
def test_a_consumer_created_during_a_delete(
    context: RequestContext, give_up: Callable[[RequestContext, str], None]
) -> None:
    """The claim commits after the DELETE has found no record of the consumer and before it reads allocations."""
    host, consumer = create_provider(context, VCPU=8).uuid, str(uuid.uuid4())
    claimed: list[bool] = []

    def overtake(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith('DELETE FROM placement_allocations') and not claimed:
            claimed.append(True)
            claim(context, {host: {'VCPU': 2}}, consumer)

    with listening(context.db.engine, 'before_cursor_execute', overtake):
        give_up(context, consumer)
    assert claimed
    with context.db.reader() as tx:
        allocations = tables.allocations.c.consumer_id == consumer
        assert tx.execute(sa.select(tables.allocations.c.id).where(allocations)).all() == []
        assert tx.execute(sa.select(tables.consumers.c.id).where(tables.consumers.c.uuid == consumer)).all() == []
        assert set(tx.scalars(sa.select(tables.inventories.c.used))) == {0}
