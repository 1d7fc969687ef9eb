"""The expected failures, as exceptions that carry data and know nothing of HTTP.

The messages for clients are in api-ref. ``placement/web/error_responses.py`` maps exceptions to HTTP statuses and error
codes; handlers declare what an operation puts before the message.
"""

from __future__ import annotations

from typing import Any

#: The beginning of the texts of most errors about a query string.
INVALID_QUERY = 'Invalid query string parameters: '


class PlacementError(Exception):
    """Base of all expected failures.

    ``data`` has the values named in ``template`` and ``details``; each is also an attribute.
    """

    #: The message for clients.
    template = 'The request failed.'
    #: What follows the message in the log. It is a template of its own, because clients compare messages.
    details = ''

    def __init__(self, **data: Any) -> None:
        self.data = data
        super().__init__(self.template.format(**data))

    @property
    def for_operators(self) -> str:
        """The message in one line, with details that clients of the API do not get."""
        return f'{self}{self.details.format(**self.data)}'

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__['data'][name]
        except KeyError:
            raise AttributeError(name) from None


# Look-ups -----------------------------------------------------------------------------------------------


class NotFound(PlacementError):
    """Something that the request names does not exist."""


class ResourceProviderNotFound(NotFound):
    template = 'No resource provider with uuid {uuid} found'


class ResourceClassNotFound(NotFound):
    """``names`` is the first missing class."""

    template = 'No such resource class {names}'


class TraitNotFound(NotFound):
    """``names`` lists every missing trait, separated by comma and space."""

    template = 'No such trait(s): {names}.'


class InventoryNotFound(NotFound):
    template = 'No inventory of class {resource_class} for {uuid}'


class InventoryRecordNotFound(NotFound):
    """The class exists, but the provider has no inventory of it (PUT of one record)."""

    template = 'No inventory record with resource class {resource_class}'


class AllocationsNotFound(NotFound):
    template = "No allocations for consumer '{consumer}'"


class ParentProviderNotFound(NotFound):
    template = 'parent provider UUID does not exist'


class AllocationProviderNotFound(NotFound):
    template = "Allocation for resource provider '{uuid}' that does not exist."


# Requests that are malformed or not allowed ----------------------------------------------------------------


class Invalid(PlacementError):
    """The request is well-formed, but not allowed."""


class BadQuery(PlacementError):
    """The query string is malformed; ``text`` says how."""

    template = '{text}'

    def __init__(self, text: str) -> None:
        super().__init__(text=text)


class DuplicateQueryKey(BadQuery):
    """A parameter that may not be repeated is repeated."""


class BadQueryValue(BadQuery):
    """The value of a parameter is not allowed, alone or together with others."""


class MissingQueryValue(BadQuery):
    """A parameter that the query requires is missing."""


class ParentProviderIsSelf(Invalid):
    template = 'parent provider UUID cannot be same as UUID'


class ReparentingNotAllowed(Invalid):
    template = 're-parenting a provider is not currently allowed'


class UnparentingNotAllowed(Invalid):
    template = 'un-parenting a provider is not currently allowed'


class ProviderTreeLoop(Invalid):
    template = 'creating loop in the provider tree is not allowed.'


class CannotUpdateStandardResourceClass(Invalid):
    template = 'Cannot update standard resource class {resource_class}'


class CannotDeleteStandardResourceClass(Invalid):
    template = 'Cannot delete standard resource class {name}'


class CannotDeleteStandardTrait(Invalid):
    template = 'Cannot delete standard trait {name}'


class InvalidInventoryCapacity(Invalid):
    """The capacity is below what the microversion accepts; ``rule`` is the text for it."""

    template = "Invalid inventory for '{resource_class}' on resource provider '{uuid}'. {rule}"


# Conflicts with the stored state -----------------------------------------------------------------------


class Conflict(PlacementError):
    """The request is valid but conflicts with what is stored."""


class DuplicateProviderName(Conflict):
    """``holder`` is the uuid of the provider that has the name, or says that it was deleted meanwhile."""

    template = 'Conflicting resource provider name: {name} already exists. The provider with this name: {holder}'


class DuplicateProviderUuid(Conflict):
    template = 'Conflicting resource provider uuid: {uuid} already exists'


class CannotDeleteParentProvider(Conflict):
    template = 'Unable to delete parent resource provider {uuid}: It has child resource providers.'


class ResourceProviderInUse(Conflict):
    template = 'Unable to delete resource provider {uuid}: Resource provider has allocations.'


class InventoryInUse(Conflict):
    """``resource_classes`` lists class names in the order of their ids, separated by comma and space."""

    template = "Inventory for '{resource_classes}' on resource provider '{uuid}' in use."


class InventoryExists(Conflict):
    template = "Inventory for '{resource_class}' on resource provider '{uuid}' already exists"


class NameTaken(Conflict):
    """A resource class or a trait has the name already."""


class ResourceClassExists(NameTaken):
    template = 'Resource class already exists: {resource_class}'


class ResourceClassInUse(Conflict):
    template = 'Class is in use in inventory: {name}'


class MaxRetriesExceeded(Conflict):
    template = 'Max retries of DB transaction exceeded attempting to {action}'


class TraitExists(NameTaken):
    template = 'Trait already exists: {name}'


class TraitInUse(Conflict):
    template = 'The trait {name} is in use by a resource provider.'


class InvalidAllocationInventory(Conflict):
    template = (
        "Unable to allocate inventory: Inventory for '{resource_classes}' on resource provider '{uuids}' invalid."
    )
    details = ' Consumer {consumer}.'


class AllocationConstraintsViolated(Conflict):
    template = (
        "Unable to allocate inventory: Unable to create allocation for '{resource_class}' on resource provider"
        " '{uuid}'. The requested amount would violate inventory constraints."
    )
    details = (
        ' Requested {amount}, min_unit {min_unit}, max_unit {max_unit}, step_size {step_size}, consumer {consumer}.'
    )


class AllocationCapacityExceeded(Conflict):
    template = (
        "Unable to allocate inventory: Unable to create allocation for '{resource_class}' on resource provider"
        " '{uuid}'. The requested amount would exceed the capacity."
    )
    details = ' Requested {amount}, used {used}, capacity {capacity}, consumer {consumer}.'


class ConcurrentUpdate(Conflict):
    """The data changed after the caller read it. All subclasses have the code ``placement.concurrent_update``."""

    template = 'Another thread concurrently updated the data. Please retry your update'

    @property
    def for_operators(self) -> str:
        """The message with its details, and the first line of the error that began it, such as that of the driver."""
        cause = self.__cause__
        while cause is not None and cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause or '').partition('\n')[0]
        return f'{super().for_operators}: {reason}' if reason else super().for_operators


class ConcurrentProviderUpdate(ConcurrentUpdate):
    """Another transaction incremented the provider's generation first, or all retries failed because of conflicts."""

    template = 'Another thread concurrently updated the resource provider data. Please retry your update'


class ProviderGenerationMismatch(ConcurrentUpdate):
    """The generation that the caller ``sent`` for a provider is not the stored one, ``actual``."""

    template = "Resource provider's generation already changed. Please update the generation and try again."
    details = ' Resource provider {uuid}: actual: {actual}, sent: {sent}.'


class ReshapeGenerationConflict(ConcurrentUpdate):
    """A generation that a reshape sent for a provider, ``given``, is not the stored one, ``actual``."""

    template = 'resource provider generation conflict for provider {uuid}: actual: {actual}, given: {given}'


class ConsumerGenerationConflict(ConcurrentUpdate):
    """``expected`` and ``got`` are generations as text (api-ref/allocations.md#the-generation-of-a-consumer)."""

    template = 'consumer generation conflict - expected {expected} but got {got}'
    details = ': consumer {consumer}'


class PolicyNotAuthorized(PlacementError):
    template = 'Policy does not allow {action} to be performed'


# The database ------------------------------------------------------------------------------------------


class DatabaseUnavailable(PlacementError):
    """The database cannot be reached; a retry may succeed. ``__cause__`` leads to the driver's exception."""

    template = 'The database is not available at the moment.'

    @property
    def for_operators(self) -> str:
        """The message, and the first line of the driver's message."""
        cause = self.__cause__
        while isinstance(cause, PlacementError):
            cause = cause.__cause__
        reason = str(cause or '').partition('\n')[0]
        return f'{self} {reason}'.rstrip()


class DatabaseReadOnly(DatabaseUnavailable):
    """The database rejects changes: it is a standby, in maintenance, or has no disk space left. Nothing was changed."""

    template = 'The database is read-only at the moment.'


class TransactionInterrupted(DatabaseUnavailable):
    """A conflict, a cancellation or an error of COMMIT ended one transaction. The database may still be available."""


class CommitInDoubt(TransactionInterrupted):
    """COMMIT failed, and the transaction may or may not have been committed. The connection is closed."""

    template = (
        'The database is not available at the moment.'
        ' The change may have been made, or may still be made: read before you repeat it.'
    )


# The configuration ----------------------------------------------------------------------------------------


class ConfigurationInvalid(PlacementError):
    """The service cannot start with this configuration; ``reason`` is one line for the operator."""

    template = '{reason}'
