"""A claim does not fit, and another transaction commits before the reason is read: the claim is judged again."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from placement import exception
from placement.claims.claim import replace_allocations
from placement.claims.request import ConsumerClaim
from placement.objects.resource_provider import ResourceProvider
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


def too_large(context: RequestContext, provider: str, consumer: str) -> None:
    """Claim more than the provider has for a consumer at generation 1, or a new one."""
    claims = [ConsumerClaim(consumer, 'project', 'user', {provider: {'VCPU': 9}}, 1)]
    replace_allocations(context.db, claims)


def test_the_consumer_is_written_meanwhile(context: RequestContext) -> None:
    host = create_provider(context, VCPU=8).uuid
    consumer = claim(context, {host: {'VCPU': 4}})
    with (
        committed_before_diagnosis(context, lambda: claim(context, {host: {'VCPU': 5}}, consumer)),
        pytest.raises(exception.ConsumerGenerationConflict),
    ):
        too_large(context, host, consumer)


def test_the_provider_is_deleted_meanwhile(context: RequestContext) -> None:
    host = create_provider(context, VCPU=8)
    consumer = str(uuid.uuid4())
    claims = [ConsumerClaim(consumer, 'project', 'user', {host.uuid: {'VCPU': 9}})]
    with (
        committed_before_diagnosis(context, lambda: ResourceProvider.destroy(context, host.uuid)),
        pytest.raises(exception.AllocationProviderNotFound),
    ):
        replace_allocations(context.db, claims)
