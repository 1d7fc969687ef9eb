"""The claim: writes allocations and moves ``inventories.used`` (api-ref/allocations.md#what-a-write-means).

The order of statements is the order of locks, the same in every transaction: custom resource classes (held, so that
nobody renames or deletes them), projects and users that are new, consumers, then providers, then inventories (by
provider, then class), then allocation rows. So writers to the same provider queue, and none waits in a circle.
Allocation rows come earlier where a consumer gives up everything: they are guarded by its record, and nobody else waits
for them.

Whether there is room is decided by the UPDATE that takes it: its WHERE clause is the rule and its row count the
verdict, on what is committed at that moment, at every isolation level. Only a refusal reads again, to say which rule
failed.
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
from placement.claims.request import ConsumerClaim, Wish
from placement.claims.usage_moves import InventoryKey
from placement.db import api as db_api
from placement.db import changes, generation, statements, tables
from placement.db.api import Database
from placement.db.together import Together


def replace_allocations(db: Database, claims: Sequence[ConsumerClaim]) -> None:
    """Let each consumer named in ``claims`` hold exactly what its claim says: all of it or, on any failure, nothing.

    :param claims: at most one for each consumer, in the order of the request.
    :raises ConsumerGenerationConflict: a consumer is not at the generation that its claim names.
    :raises AllocationProviderNotFound, ResourceClassNotFound: a claim names what does not exist.
    :raises InvalidAllocationInventory: a provider has no inventory of a class.
    :raises AllocationConstraintsViolated: an amount breaks min_unit, max_unit or step_size.
    :raises AllocationCapacityExceeded: there is no room.
    :raises ConcurrentUpdate: conflicts with other writers outlasted the retries.
    """
    with db.metrics.claim():
        db.write(lambda tx: replace(db, tx, claims))


def delete_allocations(db: Database, consumer_uuid: str) -> None:
    """Take everything from a consumer, unconditionally, and forget it.

    :param consumer_uuid: canonical.
    :raises AllocationsNotFound: it holds nothing.
    """
    db.write(lambda tx: _delete(tx, consumer_uuid))


def _delete(tx: sa.Connection, consumer_uuid: str) -> None:
    held = _take(tx, consumer_uuid)
    if not held.rows:
        raise exception.AllocationsNotFound(consumer=consumer_uuid)
    together = Together(tx)
    usage_moves.add(together, held.amounts(), {}, _start_over)
    changes.usage(tx, held.provider_ids())
    together.run_last()


def _give_up(tx: sa.Connection, claim: ConsumerClaim) -> None:
    held = _take(tx, claim.consumer_uuid)
    _check_generation(claim, held.generations().get(claim.consumer_uuid))
    together = Together(tx)
    generation.bump_all(together, held.provider_ids())
    usage_moves.add(together, held.amounts(), {}, _start_over)
    changes.usage(tx, held.provider_ids())
    together.run_last()


def _take(tx: sa.Connection, consumer_uuid: str) -> holding.Held:
    """Delete a consumer and its allocations, and return what they were."""
    if holding.can_take(tx):
        return holding.take(tx, consumer_uuid)
    held = holding.read(tx, [consumer_uuid])
    together = Together(tx)
    consumer_records.write(together, [consumer_records.Wanted(consumer_uuid, None)], held.consumers)
    _delete_rows(together, held)
    together.run()
    return held


def replace(db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> None:
    """As ``replace_allocations``, as the last part of a transaction of ``db`` that writes other things too.

    What came before must have taken its locks in the order that is told above, and no others, and not have ended the
    transaction (``Together.run_last``). A refusal gives the reason that there would be without what came before.
    """
    if len(claims) == 1 and not claims[0].allocations:
        _give_up(tx, claims[0])
        return
    held = _read(tx, claims)
    generations = held.generations()
    for claim in claims:
        _check_generation(claim, generations.get(claim.consumer_uuid))
    wishes = _resolve(db, tx, claims, held)
    owned = _owned(tx, claims, held)
    touched = _touched_providers(claims, wishes, held)

    def refuse() -> None:
        consumers = [claim.consumer_uuid for claim in claims]
        raise db_api.Undo(lambda after: refusal.explain(after, wishes, consumers, held))

    together = Together(tx)
    consumer_records.write(together, owned, held.consumers)
    generation.bump_all(together, touched)
    usage_moves.add(together, held.amounts(), _by_inventory(wishes), refuse)
    _delete_rows(together, held)
    _insert_rows(together, wishes)
    changes.usage(tx, touched | held.provider_ids())
    try:
        together.run_last()
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # A consumer or its rows appeared, or a provider vanished, since we looked; the next attempt sees it.
        _start_over(error)


def _start_over(error: Exception | None = None) -> NoReturn:
    raise db_api.TryAgain(exception.ConcurrentUpdate()) from error


# Look-ups ------------------------------------------------------------------------------------------------


def _read(tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> holding.Held:
    owned = [claim for claim in claims if claim.allocations]
    return holding.read(
        tx,
        [claim.consumer_uuid for claim in claims],
        list(dict.fromkeys(uuid for claim in claims for uuid in claim.allocations)),
        {claim.project_id for claim in owned},
        {claim.user_id for claim in owned},
    )


def _check_generation(claim: ConsumerClaim, present: int | None) -> None:
    """Compare what the caller believes of a consumer with what is so, None for no consumer."""
    if not isinstance(claim.generation, Absent) and claim.generation != present:
        expected = 'null' if present is None else present
        raise exception.ConsumerGenerationConflict(expected=expected, got=claim.generation)


def _resolve(db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim], held: holding.Held) -> list[Wish]:
    """The amounts that ``claims`` ask for, in the order of the request."""
    for claim in claims:
        for uuid in claim.allocations:
            if uuid not in held.providers:
                raise exception.AllocationProviderNotFound(uuid=uuid)
    class_names = list(
        dict.fromkeys(name for claim in claims for amounts in claim.allocations.values() for name in amounts)
    )
    class_ids = db.resource_classes.hold(tx, class_names)
    return [
        Wish(claim.consumer_uuid, uuid, name, (held.providers[uuid], class_ids[name]), amount)
        for claim in claims
        for uuid, amounts in claim.allocations.items()
        for name, amount in amounts.items()
    ]


def _by_inventory(wishes: Sequence[Wish]) -> dict[InventoryKey, list[int]]:
    amounts: dict[InventoryKey, list[int]] = {}
    for wish in wishes:
        amounts.setdefault(wish.key, []).append(wish.amount)
    return amounts


def _touched_providers(claims: Sequence[ConsumerClaim], wishes: Sequence[Wish], held: holding.Held) -> set[int]:
    """The providers whose generation the request moves (api-ref/allocations.md#generations-that-a-write-moves).

    Those that receive something, and those that a consumer gives up by an empty claim. One that merely loses what a
    consumer held is not among them.
    """
    cleared = {claim.consumer_uuid for claim in claims if not claim.allocations}
    return {wish.key[0] for wish in wishes} | {
        row.resource_provider_id for row in held.rows if row.consumer_uuid in cleared
    }


# Writes, in the order of the locks they take -------------------------------------------------------------


def _owned(tx: sa.Connection, claims: Sequence[ConsumerClaim], held: holding.Held) -> list[consumer_records.Wanted]:
    """Who is to own each consumer from now on; projects and users that are mentioned for the first time are created."""
    owned = [claim for claim in claims if claim.allocations]
    projects = owners.with_new(tx, tables.projects, {claim.project_id for claim in owned}, held.projects)
    users = owners.with_new(tx, tables.users, {claim.user_id for claim in owned}, held.users)
    return [
        consumer_records.Wanted(
            claim.consumer_uuid, (projects[claim.project_id], users[claim.user_id]) if claim.allocations else None
        )
        for claim in claims
    ]


def _delete_rows(together: Together, held: holding.Held) -> None:
    """Delete the rows that were read, by their ids: no other consumer's rows, nor the gaps between, get locked."""
    for batch in statements.batches([row.id for row in held.rows]):
        text = f'DELETE FROM placement_allocations WHERE id IN ({statements.marks(len(batch))})'  # noqa: S608
        together.add(text, *batch, judge=functools.partial(_expect, len(batch)))


def _expect(expected: int, count: int) -> None:
    if count != expected:
        _start_over()


def _insert_rows(together: Together, wishes: Sequence[Wish]) -> None:
    rows = [(wish.consumer_uuid, *wish.key, wish.amount) for wish in wishes]
    columns = 'consumer_id, resource_provider_id, resource_class_id, used'
    for text, values in statements.insertions(together.tx, 'placement_allocations', columns, rows):
        together.add(text, *values)
