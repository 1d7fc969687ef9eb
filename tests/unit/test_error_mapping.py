"""How exceptions become HTTP errors."""

from __future__ import annotations

import pytest
from webob import exc

from placement import exception
from placement.web import error_document, error_mapping
from placement.web.error_mapping import ErrorMapping

UUID = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'


@pytest.mark.parametrize(
    ('error', 'status', 'code'),
    [
        (exception.ResourceProviderNotFound(uuid=UUID), 404, error_document.DEFAULT),
        (exception.TraitNotFound(names='A, B'), 404, error_document.DEFAULT),
        (exception.ParentProviderNotFound(), 400, error_document.DEFAULT),
        (exception.AllocationProviderNotFound(uuid=UUID), 400, error_document.DEFAULT),
        (exception.InventoryRecordNotFound(resource_class='VCPU'), 400, error_document.DEFAULT),
        (exception.ReparentingNotAllowed(), 400, error_document.DEFAULT),
        (exception.ResourceClassInUse(resource_class='X'), 409, error_document.DEFAULT),
        (exception.AllocationCapacityExceeded(resource_class='X', uuid=UUID), 409, error_document.DEFAULT),
        (exception.ProviderGenerationMismatch(), 409, error_document.CONCURRENT_UPDATE),
        (exception.ConsumerGenerationConflict(expected=1, got=2), 409, error_document.CONCURRENT_UPDATE),
        (exception.DuplicateProviderName(name='x'), 409, error_document.DUPLICATE_NAME),
        (exception.DuplicateProviderUuid(uuid=UUID), 409, error_document.DUPLICATE_NAME),
        (exception.CannotDeleteParentProvider(uuid=UUID), 409, error_document.PROVIDER_CANNOT_DELETE_PARENT),
        (exception.ResourceProviderInUse(uuid=UUID), 409, error_document.PROVIDER_IN_USE),
        (exception.InventoryInUse(uuid=UUID, resource_classes='VCPU'), 409, error_document.INVENTORY_INUSE),
    ],
)
def test_general_rules(error: exception.PlacementError, status: int, code: str) -> None:
    http_error = error_mapping.http_error(error, (), {})
    assert http_error is not None
    assert (http_error.code, http_error.comment, http_error.detail) == (status, code, str(error))


def test_an_operation_can_change_the_text_only() -> None:
    lead = ErrorMapping(exception.InventoryInUse, 'update conflict: {error}')
    error = error_mapping.http_error(exception.InventoryInUse(uuid=UUID, resource_classes='VCPU, DISK_GB'), [lead], {})
    assert isinstance(error, exc.HTTPConflict)
    assert error.detail == f"update conflict: Inventory for 'VCPU, DISK_GB' on resource provider '{UUID}' in use."
    assert error.comment == error_document.INVENTORY_INUSE


def test_an_operation_can_change_status_and_code() -> None:
    special = ErrorMapping(exception.NotFound, '{error}', exc.HTTPBadRequest, error_document.CONCURRENT_UPDATE)
    error = error_mapping.http_error(exception.TraitNotFound(names='A'), [special], {})
    assert isinstance(error, exc.HTTPBadRequest)
    assert error.comment == error_document.CONCURRENT_UPDATE


def test_the_first_rule_that_matches_is_used() -> None:
    rules = (
        ErrorMapping(exception.ProviderGenerationMismatch, 'first'),
        ErrorMapping(exception.ConcurrentUpdate, 'second'),
    )
    errors = (exception.ProviderGenerationMismatch(), exception.ConcurrentProviderUpdate())
    http_errors = [error_mapping.http_error(error, rules, {}) for error in errors]
    assert [error and error.detail for error in http_errors] == ['first', 'second']


def test_values_in_texts_are_not_formatted_again() -> None:
    rule = ErrorMapping(exception.DuplicateProviderName, '{name} of {owner}')
    taken = exception.DuplicateProviderName(name='{name!r}')
    error = error_mapping.http_error(taken, [rule], {'owner': '{0.__class__}'})
    assert error is not None
    assert error.detail == '{name!r} of {0.__class__}'


def test_messages_of_bad_queries_are_not_formatted() -> None:
    error = error_mapping.http_error(exception.BadQuery('Got: {x}'), (), {})
    assert isinstance(error, exc.HTTPBadRequest)
    assert error.detail == 'Got: {x}'


@pytest.mark.parametrize('error', [exception.PlacementError(), exception.PolicyNotAuthorized(action='x')])
def test_other_exceptions_are_not_mapped(error: exception.PlacementError) -> None:
    assert error_mapping.http_error(error, (), {}) is None
