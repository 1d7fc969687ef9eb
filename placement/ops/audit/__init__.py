"""The audit: checks that find rows that contradict one another or are invalid, and the repairs of what they find.

The number of statements of a check does not depend on the number of rows. Each repair is its own transaction, which
runs the check of one subject again, under locks, and makes the changes that follow. So both are safe while the service
runs, and a repair changes what its finding announces.

The command line imports this package for the kinds in its help, so checks, and the database, are imported only when
they run.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from placement import exception
from placement.ops.audit.kinds import KINDS, Outcome

if TYPE_CHECKING:
    import sqlalchemy as sa
    from oslo_config import cfg

    from placement.db.api import Database
    from placement.ops.audit.findings import Finding


class Scope(NamedTuple):
    """What a check covers: the whole database, or one subject right before its repair."""

    tx: sa.Connection
    conf: cfg.ConfigOpts
    #: The ``key`` of a finding: check only its subject, and lock it until the end of the transaction. None to check
    #: everything without locks. Each check chooses its key: the id of a row, the uuid of a consumer, or, for
    #: ``missing_reference``, the name of a column and the id that is missing.
    key: Any = None
    #: The kinds that this audit does not repair.
    excluded: Collection[str] = ()

    def assumes_repaired(self, kind: str) -> bool:
        """Return whether the check takes an earlier kind as repaired, so that an audit without repairs finds the same.

        Right before a repair it does not: then the rows show what was repaired, and what failed.
        """
        return self.key is None and kind not in self.excluded

    def restrict(self, query: sa.Select[Any], column: sa.Column[Any]) -> sa.Select[Any]:
        """Return the query of the row that has the key in this column, and lock this row; without a key, the query."""
        if self.key is None:
            return query
        condition = column == self.key
        self.tx.execute(column.table.select().where(condition).with_for_update())
        return query.where(condition)


class _RejectedRepair(Exception):
    """A repair refers to a missing row."""


def _check_of_kind(kind: str) -> Callable[[Scope], Iterator[Finding]]:
    """Return the check of a kind of ``KINDS``."""
    check: Callable[[Scope], Iterator[Finding]] = pkgutil.resolve_name(f'{__name__}.{KINDS[kind].module}:{kind}')
    return check


def find(db: Database, conf: cfg.ConfigOpts, kind: str, excluded: Collection[str] = ()) -> list[Finding]:
    """Run one check and return its findings.

    :param kind: a key of ``KINDS``.
    :param excluded: the kinds that this audit does not repair.
    """
    check = _check_of_kind(kind)
    with db.reader() as tx:
        return [dataclasses.replace(finding, kind=kind) for finding in check(Scope(tx, conf, excluded=excluded))]


def repair(db: Database, conf: cfg.ConfigOpts, finding: Finding) -> Finding:
    """Repair a finding if it has changes. Return it with its outcome, and what the repair found and changed.

    Data that have become consistent stay unchanged.
    """
    from oslo_db import exception as db_exc

    def repair_in(tx: sa.Connection) -> Finding:
        current = next(_check_of_kind(finding.kind)(Scope(tx, conf, finding.key)), None)
        if current is None:
            return dataclasses.replace(finding, changes=(), outcome=Outcome.VANISHED)
        try:
            changes = tuple(change for announced in current.changes if (change := announced.apply(tx)))
        except db_exc.DBReferenceError as error:
            # In a request this is a conflict with a deletion. Here, trying again does not bring the row back.
            raise _RejectedRepair from error
        current.record(tx)
        outcome = Outcome.REPAIRED if changes else Outcome.VANISHED if current.changes else Outcome.UNCHANGED
        return dataclasses.replace(finding, detail=current.detail, changes=changes, outcome=outcome)

    if not finding.changes:
        return finding
    try:
        return db.write(repair_in)
    except _RejectedRepair:
        return dataclasses.replace(finding, outcome=Outcome.REJECTED)
    except exception.ConcurrentProviderUpdate:
        return dataclasses.replace(finding, outcome=Outcome.FAILED)
