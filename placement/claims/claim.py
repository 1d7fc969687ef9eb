"""The claim: one transaction that writes allocations and updates ``inventories.used``; a reshape is one, too.

api-ref/allocations.md#what-a-write-means and api-ref/reshaper.md#meaning define what the request means. This docstring
is the one place that lists the statements of the transaction, its locks, its end and its retries. ``_write`` and
``_release`` execute them from top to bottom.

Order of the statements
-----------------------

The order of the statements is also the order of the locks and of the checks, the same in every claim and on every
database, so that claims wait for one another instead of deadlocking. All locks are held until the transaction ends.

1. Read the consumers, their allocations, and the ids of the providers, projects, users and types of consumers that the
   request names: one statement, no lock (``current``). Compare the generations of the consumers.
2. Custom resource classes: SELECT with a shared lock, in order of id, so that they are not renamed or deleted meanwhile
   (``NameCache.lock_ids``). None for standard classes, whose ids the process remembers.
3. Projects, then users, then types of consumers, that are not in the database yet: one INSERT each, in order of
   external id or name (``consumers.with_ids``). None is ever removed, so an id that step 1 found needs no lock. The
   process does not remember ids: step 1 reads them without another statement, and after a failover that lost a type
   another may have its id.
4. Consumers: UPDATE those that keep allocations, DELETE those that do not, each by id and guarded by the generation
   that step 1 read, then INSERT new ones in order of uuid (``consumers.write``). If there are some to update and some
   to delete, a SELECT ... FOR UPDATE locks them all in order of id before.
5. Providers: one UPDATE increments the generations, in order of id (``generation.increment_all``). It locks the rows,
   so claims on one provider execute the next steps one at a time.
6. Inventories: one UPDATE of ``used``, in order of provider and class (``usage``). Its WHERE clause is the capacity
   rule and its row count says whether everything fits. The database evaluates it on what is committed at that moment,
   at every isolation level, so there is no check that could be out of date.
7. Allocations: DELETE the old rows by id, then INSERT the new ones.
8. Increment a slot of the change log that no other transaction uses, and INSERT the entries (``db.change_log``).

Steps 4 to 8 are one ``StatementBatch``. Its row counts are checked in the order of its statements, before COMMIT, and
the first wrong one decides; ``db.batch`` says why this does not depend on the database.

Two kinds of request take fewer steps: DELETE, and a request whose only claim has empty ``allocations``. They delete the
consumer and then its allocations, with DELETE ... RETURNING; MySQL, which has none, takes step 1 before. Then follow
steps 5 (not for DELETE), 6 and 8. Allocation rows can be locked this early because a transaction that writes
allocations of a consumer has locked the consumer before. As these requests only release, step 6 does not reject them.

A reshape also replaces inventories (``inventory_replacement``), in these places of the same order:

* Before step 1 it reads the providers of its inventories, and compares their generations with those that were sent.
* Step 2 locks the classes of the inventories, too.
* Step 5 increments the generations of all providers in one UPDATE for every 300 (``generation.increment``). For those
  of the inventories it is guarded by the generation that was sent. The batch ends here.
* Then it locks all inventories of these providers, and of those at which the usage may change, in order of provider
  and class. A second batch overwrites those that are kept, and inserts the new ones, before step 6, which therefore
  checks against the new inventories and those still to be removed.
* After step 7 it deletes those, if they have no usage any more.

The end of the transaction
--------------------------

``Database.write`` commits after step 8, and rolls back on any exception. When step 6 says that something does not fit,
the transaction is rolled back (``RollbackAndDiagnose``), and only then ``diagnosis`` reads, in a transaction of its
own, which rule is violated.

Retries
-------

``Database.write`` runs the whole transaction again, from step 1, at most
``[placement_database] max_transaction_retries`` times (doc/database.md#retries-and-what-the-caller-sees), when

* a consumer was changed, created or deleted since step 1: a row count in steps 4 and 7, or a duplicate key;
* another transaction inserted the same project, user or type: a duplicate key in step 3;
* a provider was deleted since step 1: ``diagnosis`` finds that, or a foreign key, or in a reshape a row count in step
  5;
* the generation of a provider whose inventories a reshape replaces was incremented since it was read: a row count in
  step 5. The next attempt says which one;
* step 6 said that something does not fit, or an inventory that a reshape removes is in use, but ``diagnosis`` finds
  that the consumers or the generations have changed or that it would fit now;
* another process uses the slot of step 8, too (``change_log_slots.SlotTaken``);
* the database reports a conflict, also at COMMIT: deadlock, lock timeout, serialization failure, a failed certification
  on Galera (``errors.is_conflict``).

When a connection turns out to be closed at the first statement, the transaction is restarted on a new connection, which
is not counted. Nothing else is retried: neither a wrong generation of a consumer nor a connection that breaks later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.claims import consumers, diagnosis, usage
from placement.claims.current import CurrentAllocations, delete_returning, read_current_allocations
from placement.claims.inventory_replacement import InventoryReplacement
from placement.claims.request import ConsumerClaim, NewInventories, RequestedAllocation, Unset, amounts_by_inventory
from placement.db import change_log, generation, sql
from placement.db.api import Database, RollbackAndDiagnose
from placement.db.batch import StatementBatch, expect_rows


def replace_allocations(db: Database, claims: Sequence[ConsumerClaim]) -> None:
    """Give each consumer named in ``claims`` exactly the allocations of its claim. On any failure nothing changes.

    :param claims: at most one for each consumer, in the order of the request.
    :raises ConsumerGenerationConflict: a consumer is not at the generation that its claim names.
    :raises AllocationProviderNotFound, ResourceClassNotFound: a claim names a provider or class that does not exist.
    :raises InvalidAllocationInventory: a provider has no inventory of a class.
    :raises AllocationConstraintsViolated: an amount violates min_unit, max_unit or step_size.
    :raises AllocationCapacityExceeded: the capacity does not suffice.
    :raises ConcurrentUpdate: each attempt conflicted with other transactions.
    :raises DatabaseUnavailable: the database cannot be reached.
    """

    def work(tx: sa.Connection) -> None:
        if len(claims) == 1 and not claims[0].allocations:
            _release(tx, claims[0].consumer_uuid, claims[0])
        else:
            _write(db, tx, claims)

    with db.metrics.claim():
        db.write(work)


def reshape(
    db: Database, inventories: Sequence[NewInventories], claims: Sequence[ConsumerClaim]
) -> Mapping[str, Mapping[str, int]]:
    """Replace inventories and allocations in one change. On any failure nothing changes.

    Only the resulting state has to be valid.

    :param inventories: one for each provider, at least one, in the order of the request.
    :param claims: at most one for each consumer, in the order of the request.
    :returns: the usage of the new inventories, by provider uuid and class name.
    :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: a provider of ``inventories``
        does not exist, has another generation, or has a record that may not be stored.
    :raises InventoryInUse: a class that is removed from a provider would have allocations.
    :raises PlacementError: as for ``replace_allocations``.
    """

    def work(tx: sa.Connection) -> Mapping[str, Mapping[str, int]]:
        replacement = InventoryReplacement.begin(tx, inventories)
        _write(db, tx, claims, replacement)
        return replacement.used

    with db.metrics.claim():
        return db.write(work)


def delete_allocations(db: Database, consumer_uuid: str) -> None:
    """Delete a consumer and all its allocations, whatever its generation.

    :param consumer_uuid: canonical.
    :raises AllocationsNotFound: it has no allocations.
    :raises ConcurrentUpdate: each attempt conflicted with other transactions.
    :raises DatabaseUnavailable: the database cannot be reached.
    """
    db.write(lambda tx: _release(tx, consumer_uuid))


# The transactions, from top to bottom --------------------------------------------------------------------


def _write(
    db: Database,
    tx: sa.Connection,
    claims: Sequence[ConsumerClaim],
    replacement: InventoryReplacement | None = None,
) -> None:
    """Execute all steps of claims and, with a ``replacement``, of a reshape."""
    # 1. Read.
    current = _read(tx, claims)
    generations = current.generations()
    for claim in claims:
        _check_generation(claim, generations.get(claim.consumer_uuid))
    # 2. Resource classes.
    requested = _resolve(db, tx, claims, current, replacement)
    # 3. Projects, users and types.
    desired = consumers.with_ids(tx, claims, current)

    changes = usage.deltas(current.amounts(), amounts_by_inventory(requested))
    incremented = _providers_to_increment(claims, requested, current)
    consumer_uuids = [claim.consumer_uuid for claim in claims]

    def rejection() -> Exception:
        return RollbackAndDiagnose(
            lambda after: diagnosis.explain(after, requested, consumer_uuids, current, replacement)
        )

    batch = StatementBatch(tx)
    try:
        # 4. Consumers.
        consumers.write(batch, desired, current.consumers)
        # 5. Generations of providers.
        if replacement is None:
            generation.increment_all(batch, incremented)
        else:
            generation.increment(batch, replacement.increments(incremented))
            batch.execute()
            replacement.lock(tx, changes)
            replacement.write(batch)
        # 6. Usage.
        usage.add(batch, changes, rejection)
        # 7. Allocations.
        _delete_rows(batch, current)
        _insert_rows(batch, requested)
        if replacement is not None:
            replacement.delete_rest(batch, rejection)
        # 8. Change log.
        change_log.record_usage(tx, incremented | current.provider_ids())
        batch.execute_final()
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # Since step 1 a consumer or one of its allocations was created, or a provider was deleted.
        raise consumers.retry() from error


def _release(tx: sa.Connection, consumer_uuid: str, claim: ConsumerClaim | None = None) -> None:
    """Delete a consumer and its allocations.

    :param claim: the one with empty ``allocations`` that requests that; None for DELETE, which neither compares the
        generation of the consumer nor increments those of the providers.
    """
    current = _delete_consumer(tx, consumer_uuid)
    if claim is not None:
        _check_generation(claim, current.generations().get(consumer_uuid))
    elif not current.rows:
        raise exception.AllocationsNotFound(consumer=consumer_uuid)
    batch = StatementBatch(tx)
    if claim is not None:
        generation.increment_all(batch, current.provider_ids())
    usage.add_releases(batch, usage.deltas(current.amounts(), {}))
    change_log.record_usage(tx, current.provider_ids())
    batch.execute_final()


# Reading -------------------------------------------------------------------------------------------------


def _read(tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> CurrentAllocations:
    kept = [claim for claim in claims if claim.allocations]
    return read_current_allocations(
        tx,
        [claim.consumer_uuid for claim in claims],
        list(dict.fromkeys(uuid for claim in claims for uuid in claim.allocations)),
        {claim.project_id for claim in kept},
        {claim.user_id for claim in kept},
        {claim.consumer_type for claim in kept if not isinstance(claim.consumer_type, Unset)},
    )


def _check_generation(claim: ConsumerClaim, stored: int | None) -> None:
    """Compare the generation in the claim with the ``stored`` one, which is None when there is no such consumer."""
    if not isinstance(claim.generation, Unset) and claim.generation != stored:
        expected = 'null' if stored is None else stored
        raise exception.ConsumerGenerationConflict(expected=expected, got=claim.generation)


def _resolve(
    db: Database,
    tx: sa.Connection,
    claims: Sequence[ConsumerClaim],
    current: CurrentAllocations,
    replacement: InventoryReplacement | None,
) -> list[RequestedAllocation]:
    """Lock the classes, and return the requested allocations with the ids of their names, in the order of the request.

    The classes of ``replacement``, which are looked up before those of the allocations, get their ids, too.
    """
    for claim in claims:
        for uuid in claim.allocations:
            if uuid not in current.providers:
                raise exception.AllocationProviderNotFound(uuid=uuid)
    class_names = [] if replacement is None else list(replacement.class_names)
    class_names += [name for claim in claims for amounts in claim.allocations.values() for name in amounts]
    class_ids = db.resource_classes.lock_ids(tx, list(dict.fromkeys(class_names)))
    if replacement is not None:
        replacement.resolve(class_ids)
    return [
        RequestedAllocation(claim.consumer_uuid, uuid, name, (current.providers[uuid], class_ids[name]), amount)
        for claim in claims
        for uuid, amounts in claim.allocations.items()
        for name, amount in amounts.items()
    ]


def _providers_to_increment(
    claims: Sequence[ConsumerClaim], requested: Sequence[RequestedAllocation], current: CurrentAllocations
) -> set[int]:
    """Return the ids of the providers whose generation to increment.

    The rule is api-ref/allocations.md#generations-that-a-write-increments.
    """
    cleared = {claim.consumer_uuid for claim in claims if not claim.allocations}
    return {one.inventory[0] for one in requested} | {
        row.resource_provider_id for row in current.rows if row.consumer_uuid in cleared
    }


# Writing -------------------------------------------------------------------------------------------------


def _delete_consumer(tx: sa.Connection, consumer_uuid: str) -> CurrentAllocations:
    """Delete a consumer and its allocation rows, and return them as they were."""
    if tx.dialect.delete_returning:
        return delete_returning(tx, consumer_uuid)
    current = read_current_allocations(tx, [consumer_uuid])
    batch = StatementBatch(tx)
    consumers.write(batch, [consumers.DesiredConsumer(consumer_uuid, None)], current.consumers)
    _delete_rows(batch, current)
    batch.execute()
    return current


def _delete_rows(batch: StatementBatch, current: CurrentAllocations) -> None:
    """Add the deletion of the current rows, by id: InnoDB then locks neither rows of other consumers nor gaps."""
    for chunk in sql.chunks([row.id for row in current.rows]):
        text = f'DELETE FROM placement_allocations WHERE id IN ({sql.placeholders(len(chunk))})'  # noqa: S608
        batch.add(text, *chunk, check=expect_rows(len(chunk), consumers.retry))


def _insert_rows(batch: StatementBatch, requested: Sequence[RequestedAllocation]) -> None:
    rows = [(one.consumer_uuid, *one.inventory, one.amount) for one in requested]
    columns = 'consumer_id, resource_provider_id, resource_class_id, used'
    for text, values in sql.bulk_insert(batch.tx, 'placement_allocations', columns, rows):
        batch.add(text, *values)
