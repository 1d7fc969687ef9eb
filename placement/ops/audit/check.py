"""What a check of the audit gets, its scope, and yields: findings, with the changes of rows that repair them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc

from placement.db import errors, tables
from placement.ops.audit.kinds import KINDS, Outcome


class Scope(NamedTuple):
    """What a check covers: the whole database, or one subject right before its repair."""

    tx: sa.Connection
    conf: cfg.ConfigOpts
    #: The kind of the findings, a key of ``KINDS``.
    kind: str
    #: The ``key`` of a finding: check only its subject, and lock it until the end of the transaction. None to check
    #: everything without locks. ``missing_reference`` has the name of a column and the id that is missing,
    #: ``allocation_without_consumer`` and ``allocation_owner_mismatch`` the uuid of a consumer, the others the id of a
    #: row.
    key: Any = None
    #: The kinds that this audit does not repair.
    excluded: Collection[str] = ()

    def assumes_repaired(self, kind: str) -> bool:
        """Return whether the check takes an earlier kind as repaired, so that an audit without repairs finds the same.

        Right before a repair it does not: then the rows show what was repaired, and what failed.
        """
        return self.key is None and kind not in self.excluded

    def lock_and_restrict(self, query: sa.Select[Any], column: sa.Column[Any]) -> sa.Select[Any]:
        """Lock the row that has the key in this column, and return the query of this row; without a key, the query."""
        if self.key is None:
            return query
        condition = column == self.key
        self.tx.execute(column.table.select().where(condition).with_for_update())
        return query.where(condition)

    def unused_rows(self, column: sa.Column[Any], reference: sa.Column[Any]) -> Iterable[sa.Row[Any]]:
        """Return the rows that nothing refers to, in the order of their ids; with a key, the row with this id.

        :param column: their column that others refer to.
        :param reference: the column that refers to it; its table has rows of providers.
        """
        table, is_used = column.table, sa.exists().where(reference == column)
        if self.assumes_repaired('missing_reference'):
            # It deletes the rows of providers that do not exist.
            is_used = is_used.where(reference.table.c.resource_provider_id == tables.resource_providers.c.id)
        query = sa.select(table).where(~is_used).order_by(table.c.id)
        # The lock prevents new references: a claim updates the row of the consumer before it inserts allocations, and a
        # request that puts a provider into an aggregate locks the row of the aggregate.
        return self.tx.execute(self.lock_and_restrict(query, table.c.id))


@dataclasses.dataclass(frozen=True)
class IdOf:
    """The id of a row that an earlier change of this or another finding may insert."""

    #: The unique column by which the row is found.
    column: sa.Column[str]
    #: Its value.
    text: str

    def __str__(self) -> str:
        return f'the id of {self.text}'

    def read(self, tx: sa.Connection) -> int | None:
        """Return the id; None if there is no such row yet."""
        return tx.scalar(sa.select(self.column.table.c.id).where(self.column == self.text))


@dataclasses.dataclass(frozen=True)
class RowChange:
    """The change of one row."""

    table: sa.Table
    #: The primary key by column name; empty for a new row that gets its id from the database.
    primary_key: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: The values before by column name: of the columns that change, or of all columns of a row to delete. None for a
    #: new row.
    old: Mapping[str, Any] | None = None
    #: The values after; None if the row is deleted.
    new: Mapping[str, Any] | None = None

    @classmethod
    def deletion(cls, table: sa.Table, row: Any) -> RowChange:
        """Return the change that deletes a row.

        ``apply`` does not compare its values before, as it does those of an update: whatever they are now, the row has
        to go. What must still be true is that nothing needs the row, which the check makes sure of right before.

        :param row: has the columns of the table.
        """
        times = ('created_at', 'updated_at')
        values = {column.name: getattr(row, column.name) for column in table.columns if column.name not in times}
        primary_key = {column.name: values.pop(column.name) for column in table.primary_key}
        return cls(table, primary_key, old=values)

    def __str__(self) -> str:
        id_ = ', '.join(f'{name} {value}' for name, value in self.primary_key.items())
        row = f'{self.table.name} {id_}'.strip()
        if self.old is None or self.new is None:
            values = ', '.join(f'{name} {value}' for name, value in (self.old or self.new or {}).items())
            return f'{row}: {"insert" if self.old is None else "delete"} {values}'
        changes = (f'{name} {old} becomes {self.new[name]}' for name, old in self.old.items())
        return f'{row}: {", ".join(changes)}'

    def as_data(self) -> dict[str, Any]:
        """Return the change for a JSON document."""
        new = self.new and {name: str(value) if isinstance(value, IdOf) else value for name, value in self.new.items()}
        return {'table': self.table.name, 'key': self.primary_key, 'old': self.old, 'new': new}

    def apply(self, tx: sa.Connection) -> RowChange | None:
        """Make the change. Return it with the ids that ``IdOf`` stands for; None if the row to delete is gone.

        :raises RetryTransaction: another transaction inserted the new row, or changed the row to change, meanwhile.
        """
        condition = [self.table.c[name] == value for name, value in self.primary_key.items()]
        if self.new is None:
            return self if tx.execute(self.table.delete().where(*condition)).rowcount else None
        values = {name: value.read(tx) if isinstance(value, IdOf) else value for name, value in self.new.items()}
        if self.old is not None:
            # The times of rows are those of the writes of clients.
            times = {name: self.table.c[name] for name in ('updated_at',) if name in self.table.c}
            condition += [self.table.c[name].is_not_distinct_from(value) for name, value in self.old.items()]
            if not tx.execute(self.table.update().where(*condition).values(times | values)).rowcount:
                raise errors.RetryTransaction
            return dataclasses.replace(self, new=values)
        try:
            tx.execute(self.table.insert().values({**self.primary_key, **values}))
        except db_exc.DBDuplicateEntry as error:
            raise errors.RetryTransaction from error
        return dataclasses.replace(self, new=values)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One inconsistency."""

    #: A key of ``KINDS``.
    kind: str
    #: Kinds of objects with the uuid or name of each. A provider has both; the name is None if another program wrote
    #: none.
    subject: Mapping[str, str | None]
    #: What is wrong.
    detail: str
    #: The changes that repair it, in their order; none if an operator has to decide. After the repair, those made.
    changes: tuple[RowChange, ...] = ()
    #: With this ``key`` the check finds only this inconsistency.
    key: Any = None
    #: Records the changes in the change log.
    record: Callable[[sa.Connection], None] = lambda _tx: None
    outcome: Outcome = Outcome.UNCHANGED

    def subject_text(self, label: Callable[[str], str] = str) -> str:
        """Return the subject in one line.

        :param label: writes a uuid or name.
        """
        return ', '.join(f'{noun} {label(value)}' for noun, value in self.subject.items() if value is not None)

    @property
    def needs_action(self) -> bool:
        """Whether a repair or an operator has to change something."""
        return not KINDS[self.kind].for_information and self.outcome is not Outcome.VANISHED
