"""A provider is created or deleted between two statements of a write, and the answer is about one state."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from placement import exception
from placement.objects import aggregate
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support import applications, databases
from tests.support.event_hooks import listening
from tests.support.objects import create_provider


@pytest.fixture(scope='module')
def context(load_application: Callable[..., Any]) -> RequestContext:
    return applications.administrator(load_application({}).db)


@contextlib.contextmanager
def overtaken(context: RequestContext, event: str, start: str, change: Callable[[], object]) -> Iterator[None]:
    """Call ``change`` once, at an event of the first statement that begins with ``start`` and is about providers."""
    called: list[str] = []

    def listener(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(start) and 'placement_resource_providers' in statement and not called:
            called.append(statement)
            change()

    with listening(context.db.engine, event, listener):
        yield
    assert called


def created_after(context: RequestContext, start: str, identity: str) -> contextlib.AbstractContextManager[None]:
    """Create the provider when the first statement of a write has not found it."""
    return overtaken(
        context,
        'after_cursor_execute',
        start,
        lambda: ResourceProvider.create(context, name=f'new {identity}', uuid=identity),
    )


@databases.ON_EACH
def test_a_provider_created_during_its_renaming_is_not_reported_as_renamed(context: RequestContext) -> None:
    identity = str(uuid.uuid4())
    with (
        created_after(context, 'UPDATE', identity),
        pytest.raises(exception.ResourceProviderNotFound),
    ):
        ResourceProvider.rename(context, identity, f'renamed {identity}')
    assert ResourceProvider.get_by_uuid(context, identity).name == f'new {identity}'


@databases.ON_EACH
@pytest.mark.parametrize(('start', 'generation'), [('SELECT', None), ('UPDATE', 0)])
def test_the_aggregates_of_a_provider_created_meanwhile_are_replaced(
    context: RequestContext, start: str, generation: int | None
) -> None:
    """It has the generation that was sent, if one was, so there is no conflict to report."""
    identity, member_of = str(uuid.uuid4()), [str(uuid.uuid4())]
    with created_after(context, start, identity):
        aggregate.replace(context, identity, member_of, generation)
    assert aggregate.get_with_provider(context, identity)[1] == member_of


@databases.ON_EACH
def test_a_provider_created_meanwhile_may_have_another_generation(context: RequestContext) -> None:
    identity = str(uuid.uuid4())
    with created_after(context, 'UPDATE', identity), pytest.raises(exception.ProviderGenerationMismatch):
        aggregate.replace(context, identity, [], 1)


@databases.EVERYWHERE
@pytest.mark.parametrize(
    ('taken', 'error'), [('uuid', exception.DuplicateProviderUuid), ('name', exception.DuplicateProviderName)]
)
def test_what_was_taken_is_reported_although_the_holder_was_deleted(
    context: RequestContext, taken: str, error: type[exception.PlacementError]
) -> None:
    """Clients look for the text about the name: without it, another client has created the provider."""
    holder = create_provider(context)
    new = {'uuid': str(uuid.uuid4()), 'name': str(uuid.uuid4()), taken: getattr(holder, taken)}
    delete = overtaken(
        context,
        'before_cursor_execute',
        'SELECT placement_resource_providers.uuid',
        lambda: ResourceProvider.destroy(context, holder.uuid),
    )
    with delete, pytest.raises(error):
        ResourceProvider.create(context, **new)
