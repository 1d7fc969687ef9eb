"""The claim: one transaction that writes allocations and updates ``inventories.used``.

What the request means is in api-ref/allocations.md#what-a-write-means. This docstring is the one place that lists the
statements of the transaction, its locks, how it ends, and what is tried again.

Order of the statements
-----------------------

It is also the order of the locks, the same in every claim, so that claims wait for one another instead of deadlocking.
All locks are held until the transaction ends.

1. Read the consumers, what they hold, and the ids of the providers, projects and users that the request names: one
   statement, no lock (``holding.read``). Compare the generations of the consumers.
2. Custom resource classes: SELECT with a shared lock, in order of id, so that nobody renames or deletes them meanwhile
   (``NameCache.hold``). None for standard classes, whose ids the process remembers.
3. Projects, then users, that are not in the database yet: one INSERT each, in order of external id (``owners``).
4. Consumers: UPDATE those that go on holding something, DELETE those that do not, each by id and guarded by the
   generation that step 1 read, then INSERT new ones in order of uuid (``consumer_records``). If there are some to
   update and some to delete, a SELECT ... FOR UPDATE locks them all in order of id before.
5. Providers: one UPDATE moves the generations, in order of id (``generation.bump_all``). It locks the rows, so claims
   on one provider go through the next steps one at a time.
6. Inventories: one UPDATE of ``used``, in order of provider and class (``usage_moves``). Its WHERE clause is the rule
   of room and its row count says whether everything fits. The database evaluates it on what is committed at that
   moment, at every isolation level, so there is no check that could be out of date.
7. Allocations: DELETE the old rows by id, then INSERT the new ones.
8. INSERT the entry in the log of changes, under a writer that no other transaction uses (``db.changes``).

Two kinds of request take fewer steps: DELETE, and a request whose only claim has empty ``allocations``. They delete the
consumer and then its allocations, with DELETE ... RETURNING; MySQL, which has none, takes step 1 before. Then follow
steps 5 (not for DELETE), 6 and 8. Allocation rows can be locked this early because whoever writes allocations of a
consumer has locked the consumer before. As these requests only give back, step 6 does not refuse them; a wrong row
count there means that they are tried again.

How many statements go to the server in one round trip is up to ``db.together``; their order is as above.

The end of the transaction
--------------------------

``Database.write`` commits after step 8, and rolls back on any exception. When step 6 says that something does not fit,
the transaction is rolled back (``Undo``), and only then ``refusal`` reads, in a transaction of its own, which rule is
broken.

What is tried again
-------------------

``Database.write`` runs the whole transaction again, from step 1, at most ``[placement_database] transaction_retries``
times (doc/database.md#what-is-tried-again-and-what-the-caller-sees), when

* a consumer was changed, created or deleted since step 1: a row count in steps 4 and 7, or a duplicate key;
* another transaction inserted the same project or user: a duplicate key in step 3;
* a provider was deleted since step 1: ``refusal`` finds that, or a foreign key;
* step 6 said that something does not fit, but ``refusal`` finds that the consumers have changed or that it would fit
  now;
* the writer of step 8 was removed from the log, or another process uses it (``writers.Forgotten``);
* the database reports a conflict, also at COMMIT: deadlock, lock timeout, serialization failure, a lost certification
  on Galera (``error_kinds.is_conflict``).

When a connection turns out to be dead at the first statement, the transaction is begun once more on a new connection,
which is not counted. Nothing else is tried again: neither a wrong generation of a consumer nor a connection that breaks
later.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NoReturn

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.absent import Absent
from placement.claims import consumer_records, holding, owners, refusal, usage_moves
from placement.claims.request import ConsumerClaim, RequestedAllocation
from placement.claims.usage_moves import InventoryKey
from placement.db import api as db_api
from placement.db import changes, generation, statements, tables
from placement.db.api import Database
from placement.db.together import Together


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
    together = Together(tx)
    usage_moves.add(together, held.amounts(), {}, _start_over)
    changes.usage(tx, held.provider_ids())
    together.run_last()


def _clear(tx: sa.Connection, claim: ConsumerClaim) -> None:
    """Carry out a request whose only claim has empty ``allocations``."""
    held = _delete_consumer(tx, claim.consumer_uuid)
    _check_generation(claim, held.generations().get(claim.consumer_uuid))
    together = Together(tx)
    generation.bump_all(together, held.provider_ids())
    usage_moves.add(together, held.amounts(), {}, _start_over)
    changes.usage(tx, held.provider_ids())
    together.run_last()


def _delete_consumer(tx: sa.Connection, consumer_uuid: str) -> holding.Held:
    """Delete a consumer and its allocation rows, and return them as they were."""
    if holding.can_delete_returning(tx):
        return holding.delete_returning(tx, consumer_uuid)
    held = holding.read(tx, [consumer_uuid])
    together = Together(tx)
    consumer_records.write(together, [consumer_records.Wanted(consumer_uuid, None)], held.consumers)
    _delete_rows(together, held)
    together.run()
    return held


def _replace(db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> None:
    if len(claims) == 1 and not claims[0].allocations:
        _clear(tx, claims[0])
        return
    held = _read(tx, claims)
    generations = held.generations()
    for claim in claims:
        _check_generation(claim, generations.get(claim.consumer_uuid))
    requested = _resolve(db, tx, claims, held)
    wanted = _with_owners(tx, claims, held)
    moved = _providers_to_move(claims, requested, held)

    def refuse() -> None:
        consumers = [claim.consumer_uuid for claim in claims]
        raise db_api.Undo(lambda after: refusal.explain(after, requested, consumers, held))

    together = Together(tx)
    consumer_records.write(together, wanted, held.consumers)
    generation.bump_all(together, moved)
    usage_moves.add(together, held.amounts(), _amounts_by_inventory(requested), refuse)
    _delete_rows(together, held)
    _insert_rows(together, requested)
    changes.usage(tx, moved | held.provider_ids())
    try:
        together.run_last()
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # Since ``_read`` a consumer or one of its allocations was created, or a provider was deleted.
        _start_over(error)


def _start_over(error: Exception | None = None) -> NoReturn:
    raise db_api.TryAgain(exception.ConcurrentUpdate()) from error


# Look-ups ------------------------------------------------------------------------------------------------


def _read(tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> holding.Held:
    holding_something = [claim for claim in claims if claim.allocations]
    return holding.read(
        tx,
        [claim.consumer_uuid for claim in claims],
        list(dict.fromkeys(uuid for claim in claims for uuid in claim.allocations)),
        {claim.project_id for claim in holding_something},
        {claim.user_id for claim in holding_something},
    )


def _check_generation(claim: ConsumerClaim, present: int | None) -> None:
    """Compare the generation in the claim with the ``present`` one, which is None when there is no such consumer."""
    if not isinstance(claim.generation, Absent) and claim.generation != present:
        expected = 'null' if present is None else present
        raise exception.ConsumerGenerationConflict(expected=expected, got=claim.generation)


def _resolve(
    db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim], held: holding.Held
) -> list[RequestedAllocation]:
    """The allocations that ``claims`` ask for, in the order of the request, with the ids of their names."""
    for claim in claims:
        for uuid in claim.allocations:
            if uuid not in held.providers:
                raise exception.AllocationProviderNotFound(uuid=uuid)
    class_names = list(
        dict.fromkeys(name for claim in claims for amounts in claim.allocations.values() for name in amounts)
    )
    class_ids = db.resource_classes.hold(tx, class_names)
    return [
        RequestedAllocation(claim.consumer_uuid, uuid, name, (held.providers[uuid], class_ids[name]), amount)
        for claim in claims
        for uuid, amounts in claim.allocations.items()
        for name, amount in amounts.items()
    ]


def _amounts_by_inventory(requested: Sequence[RequestedAllocation]) -> dict[InventoryKey, list[int]]:
    amounts: dict[InventoryKey, list[int]] = {}
    for one in requested:
        amounts.setdefault(one.inventory, []).append(one.amount)
    return amounts


def _providers_to_move(
    claims: Sequence[ConsumerClaim], requested: Sequence[RequestedAllocation], held: holding.Held
) -> set[int]:
    """The ids of the providers whose generation moves (api-ref/allocations.md#generations-that-a-write-moves)."""
    cleared = {claim.consumer_uuid for claim in claims if not claim.allocations}
    return {one.inventory[0] for one in requested} | {
        row.resource_provider_id for row in held.rows if row.consumer_uuid in cleared
    }


# Writes, in the order of the locks they take -------------------------------------------------------------


def _with_owners(
    tx: sa.Connection, claims: Sequence[ConsumerClaim], held: holding.Held
) -> list[consumer_records.Wanted]:
    """Each consumer with the ids of its project and user. Inserts the projects and users that do not exist yet."""
    holding_something = [claim for claim in claims if claim.allocations]
    projects = owners.with_new(tx, tables.projects, {claim.project_id for claim in holding_something}, held.projects)
    users = owners.with_new(tx, tables.users, {claim.user_id for claim in holding_something}, held.users)
    return [
        consumer_records.Wanted(
            claim.consumer_uuid, (projects[claim.project_id], users[claim.user_id]) if claim.allocations else None
        )
        for claim in claims
    ]


def _delete_rows(together: Together, held: holding.Held) -> None:
    """Delete the rows that were read, by id: InnoDB then locks neither rows of other consumers nor gaps."""
    for batch in statements.batches([row.id for row in held.rows]):
        text = f'DELETE FROM placement_allocations WHERE id IN ({statements.marks(len(batch))})'  # noqa: S608
        together.add(text, *batch, check=functools.partial(consumer_records.expect, len(batch)))


def _insert_rows(together: Together, requested: Sequence[RequestedAllocation]) -> None:
    rows = [(one.consumer_uuid, *one.inventory, one.amount) for one in requested]
    columns = 'consumer_id, resource_provider_id, resource_class_id, used'
    for text, values in statements.insertions(together.tx, 'placement_allocations', columns, rows):
        together.add(text, *values)
