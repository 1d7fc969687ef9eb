"""The claim: the one place that writes allocations and moves ``inventories.used`` (contract B 3).

The order of statements is the order of locks, the same in every transaction: custom resource classes (held, so that
nobody renames or deletes them), consumers, then providers, then inventories (by provider, then class), then allocation
rows. So writers to the same provider queue, and none waits in a circle.

Whether there is room is decided by the UPDATE that takes it: its WHERE clause is the rule and its row count the
verdict, on what is committed at that moment, at every isolation level. Only a refusal reads again, to say which rule
failed.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, statements, tables
from placement.objects import consumer, holding, refusal, room

_allocations, _consumers = tables.allocations, tables.consumers
_inventories, _providers = tables.inventories, tables.resource_providers

#: A provider's id and a class's id: what one inventory record is about.
Slot = tuple[int, int]

# The statements are built once: building them costs more than SQLite takes to run them.

_FIND_PROVIDERS = sa.select(_providers.c.uuid, _providers.c.id).where(
    _providers.c.uuid.in_(sa.bindparam('uuids', expanding=True))
)
_MOVE_CONSUMER = (
    _consumers.update()
    .where(_consumers.c.id == sa.bindparam('consumer'), _consumers.c.generation == sa.bindparam('seen'))
    .values(generation=_consumers.c.generation + 1, project_id=sa.bindparam('project'), user_id=sa.bindparam('user'))
)
_FORGET_CONSUMER = _consumers.delete().where(
    _consumers.c.id == sa.bindparam('consumer'), _consumers.c.generation == sa.bindparam('seen')
)
_BUMP_PROVIDER = (
    _providers.update()
    .where(_providers.c.id == sa.bindparam('provider'))
    .values(generation=_providers.c.generation + 1)
)
_DELETE_ROWS = _allocations.delete().where(_allocations.c.id.in_(sa.bindparam('ids', expanding=True)))


def _taking() -> sa.Update:
    """The claim itself: add ``delta`` to the usage of one inventory where the room rule (contract B 1.3) allows it.

    ``smallest`` and ``largest`` are those of the amounts, ``divisor`` is their greatest common divisor: every amount is
    a multiple of the step exactly when that is. A sum that does not grow is allowed on an over-committed inventory.
    """
    inv = _inventories.c
    delta = sa.bindparam('delta', type_=sa.BigInteger)
    return (
        _inventories.update()
        .where(inv.resource_provider_id == sa.bindparam('provider'), inv.resource_class_id == sa.bindparam('class'))
        .where(sa.or_(delta <= 0, inv.used + delta <= room.CAPACITY))
        .where(inv.min_unit <= sa.bindparam('smallest'), inv.max_unit >= sa.bindparam('largest'))
        .where(sa.bindparam('divisor', type_=sa.Integer) % inv.step_size == 0)
        # A claim is no modification of the inventory.
        .values(used=inv.used + delta, updated_at=inv.updated_at)
    )


_TAKE = _taking()


class Unchecked(enum.Enum):
    """The type of ``UNCHECKED``."""

    UNCHECKED = 'unchecked'


#: The generation of a consumer in a request that does not say (below microversion 1.28).
UNCHECKED = Unchecked.UNCHECKED


@dataclasses.dataclass(frozen=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on.

    ``consumer_uuid`` is canonical. ``allocations`` maps provider uuid to class name to amount (1 or more), in the order
    of the request; empty: the consumer gives up everything. ``generation`` is what the caller believes: None for "does
    not exist yet".
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    allocations: Mapping[str, Mapping[str, int]]
    generation: int | Unchecked | None = UNCHECKED


@dataclasses.dataclass(frozen=True)
class Wish:
    """One amount that a request asks for, with the names it used and the ids they stand for."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    slot: Slot
    amount: int


def replace_allocations(context: Any, claims: Sequence[ConsumerClaim]) -> None:
    """Let each consumer named in ``claims`` hold exactly what its claim says: all of it or, on any failure, nothing.

    :param claims: at most one for each consumer, in the order of the request.
    :raises ConsumerGenerationConflict: a consumer is not at the generation that its claim names.
    :raises AllocationProviderNotFound, ResourceClassNotFound: a claim names what does not exist.
    :raises InvalidAllocationInventory: a provider has no inventory of a class.
    :raises AllocationConstraintsViolated: an amount breaks min_unit, max_unit or step_size.
    :raises AllocationCapacityExceeded: there is no room.
    :raises ConcurrentUpdate: conflicts with other writers outlasted the retries.
    """
    with context.db.metrics.claim():
        context.db.write(lambda tx: _replace(context.db, tx, claims))


def delete_allocations(context: Any, consumer_uuid: str) -> None:
    """Take everything from a consumer, unconditionally, and forget it.

    :param consumer_uuid: canonical.
    :raises AllocationsNotFound: it holds nothing.
    """
    context.db.write(lambda tx: _delete(tx, consumer_uuid))


def _delete(tx: sa.Connection, consumer_uuid: str) -> None:
    held = holding.read(tx, [consumer_uuid])
    if not held.rows:
        raise exception.AllocationsNotFound(consumer=consumer_uuid)
    for present in held.consumers.values():
        _forget_consumer(tx, present)
    _move_usage(tx, held.amounts(), {})
    _delete_rows(tx, held)
    changes.usage(tx, held.provider_ids())


def _replace(db: Any, tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> None:
    held = holding.read(tx, [claim.consumer_uuid for claim in claims])
    generations = held.generations()
    for claim in claims:
        _check_generation(claim, generations.get(claim.consumer_uuid))
    wishes = _resolve(db, tx, claims)
    _write_consumers(tx, claims, held)
    touched = _touched_providers(claims, wishes, held)
    _bump_providers(tx, touched)
    refused = _move_usage(tx, held.amounts(), _by_slot(wishes))
    if refused is not None:
        raise refusal.explain(tx, wishes, held.amounts(), refused)
    _delete_rows(tx, held)
    _insert_rows(tx, wishes)
    changes.usage(tx, touched | held.provider_ids())


# Look-ups ------------------------------------------------------------------------------------------------


def _check_generation(claim: ConsumerClaim, present: int | None) -> None:
    """Compare what the caller believes of a consumer with what is so, None for no consumer (contract B 2.2)."""
    if not isinstance(claim.generation, Unchecked) and claim.generation != present:
        expected = 'null' if present is None else present
        raise exception.ConsumerGenerationConflict(expected=expected, got=claim.generation)


def _resolve(db: Any, tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> list[Wish]:
    """The amounts that ``claims`` ask for, in the order of the request."""
    provider_uuids = list(dict.fromkeys(uuid for claim in claims for uuid in claim.allocations))
    provider_ids = _provider_ids(tx, provider_uuids)
    class_names = list(
        dict.fromkeys(name for claim in claims for amounts in claim.allocations.values() for name in amounts)
    )
    class_ids = db.resource_classes.ids(tx, class_names, hold=True)
    for name in class_names:
        if name not in class_ids:
            raise exception.ResourceClassNotFound(resource_class=name)
    return [
        Wish(claim.consumer_uuid, uuid, name, (provider_ids[uuid], class_ids[name]), amount)
        for claim in claims
        for uuid, amounts in claim.allocations.items()
        for name, amount in amounts.items()
    ]


def _provider_ids(tx: sa.Connection, uuids: Sequence[str]) -> dict[str, int]:
    ids = {
        row.uuid: row.id for batch in statements.batches(uuids) for row in tx.execute(_FIND_PROVIDERS, {'uuids': batch})
    }
    for uuid in uuids:
        if uuid not in ids:
            raise exception.AllocationProviderNotFound(uuid=uuid)
    return ids


def _by_slot(wishes: Sequence[Wish]) -> dict[Slot, list[int]]:
    amounts: dict[Slot, list[int]] = {}
    for wish in wishes:
        amounts.setdefault(wish.slot, []).append(wish.amount)
    return amounts


def _touched_providers(claims: Sequence[ConsumerClaim], wishes: Sequence[Wish], held: holding.Held) -> set[int]:
    """The providers whose generation the request moves (contract B 3.4).

    Those that receive something, and those that a consumer gives up by an empty claim. One that merely loses what a
    consumer held is not among them.
    """
    cleared = {claim.consumer_uuid for claim in claims if not claim.allocations}
    return {wish.slot[0] for wish in wishes} | {
        row.resource_provider_id for row in held.rows if row.consumer_uuid in cleared
    }


# Writes, in the order of the locks they take -------------------------------------------------------------


def _write_consumers(tx: sa.Connection, claims: Sequence[ConsumerClaim], held: holding.Held) -> None:
    """Create, move or forget the consumers. A consumer exists as long as it holds something (contract B 1.4)."""
    owner_of = _owners(tx, [claim for claim in claims if claim.allocations])
    new = []
    for claim in sorted(claims, key=lambda claim: claim.consumer_uuid):
        present = held.consumers.get(claim.consumer_uuid)
        if present is None and claim.allocations:
            project_id, user_id = owner_of[claim.consumer_uuid]
            new.append({'uuid': claim.consumer_uuid, 'generation': 1, 'project_id': project_id, 'user_id': user_id})
        elif present is not None and claim.allocations:
            _move_consumer(tx, present, *owner_of[claim.consumer_uuid])
        elif present is not None:
            _forget_consumer(tx, present)
    if new:
        _insert_consumers(tx, new)


def _owners(tx: sa.Connection, claims: Sequence[ConsumerClaim]) -> dict[str, tuple[int, int]]:
    """The ids of project and user for each consumer that ``claims`` name."""
    if not claims:
        return {}
    projects, users = consumer.ensure_owners(
        tx, {claim.project_id for claim in claims}, {claim.user_id for claim in claims}
    )
    return {claim.consumer_uuid: (projects[claim.project_id].id, users[claim.user_id].id) for claim in claims}


def _move_consumer(tx: sa.Connection, present: consumer.Consumer, project_id: int, user_id: int) -> None:
    """Compare-and-swap the generation under which the consumer's holdings were read."""
    moved = tx.execute(
        _MOVE_CONSUMER,
        {'consumer': present.id, 'seen': present.generation, 'project': project_id, 'user': user_id},
    )
    if moved.rowcount != 1:
        raise db_api.TryAgain(exception.ConcurrentUpdate())


def _forget_consumer(tx: sa.Connection, present: consumer.Consumer) -> None:
    """Delete a consumer unless it changed since its holdings were read."""
    gone = tx.execute(_FORGET_CONSUMER, {'consumer': present.id, 'seen': present.generation})
    if gone.rowcount != 1:
        raise db_api.TryAgain(exception.ConcurrentUpdate())


def _insert_consumers(tx: sa.Connection, rows: list[dict[str, Any]]) -> None:
    try:
        tx.execute(_consumers.insert(), rows)
    except (db_exc.DBDuplicateEntry, db_exc.DBReferenceError) as error:
        # Somebody else created it since we looked; the next attempt judges the claim against that.
        raise db_api.TryAgain(exception.ConcurrentUpdate()) from error


def _bump_providers(tx: sa.Connection, provider_ids: set[int]) -> None:
    """Move the generations. Added to whatever they are now: two claims that both fit need not refuse each other."""
    if provider_ids:
        tx.execute(_BUMP_PROVIDER, [{'provider': id_} for id_ in sorted(provider_ids)])


def _move_usage(
    tx: sa.Connection, old: Mapping[Slot, int], new: Mapping[Slot, Sequence[int]]
) -> dict[Slot, int] | None:
    """Change ``inventories.used`` from what the consumers held (``old``) to what they are to hold (``new``).

    :returns: None when everything fits; otherwise what was already added to which slot when one did not.
    """
    applied: dict[Slot, int] = {}
    for slot in sorted(old.keys() | new.keys()):
        amounts = new.get(slot, ())
        delta = sum(amounts) - old.get(slot, 0)
        if not _move_one(tx, slot, delta, amounts):
            return applied
        applied[slot] = delta
    return None


def _move_one(tx: sa.Connection, slot: Slot, delta: int, amounts: Sequence[int]) -> bool:
    """Add ``delta`` to one inventory's usage if the rules allow ``amounts`` and the sum. False when they do not.

    A sum that does not grow is allowed on an over-committed inventory; what is only taken away is not checked at all,
    not even for being there (contract B 3.3).
    """
    if not amounts and delta == 0:
        return True
    if any(amount > tables.LARGEST_INTEGER for amount in amounts):
        return False
    moved = tx.execute(
        _TAKE,
        {
            'provider': slot[0],
            'class': slot[1],
            'delta': delta,
            # Where nothing is asked for, values that break no unit rule.
            'smallest': min(amounts, default=tables.LARGEST_INTEGER),
            'largest': max(amounts, default=0),
            'divisor': math.gcd(*amounts),
        },
    )
    return moved.rowcount == 1 or not amounts


def _delete_rows(tx: sa.Connection, held: holding.Held) -> None:
    """Delete the rows that were read, by their ids: no other consumer's rows, nor the gaps between, get locked."""
    for batch in statements.batches([row.id for row in held.rows]):
        gone = tx.execute(_DELETE_ROWS, {'ids': batch})
        if gone.rowcount != len(batch):
            raise db_api.TryAgain(exception.ConcurrentUpdate())


def _insert_rows(tx: sa.Connection, wishes: Sequence[Wish]) -> None:
    if not wishes:
        return
    rows = [
        {
            'consumer_id': wish.consumer_uuid,
            'resource_provider_id': wish.slot[0],
            'resource_class_id': wish.slot[1],
            'used': wish.amount,
        }
        for wish in wishes
    ]
    try:
        tx.execute(_allocations.insert(), rows)
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # A provider vanished, or rows without a consumer appeared; the next attempt sees it.
        raise db_api.TryAgain(exception.ConcurrentUpdate()) from error
