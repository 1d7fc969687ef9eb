"""The claim: one transaction that writes allocations and updates ``inventories.used``; a reshape is one, too.

What the request means is in api-ref/allocations.md#what-a-write-means and api-ref/reshaper.md#meaning. This docstring
is the one place that lists the statements of the transaction, its locks, how it ends, and what is tried again.

Order of the statements
-----------------------

It is also the order of the locks, the same in every claim, so that claims wait for one another instead of deadlocking.
All locks are held until the transaction ends.

1. Read the consumers, what they hold, and the ids of the providers, projects, users and types of consumers that the
   request names: one statement, no lock (``current.read``). Compare the generations of the consumers.
2. Custom resource classes: SELECT with a shared lock, in order of id, so that nobody renames or deletes them meanwhile
   (``NameCache.lock_ids``). None for standard classes, whose ids the process remembers.
3. Projects, then users, then types of consumers, that are not in the database yet: one INSERT each, in order of
   external id or name (``owners``). None is ever removed, so an id that step 1 found needs no lock. The process does
   not remember ids: step 1 reads them without another statement, and after a failover that lost a type another may
   have its id.
4. Consumers: UPDATE those that go on holding something, DELETE those that do not, each by id and guarded by the
   generation that step 1 read, then INSERT new ones in order of uuid (``consumers``). If there are some to
   update and some to delete, a SELECT ... FOR UPDATE locks them all in order of id before.
5. Providers: one UPDATE moves the generations, in order of id (``generation.increment_all``). It locks the rows, so
   claims on one provider go through the next steps one at a time.
6. Inventories: one UPDATE of ``used``, in order of provider and class (``usage``). Its WHERE clause is the rule
   of room and its row count says whether everything fits. The database evaluates it on what is committed at that
   moment, at every isolation level, so there is no check that could be out of date.
7. Allocations: DELETE the old rows by id, then INSERT the new ones.
8. Increment a slot of the change log that no other transaction uses, and INSERT the entries (``db.change_log``).

Two kinds of request take fewer steps: DELETE, and a request whose only claim has empty ``allocations``. They delete the
consumer and then its allocations, with DELETE ... RETURNING; MySQL, which has none, takes step 1 before. Then follow
steps 5 (not for DELETE), 6 and 8. Allocation rows can be locked this early because whoever writes allocations of a
consumer has locked the consumer before. As these requests only give back, step 6 does not refuse them; a wrong row
count there means that they are tried again.

A reshape also replaces inventories (``inventory_replacement``), in these places of the same order:

* Before step 1 it reads the providers of its inventories, and compares their generations with those that were sent.
* Step 2 locks the classes of the inventories, too.
* Step 5 increments the generations of all providers in one UPDATE for every 300 (``generation.increment``). For those
  of the inventories it is guarded by the generation that was sent.
* Then it locks all inventories of these providers, and of those at which the usage may change, in order of provider
  and class; overwrites those that are kept, and inserts the new ones. So step 6 judges by the new inventories and by
  those that are going to be removed.
* After step 7 it deletes those, if nothing of them is used any more.

How many statements go to the server in one round trip is up to ``db.batch``; their order is as above.

The end of the transaction
--------------------------

``Database.write`` commits after step 8, and rolls back on any exception. When step 6 says that something does not fit,
the transaction is rolled back (``RollbackAndDiagnose``), and only then ``diagnosis`` reads, in a transaction of its
own, which rule is broken.

What is tried again
-------------------

``Database.write`` runs the whole transaction again, from step 1, at most ``[placement_database] transaction_retries``
times (doc/database.md#what-is-tried-again-and-what-the-caller-sees), when

* a consumer was changed, created or deleted since step 1: a row count in steps 4 and 7, or a duplicate key;
* another transaction inserted the same project, user or type: a duplicate key in step 3;
* a provider was deleted since step 1: ``refusal`` finds that, or a foreign key, or in a reshape a row count in step 5;
* the generation of a provider whose inventories a reshape replaces was moved since it was read: a row count in step 5.
  The next attempt says which one;
* step 6 said that something does not fit, or an inventory that a reshape removes is in use, but ``refusal`` finds that
  the consumers or the generations have changed or that it would fit now;
* another process uses the slot of step 8, too (``change_log_slots.SlotTaken``);
* the database reports a conflict, also at COMMIT: deadlock, lock timeout, serialization failure, a lost certification
  on Galera (``errors.is_conflict``).

When a connection turns out to be dead at the first statement, the transaction is begun once more on a new connection,
which is not counted. Nothing else is tried again: neither a wrong generation of a consumer nor a connection that breaks
later.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NoReturn

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.absent import Absent
from placement.claims import consumers, current, diagnosis, owners, usage
from placement.claims.inventory_replacement import InventoryReplacement
from placement.claims.request import ConsumerClaim, NewInventories, RequestedAllocation, amounts_by_inventory
from placement.db import api as db_api
from placement.db import change_log, generation, sql, tables
from placement.db.api import Database
from placement.db.batch import StatementBatch


def replace_allocations(db: Database, claims: Sequence[ConsumerClaim]) -> None:
    """Let each consumer named in ``claims`` hold exactly what its claim says. On any failure nothing changes.

    :param claims: at most one for each consumer, in the order of the request.
    :raises ConsumerGenerationConflict: a consumer is not at the generation that its claim names.
    :raises AllocationProviderNotFound, ResourceClassNotFound: a claim names what does not exist.
    :raises InvalidAllocationInventory: a provider has no inventory of a class.
    :raises AllocationConstraintsViolated: an amount breaks min_unit, max_unit or step_size.
    :raises AllocationCapacityExceeded: there is no room.
    :raises ConcurrentUpdate: other writers were in the way each time that it was tried.
    :raises DatabaseUnavailable: the database cannot be reached.
    """
    with db.metrics.claim():
        db.write(lambda tx: _replace(db, tx, claims))


def reshape(
    db: Database, inventories: Sequence[NewInventories], claims: Sequence[ConsumerClaim]
) -> Mapping[str, Mapping[str, int]]:
    """Replace inventories and allocations in one change that is judged by its outcome. On any failure nothing changes.

    :param inventories: one for each provider, at least one, in the order of the request.
    :param claims: at most one for each consumer, in the order of the request.
    :returns: what is used of the new inventories, by provider uuid and class name.
    :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: a provider of ``inventories``
        does not exist, has another generation, or has a record that may not be stored.
    :raises InventoryInUse: something would be allocated of a class that is removed from a provider.
    :raises PlacementError: as for ``replace_allocations``.
    """
    with db.metrics.claim():
        return db.write(lambda tx: _reshape(db, tx, inventories, claims))


def delete_allocations(db: Database, consumer_uuid: str) -> None:
    """Delete a consumer and all its allocations, whatever its generation.

    :param consumer_uuid: canonical.
    :raises AllocationsNotFound: it holds nothing.
    :raises ConcurrentUpdate: other writers were in the way each time that it was tried.
    :raises DatabaseUnavailable: the database cannot be reached.
    """
    db.write(lambda tx: _delete(tx, consumer_uuid))


def _delete(tx: sa.Connection, consumer_uuid: str) -> None:
    held = _delete_consumer(tx, consumer_uuid)
    if not held.rows:
        raise exception.AllocationsNotFound(consumer=consumer_uuid)
    batch = StatementBatch(tx)
    usage.add(batch, held.amounts(), {}, _start_over)
    change_log.record_usage(tx, held.provider_ids())
    batch.execute_final()


def _clear(tx: sa.Connection, claim: ConsumerClaim) -> None:
    """Carry out a request whose only claim has empty ``allocations``."""
    held = _delete_consumer(tx, claim.consumer_uuid)
    _check_generation(claim, held.generations().get(claim.consumer_uuid))
    batch = StatementBatch(tx)
    generation.increment_all(batch, held.provider_ids())
    usage.add(batch, held.amounts(), {}, _start_over)
    change_log.record_usage(tx, held.provider_ids())
    batch.execute_final()


def _delete_consumer(tx: sa.Connection, consumer_uuid: str) -> current.CurrentAllocations:
    """Delete a consumer and its allocation rows, and return them as they were."""
    if current.can_delete_returning(tx):
        return current.delete_returning(tx, consumer_uuid)
    held = current.read(tx, [consumer_uuid])
    batch = StatementBatch(tx)
    consumers.write(batch, [consumers.DesiredConsumer(consumer_uuid, None)], held.consumers)
    _delete_rows(batch, held)
    batch.execute()
    return held


def _replace(db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> None:
    if len(claims) == 1 and not claims[0].allocations:
        _clear(tx, claims[0])
    else:
        _write(db, tx, claims)


def _reshape(
    db: Database, tx: sa.Connection, inventories: Sequence[NewInventories], claims: Sequence[ConsumerClaim]
) -> Mapping[str, Mapping[str, int]]:
    replacement = InventoryReplacement.read(tx, inventories)
    _write(db, tx, claims, replacement)
    return replacement.used


def _write(
    db: Database,
    tx: sa.Connection,
    claims: Sequence[ConsumerClaim],
    replacement: InventoryReplacement | None = None,
) -> None:
    held = _read(tx, claims)
    generations = held.generations()
    for claim in claims:
        _check_generation(claim, generations.get(claim.consumer_uuid))
    requested = _resolve(db, tx, claims, held, replacement)
    wanted = _with_ids(tx, claims, held)
    moved = _providers_to_move(claims, requested, held)
    new_amounts = amounts_by_inventory(requested)

    def refuse() -> NoReturn:
        consumers = [claim.consumer_uuid for claim in claims]
        raise db_api.RollbackAndDiagnose(
            lambda after: diagnosis.explain(after, requested, consumers, held, replacement)
        )

    batch = StatementBatch(tx)
    try:
        consumers.write(batch, wanted, held.consumers)
        if replacement is None:
            generation.increment_all(batch, moved)
        else:
            generation.increment(batch, replacement.increments(moved))
            replacement.write(batch, usage.deltas(held.amounts(), new_amounts))
        usage.add(batch, held.amounts(), new_amounts, refuse)
        _delete_rows(batch, held)
        _insert_rows(batch, requested)
        change_log.record_usage(tx, moved | held.provider_ids())
        if replacement is not None:
            replacement.remove(batch, refuse)
        batch.execute_final()
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # Since ``_read`` a consumer or one of its allocations was created, or a provider was deleted.
        _start_over(error)


def _start_over(error: Exception | None = None) -> NoReturn:
    raise db_api.RetryTransaction(exception.ConcurrentUpdate()) from error


# Look-ups ------------------------------------------------------------------------------------------------


def _read(tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> current.CurrentAllocations:
    holding_something = [claim for claim in claims if claim.allocations]
    return current.read(
        tx,
        [claim.consumer_uuid for claim in claims],
        list(dict.fromkeys(uuid for claim in claims for uuid in claim.allocations)),
        {claim.project_id for claim in holding_something},
        {claim.user_id for claim in holding_something},
        _types(holding_something),
    )


def _types(claims: Sequence[ConsumerClaim]) -> set[str]:
    return {claim.consumer_type for claim in claims if not isinstance(claim.consumer_type, Absent)}


def _check_generation(claim: ConsumerClaim, present: int | None) -> None:
    """Compare the generation in the claim with the ``present`` one, which is None when there is no such consumer."""
    if not isinstance(claim.generation, Absent) and claim.generation != present:
        expected = 'null' if present is None else present
        raise exception.ConsumerGenerationConflict(expected=expected, got=claim.generation)


def _resolve(
    db: Database,
    tx: sa.Connection,
    claims: Sequence[ConsumerClaim],
    held: current.CurrentAllocations,
    replacement: InventoryReplacement | None,
) -> list[RequestedAllocation]:
    """The allocations that ``claims`` ask for, in the order of the request, with the ids of their names.

    The classes of ``replacement``, which are looked up before those of the allocations, get their ids, too.
    """
    for claim in claims:
        for uuid in claim.allocations:
            if uuid not in held.providers:
                raise exception.AllocationProviderNotFound(uuid=uuid)
    class_names = [] if replacement is None else replacement.class_names
    class_names += [name for claim in claims for amounts in claim.allocations.values() for name in amounts]
    class_ids = db.resource_classes.lock_ids(tx, list(dict.fromkeys(class_names)))
    if replacement is not None:
        replacement.resolve(class_ids)
    return [
        RequestedAllocation(claim.consumer_uuid, uuid, name, (held.providers[uuid], class_ids[name]), amount)
        for claim in claims
        for uuid, amounts in claim.allocations.items()
        for name, amount in amounts.items()
    ]


def _providers_to_move(
    claims: Sequence[ConsumerClaim], requested: Sequence[RequestedAllocation], held: current.CurrentAllocations
) -> set[int]:
    """The ids of the providers whose generation moves (api-ref/allocations.md#generations-that-a-write-moves)."""
    cleared = {claim.consumer_uuid for claim in claims if not claim.allocations}
    return {one.inventory[0] for one in requested} | {
        row.resource_provider_id for row in held.rows if row.consumer_uuid in cleared
    }


# Writes, in the order of the locks they take -------------------------------------------------------------


def _with_ids(
    tx: sa.Connection, claims: Sequence[ConsumerClaim], held: current.CurrentAllocations
) -> list[consumers.DesiredConsumer]:
    """Each consumer with the ids of its project, user and type. Inserts those that do not exist yet."""
    holding_something = [claim for claim in claims if claim.allocations]
    wanted = {claim.project_id for claim in holding_something}
    projects = owners.with_new(tx, tables.projects.c.external_id, wanted, held.projects)
    wanted = {claim.user_id for claim in holding_something}
    users = owners.with_new(tx, tables.users.c.external_id, wanted, held.users)
    types = owners.with_new(tx, tables.consumer_types.c.name, _types(holding_something), held.consumer_types)

    def attributes(claim: ConsumerClaim) -> consumers.Attributes | None:
        if not claim.allocations:
            return None
        type_id = None if isinstance(claim.consumer_type, Absent) else types[claim.consumer_type]
        return consumers.Attributes(projects[claim.project_id], users[claim.user_id], type_id)

    return [consumers.DesiredConsumer(claim.consumer_uuid, attributes(claim)) for claim in claims]


def _delete_rows(batch: StatementBatch, held: current.CurrentAllocations) -> None:
    """Delete the rows that were read, by id: InnoDB then locks neither rows of other consumers nor gaps."""
    for chunk in sql.chunks([row.id for row in held.rows]):
        text = f'DELETE FROM placement_allocations WHERE id IN ({sql.placeholders(len(chunk))})'  # noqa: S608
        batch.add(text, *chunk, check=functools.partial(consumers.expect, len(chunk)))


def _insert_rows(batch: StatementBatch, requested: Sequence[RequestedAllocation]) -> None:
    rows = [(one.consumer_uuid, *one.inventory, one.amount) for one in requested]
    columns = 'consumer_id, resource_provider_id, resource_class_id, used'
    for text, values in sql.bulk_insert(batch.tx, 'placement_allocations', columns, rows):
        batch.add(text, *values)
