"""A consumer is created while another request deletes it: its allocations are deleted whole or kept whole."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement import exception
from placement.claims.claim import delete_allocations
from placement.db import tables
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
    delete_allocations(context.db, consumer)


def clear(context: RequestContext, consumer: str) -> None:
    claim(context, {}, consumer)


@pytest.mark.parametrize('give_up', [release, clear])
def test_a_consumer_created_during_a_delete(
    context: RequestContext, give_up: Callable[[RequestContext, str], None]
) -> None:
    """The claim commits after the DELETE has found no record of the consumer and before it reads allocations.

    MySQL has no DELETE ... RETURNING. There one statement reads both, and the claim commits after it.
    """
    returning = context.db.engine.dialect.delete_returning
    host, consumer = create_provider(context, VCPU=8).uuid, str(uuid.uuid4())
    claimed: list[bool] = []

    def overtake(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        first_look = 'DELETE FROM placement_allocations' if returning else 'FROM placement_allocations'
        if first_look in statement and not claimed:
            claimed.append(True)
            claim(context, {host: {'VCPU': 2}}, consumer)

    event = 'before_cursor_execute' if returning else 'after_cursor_execute'
    with listening(context.db.engine, event, overtake), contextlib.suppress(exception.NotFound):
        give_up(context, consumer)
    assert claimed
    with context.db.reader() as tx:
        allocations = tables.allocations.c.consumer_id == consumer
        rows = tx.execute(sa.select(tables.allocations.c.id).where(allocations)).all()
        consumers = tx.execute(sa.select(tables.consumers.c.id).where(tables.consumers.c.uuid == consumer)).all()
        inventories = tables.inventories.c
        used = tx.scalar(sa.select(inventories.used).order_by(inventories.id.desc()).limit(1))
        assert (len(rows), len(consumers), used) == ((0, 0, 0) if returning else (1, 1, 2))
