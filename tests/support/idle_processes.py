"""Processes over a virtual clock: they write, sleep, are killed and cloned, and their database is restored.

Time passes for the database by moving the times in the slots of the change log, and for a process by its own clock.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import random
import uuid
from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.cache import refresh
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.capacity import InventoryRecord
from placement.db import tables
from placement.db.api import Database
from placement.objects.resource_provider import ResourceProvider
from tests.support import applications, corruption, logs
from tests.support.cache_equality import assert_same
from tests.support.objects import claim, create_provider, set_inventories, set_traits

HOUR = 3600.0


class Process:
    """One process: its database and its provider cache, with a clock of its own."""

    def __init__(self, url: sa.URL) -> None:
        self.db = logs.opened(url)
        self.now = 0.0
        self.provider_cache = ProviderCache(self.db, clock=lambda: self.now)
        #: Whether the database was restored since the last search.
        self.restored = False

    def write(self, choose: random.Random) -> None:
        """Make one change of a random kind. It may be rejected, for example because the provider has allocations."""
        context = applications.administrator(self.db)
        rows = self.db.fetch_all(sa.select(tables.resource_providers.c.uuid).order_by(tables.resource_providers.c.id))
        uuids = [row.uuid for row in rows]
        kind = choose.choice(['create', 'claim', 'claim', 'claim', 'rename', 'traits', 'shrink', 'destroy'])
        if kind == 'create' or not uuids:
            create_provider(context, VCPU=100)
            return
        with contextlib.suppress(exception.PlacementError):
            provider = ResourceProvider.get_by_uuid(context, choose.choice(uuids))
            if kind == 'claim':
                claim(context, {provider.uuid: {'VCPU': 1}})
            elif kind == 'rename':
                ResourceProvider.rename(context, provider.uuid, str(uuid.uuid4()))
            elif kind == 'traits':
                set_traits(provider, choose.choice([[], ['HW_CPU_X86_AVX2']]))
            elif kind == 'shrink':
                set_inventories(provider, ('VCPU', InventoryRecord(choose.randint(50, 99))))
            else:
                ResourceProvider.destroy(context, provider.uuid)

    def search(self) -> Snapshot:
        """Return what a search sees. After a restore this process may first wait for a node that seems to lag."""
        state = self.provider_cache.up_to_date()
        if self.restored:
            self.now += refresh.STALE_READ_GRACE_SECONDS
            state = self.provider_cache.up_to_date()
            self.restored = False
        return state

    def check(self) -> None:
        """Fail unless a search sees the tables."""
        assert_same(self.search(), ProviderCache(self.db).up_to_date())

    def stop(self) -> None:
        """End gracefully."""
        self.db.dispose()

    def kill(self) -> None:
        """End without freeing anything."""
        self.db.slots.forget()
        self.db.dispose()

    def clone(self, url: sa.URL) -> Process:
        """Return a copy that believes to own the same slots, like a copy of the machine."""
        clone = Process(url)
        clone.now = self.now
        clone.db.slots.owner, clone.db.slots._idle = self.db.slots.owner, copy.deepcopy(self.db.slots._idle)
        return clone


def pass_time(db: Database, seconds: float) -> None:
    """Let time pass for the database; a negative time is a clock that jumps back."""
    slots = tables.change_log_slots
    with db.engine.begin() as tx:
        for row in tx.execute(sa.select(slots.c.id, slots.c.updated_at)).all():
            moved = row.updated_at - dt.timedelta(seconds=seconds)
            tx.execute(slots.update().where(slots.c.id == row.id).values(updated_at=moved))


Dump = dict[str, list[dict[str, Any]]]


def dump(db: Database) -> Dump:
    """Read all rows in one snapshot, as a backup does."""
    with db.reader() as tx:
        return {
            table.name: [dict(row) for row in tx.execute(sa.select(table)).mappings()]
            for table in tables.metadata.sorted_tables
        }


def restore(db: Database, rows: Dump) -> None:
    """Replace all rows by those of a dump; ids are given again that were given since then."""
    with corruption.unguarded(db.engine.url) as tx:
        for table in tables.metadata.sorted_tables:
            tx.execute(table.delete())
            if rows[table.name]:
                tx.execute(table.insert(), rows[table.name])
        for table in tables.metadata.sorted_tables:
            if isinstance(table.c[0].type, sa.Integer) and table.c[0].name == 'id' and table.c.id.autoincrement:
                _count_from(tx, table.name, max((row['id'] for row in rows[table.name]), default=0) + 1)


def _count_from(tx: sa.Connection, table: str, number: int) -> None:
    if tx.dialect.name == 'postgresql':
        sequence = tx.scalar(sa.select(sa.func.pg_get_serial_sequence(table, 'id')))
        if sequence is not None:
            tx.execute(sa.select(sa.func.setval(sequence, number, False)))
    elif tx.dialect.name == 'sqlite':
        tx.exec_driver_sql(f"UPDATE sqlite_sequence SET seq = {number - 1} WHERE name = '{table}'")
