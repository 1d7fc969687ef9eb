"""Another transaction commits between two statements of a claim or of a deletion, which decides anew."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement import exception
from placement.claims.claim import delete_allocations, replace_allocations
from placement.claims.requested import ConsumerClaim
from placement.db import tables
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support import applications, databases
from tests.support.event_hooks import listening
from tests.support.objects import claim, create_provider

pytestmark = databases.ON_EACH


@pytest.fixture(scope='module')
def context(load_application: Callable[..., Any]) -> RequestContext:
    return applications.administrator(load_application({}).db)


@contextlib.contextmanager
def committed_before_diagnosis(context: RequestContext, change: Callable[[], object]) -> Iterator[None]:
    """Call ``change`` once, when a claim was rolled back and before the first statement that reads the reason."""
    called: list[str] = []

    def listener(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if 'ISOLATION LEVEL REPEATABLE READ' in statement and not called:
            called.append(statement)
            change()

    with listening(context.db.engine, 'before_cursor_execute', listener):
        yield
    assert called


@pytest.mark.parametrize('change', ['claim', 'deletion'])
def test_a_claim_of_too_much_is_overtaken(context: RequestContext, change: str) -> None:
    """Its consumer is written, or the provider is deleted: the error is about the state after that."""
    host, consumer = create_provider(context, VCPU=8).uuid, str(uuid.uuid4())
    overtake, error = {
        'claim': (lambda: claim(context, {host: {'VCPU': 4}}, consumer), exception.ConsumerGenerationConflict),
        'deletion': (lambda: ResourceProvider.destroy(context, host), exception.AllocationProviderNotFound),
    }[change]
    claims = [ConsumerClaim(consumer, 'project', 'user', {host: {'VCPU': 9}}, None)]
    with committed_before_diagnosis(context, overtake), pytest.raises(error):
        replace_allocations(context.db, claims)


# A consumer is created while another request deletes it ----------------------------------------------------


@pytest.mark.parametrize(
    'give_up',
    [
        lambda context, consumer: delete_allocations(context.db, consumer),
        lambda context, consumer: claim(context, {}, consumer),
    ],
    ids=['delete', 'clear'],
)
def test_a_consumer_created_during_a_delete(
    context: RequestContext, give_up: Callable[[RequestContext, str], object]
) -> None:
    """The claim commits after the request has found neither the consumer nor allocations."""
    host, consumer = create_provider(context, VCPU=8).uuid, str(uuid.uuid4())
    claimed: list[bool] = []

    def overtake(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if 'FROM placement_allocations' in statement and not claimed:
            claimed.append(True)
            claim(context, {host: {'VCPU': 2}}, consumer)

    with listening(context.db.engine, 'after_cursor_execute', overtake), contextlib.suppress(exception.NotFound):
        give_up(context, consumer)
    assert claimed
    with context.db.reader() as tx:
        allocations = tables.allocations.c.consumer_id == consumer
        rows = tx.execute(sa.select(tables.allocations.c.id).where(allocations)).all()
        consumers = tx.execute(sa.select(tables.consumers.c.id).where(tables.consumers.c.uuid == consumer)).all()
        inventories = tables.inventories.c
        used = tx.scalar(sa.select(inventories.used).order_by(inventories.id.desc()).limit(1))
        assert (len(rows), len(consumers), used) == (1, 1, 2)
