"""The transaction of a claim or a reshape: it writes allocations and updates ``inventories.used``.

api-ref/allocations.md#what-a-write-means and api-ref/reshaper.md#meaning define what the request means. This docstring
is the one place that lists the statements of the transaction, its locks, its end and its conflicts. ``_write`` executes
the steps from top to bottom; ``plan.make_plan`` has steps 0 to 2, ``_replace_inventories`` 5a to 5c.

The steps
---------

The order of the steps is also the order of the locks and of the checks. It is the same in every claim and on every
database, so that claims wait for one another instead of deadlocking. All locks are held until the transaction ends.
For many rows a step has several statements of the same kind (the limits are in ``db.sql``).

A claim has steps 1 to 8; steps 4 to 8 are one ``StatementBatch``. DELETE is a claim without allocations that increments
no generation of a provider: it has no step 5. A reshape has steps 0 to 8; step 4 and 5a are one batch, and after 5b a
second one has 5c to 8.

0.  Read the providers whose inventories are replaced, compare their generations with those that were sent, and check
    the capacity of each new inventory.
1.  Read the consumers, their allocations, and the ids of the providers, projects, users and types of consumers that the
    request names: one statement, no lock (``current``). Compare the generations of the consumers.
2.  Custom resource classes, of allocations and of inventories: SELECT with a shared lock, in order of id, so that
    nobody renames or deletes them meanwhile (``ResourceClassIds.lock_ids``). Standard classes need no lock, because the
    process remembers their ids.
3.  New projects, then new users, then new types of consumers: one INSERT each, in order of external id or name
    (``consumers.ensure_owners_and_types``). These rows are never removed, so the ids of step 1 need no lock. The
    process does not remember the ids: step 1 reads them without an additional statement, and if a failover loses a
    type, its id may go to another type.
4.  Consumers: UPDATE those that keep allocations and DELETE the others, by id and only at the generation that step 1
    read. Then INSERT new consumers, in order of uuid (``consumers.add_statements``). If some are updated and others
    deleted, the UPDATE includes all of them, so that they are locked in order of id.
5.  Providers: one UPDATE increments the generations, in order of id (``generation.increment_all``). It locks the rows,
    so claims on one provider execute the next steps one at a time.
5a. A reshape increments the generations of all providers, 300 with each UPDATE (``generation.increment``). It changes
    the providers whose inventories are replaced only at the generation that was sent.
5b. Lock, in order of provider and class, all inventories of these providers and of those whose usage may change.
5c. Overwrite the inventories that are kept, and insert the new ones (``db.inventories``). So step 6 checks the new
    inventories, and those still to be removed.
6.  Inventories: one UPDATE of ``used``, in order of provider and class (``usage``). Its WHERE clause is the capacity
    rule, and its row count says whether everything fits. At every isolation level the database evaluates this clause on
    the latest committed rows, so the check cannot be out of date. A request that only releases is not rejected.
7.  Allocations: DELETE the old rows by id, then INSERT the new ones. Only another program can leave a row without an
    inventory. If step 1 read such rows, an UPDATE subtracts their amounts from inventories that were inserted since
    (``db.inventories``). A reshape then deletes the removed inventories, if they no longer have usage.
8.  Increment a slot of the change log that no other transaction uses, and INSERT the entries (``db.change_log``).
    ``Database.write`` appends these statements to the last batch, and sends it.

The row counts of a ``StatementBatch`` are checked in the order of its statements, before COMMIT. The first wrong row
count decides; ``db.batch`` says why this does not depend on the database.

The end of the transaction
--------------------------

``Database.write`` commits after step 8, and rolls back on any exception. If something does not fit in step 6, the
transaction is rolled back (``RollbackAndDiagnose``). Only then ``diagnosis`` finds out, in its own transaction, which
rule is violated.

Retries
-------

``Database.write`` runs the whole transaction again, from the beginning, after the conflicts and the failures that
doc/architecture.md#the-end-of-a-transaction-and-all-retries lists. A claim adds these conflicts:

* a consumer was changed, created or deleted since step 1: a row count in steps 4 and 7, or a duplicate key;
* another transaction inserted the same project, user or type: a duplicate key in step 3;
* a provider was deleted since step 1: ``diagnosis``, a foreign key or, in a reshape, a row count in step 5a shows that;
* the generation of a provider whose inventories a reshape replaces was incremented since it was read: a row count in
  step 5a. The next attempt finds out which provider that is;
* something did not fit in step 6, or an inventory that a reshape removes was in use, but ``diagnosis`` finds that the
  consumers or the generations have changed or that no rule is violated now.

A wrong generation of a consumer is not retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from placement.claims import consumers, diagnosis, usage
from placement.claims.current import concurrent_update
from placement.claims.plan import ClaimPlan, make_plan
from placement.claims.requested import ConsumerClaim, ReshapedProvider, Unset
from placement.db import change_log, generation, tables
from placement.db.api import Database, RollbackAndDiagnose
from placement.db.batch import StatementBatch
from placement.db.inventories import InventoryReplacement, lock_inventories


def replace_allocations(db: Database, claims: Sequence[ConsumerClaim]) -> None:
    """Give each consumer named in ``claims`` exactly the allocations of its claim. On any failure nothing changes.

    :param claims: at most one for each consumer, in the order of the request.
    :raises ConsumerGenerationConflict: a consumer has another generation than its claim names.
    :raises AllocationProviderNotFound, ResourceClassNotFound: a claim names a provider or class that does not exist.
    :raises InvalidAllocationInventory: a provider has no inventory of a class.
    :raises AllocationConstraintsViolated: an amount violates min_unit, max_unit or step_size.
    :raises AllocationCapacityExceeded: the capacity does not suffice.
    :raises ConcurrentUpdate: each attempt conflicted with other transactions.
    :raises DatabaseUnavailable: the database cannot be reached. After ``CommitInDoubt`` the change may have been made,
        or may still be made.
    """
    with db.metrics.claim():
        db.write(lambda tx: _write(db, tx, claims))


def reshape(db: Database, reshaped: Sequence[ReshapedProvider], claims: Sequence[ConsumerClaim]) -> None:
    """Replace inventories and allocations in one change. On any failure nothing changes.

    Only the resulting state has to be valid (api-ref/reshaper.md#meaning).

    :param reshaped: at least one; each provider once, in the order of the request.
    :param claims: at most one for each consumer, in the order of the request.
    :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: a provider of ``reshaped``
        does not exist, has another generation, or has an inventory that may not be stored.
    :raises InventoryInUse: a class that is removed from a provider would have allocations.
    :raises PlacementError: as for ``replace_allocations``.
    """
    with db.metrics.claim():
        db.write(lambda tx: _write(db, tx, claims, reshaped))


def delete_allocations(db: Database, consumer_uuid: str) -> None:
    """Delete a consumer and all its allocations, regardless of its generation.

    :param consumer_uuid: a canonical uuid.
    :raises AllocationsNotFound: it has no allocations.
    :raises ConcurrentUpdate: each attempt conflicted with other transactions.
    :raises DatabaseUnavailable: the database cannot be reached. After ``CommitInDoubt`` the change may have been made,
        or may still be made.
    """
    deletion = ConsumerClaim(consumer_uuid, project_id='', user_id='', allocations={}, is_deletion=True)
    db.write(lambda tx: _write(db, tx, [deletion]))


# The transaction, from top to bottom ---------------------------------------------------------------------


def _write(
    db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim], reshaped: Sequence[ReshapedProvider] = ()
) -> None:
    """Execute all steps of claims and, with ``reshaped`` providers, of a reshape."""
    # 0. to 2. The reads, and the locks of resource classes.
    plan = make_plan(db, tx, claims, reshaped)
    # 3. Projects, users and types.
    desired = consumers.ensure_owners_and_types(tx, claims, plan.current)

    def rejection() -> RollbackAndDiagnose:
        return RollbackAndDiagnose(lambda after: diagnosis.diagnose(after, plan))

    # A key is violated if, since step 1, a consumer or one of its allocations was created, or a provider was deleted.
    batch = StatementBatch(tx, key_error=concurrent_update)
    # 4. Consumers.
    consumers.add_statements(batch, desired, plan.current.consumers)
    # 5. Generations of providers.
    replacement = _replace_inventories(batch, plan) if reshaped else None
    if replacement is None:
        generation.increment_all(batch, plan.incremented)
    # 6. Usage.
    usage.add_usage_statements(batch, plan.changes, rejection)
    # 7. Allocations.
    # By id: InnoDB then locks neither rows of other consumers nor gaps.
    ids = [row.id for row in plan.current.rows]
    batch.add_for_ids('DELETE FROM {table} WHERE id IN ({ids})', ids, error=concurrent_update, table=tables.allocations)
    _insert_rows(batch, plan, desired)
    if plan.orphaned:
        usage.add_release_statements(batch, plan.orphaned)
    if replacement is not None:
        replacement.add_deletions(batch, rejection)
    # 8. Change log. ``Database.write`` appends what is recorded here to the batch.
    change_log.record_usage(tx, plan.incremented | plan.current.provider_ids())
    batch.defer()


def _replace_inventories(batch: StatementBatch, plan: ClaimPlan) -> InventoryReplacement:
    """Execute steps 4, 5a and 5b of a reshape, and add those of 5c.

    The rule of the generations is api-ref/reshaper.md#generations.
    """
    amounts, expected = dict.fromkeys(plan.incremented, 1), dict[int, int]()
    for provider in plan.reshaped:
        id_ = plan.providers[provider.uuid].id
        amounts[id_] = (2 if provider.inventories else 1) + (id_ in plan.incremented)
        expected[id_] = provider.generation
    generation.increment(batch, amounts, expected)
    batch.execute()
    locked = lock_inventories(batch.tx, plan.reshaped_ids.union(change.inventory[0] for change in plan.changes))
    present = {key: row for key, row in locked.items() if key[0] in plan.reshaped_ids}
    replacement = InventoryReplacement(present, plan.inventories)
    replacement.add_writes(batch)
    change_log.record_providers(batch.tx, plan.reshaped_ids)
    return replacement


def _insert_rows(batch: StatementBatch, plan: ClaimPlan, desired: Mapping[str, consumers.ConsumerAttributes]) -> None:
    """Add the insertion of the requested rows, each with a copy of the project, user and type of its consumer.

    :param desired: from ``consumers.ensure_owners_and_types``.
    """
    copies = {}
    for uuid, attributes in desired.items():
        type_id: int | Unset | None = attributes.consumer_type_id
        if isinstance(type_id, Unset):
            row = plan.current.consumers.get(uuid)
            type_id = row and row.consumer_type_id
        copies[uuid] = (attributes.project_id, attributes.user_id, type_id)
    rows = [(uuid, *inventory, amount, *copies[uuid]) for uuid, _, _, inventory, amount in plan.requested]
    columns = (
        'consumer_id, resource_provider_id, resource_class_id, used,'
        ' consumer_project_id, consumer_user_id, consumer_type_id'
    )
    batch.add_insert(tables.allocations, columns, rows)
