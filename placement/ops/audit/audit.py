"""Runs the checks of an audit, and repairs what they find.

The number of statements of a check does not depend on the number of rows. Each repair is its own transaction, which
runs the check of one subject again, under locks, and makes the changes that follow. So both are safe while the service
runs, and a repair changes what its finding announces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping

from oslo_config import cfg
from oslo_db import exception as db_exc

from placement import exception
from placement.db.api import Database
from placement.ops.audit import consumer_checks, inventory_checks, provider_checks, reference_checks
from placement.ops.audit.check import Finding, Scope
from placement.ops.audit.kinds import Outcome

#: The check of each kind of ``KINDS``.
CHECKS: Mapping[str, Callable[[Scope], Iterator[Finding]]] = {
    'outdated_class_sequence': reference_checks.outdated_class_sequence,
    'missing_reference': reference_checks.missing_reference,
    'invalid_tree': provider_checks.invalid_tree,
    'orphaned_aggregate': provider_checks.orphaned_aggregate,
    'allocation_without_consumer': consumer_checks.allocation_without_consumer,
    'allocation_owner_mismatch': consumer_checks.allocation_owner_mismatch,
    'consumer_without_allocations': consumer_checks.consumer_without_allocations,
    'allocation_without_inventory': inventory_checks.allocation_without_inventory,
    'usage_mismatch': inventory_checks.usage_mismatch,
    'over_committed': inventory_checks.over_committed,
    'invalid_inventory': inventory_checks.invalid_inventory,
    'unit_violation': inventory_checks.unit_violation,
}


class MissingRow(Exception):
    """A repair refers to a row that does not exist. Unlike the error of the database, it is not retried."""


def find(db: Database, conf: cfg.ConfigOpts, kind: str, excluded: Collection[str] = ()) -> list[Finding]:
    """Run one check and return its findings.

    :param kind: a key of ``KINDS``.
    :param excluded: the kinds that this audit does not repair.
    """
    with db.reader() as tx:
        return list(CHECKS[kind](Scope(tx, conf, kind, excluded=excluded)))


def repair(db: Database, conf: cfg.ConfigOpts, finding: Finding) -> Finding:
    """Repair a finding if it has changes. Return it with its outcome, and what the repair found and changed.

    Data that have become consistent stay unchanged.
    """
    if not finding.changes:
        return finding
    try:
        return db.write(lambda tx: _repair(Scope(tx, conf, finding.kind, finding.key), finding))
    except MissingRow:
        return dataclasses.replace(finding, outcome=Outcome.REJECTED)
    except exception.ConcurrentProviderUpdate:
        return dataclasses.replace(finding, outcome=Outcome.FAILED)


def _repair(scope: Scope, finding: Finding) -> Finding:
    """Check the subject of the finding again, under locks, and make the changes that follow."""
    current = next(CHECKS[scope.kind](scope), None)
    if current is None:
        return dataclasses.replace(finding, changes=(), outcome=Outcome.VANISHED)
    try:
        changes = tuple(change for announced in current.changes if (change := announced.apply(scope.tx)))
    except db_exc.DBReferenceError as error:
        # In a request this is a conflict with a deletion. Here, trying again does not bring the row back.
        raise MissingRow from error
    current.record(scope.tx)
    outcome = Outcome.REPAIRED
    if not changes:
        # Another transaction deleted the rows, or an operator has to decide now.
        outcome = Outcome.VANISHED if current.changes else Outcome.UNCHANGED
    return dataclasses.replace(finding, detail=current.detail, changes=changes, outcome=outcome)
