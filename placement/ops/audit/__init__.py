"""The audit: checks that find rows that contradict one another, and the repairs of what they find.

The number of statements of a check does not depend on the number of rows. Each repair is its own transaction, which
runs the check of one subject again, under locks, and makes the changes that follow. So both are safe while the service
runs, and a repair changes what its finding announces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping

import sqlalchemy as sa
from oslo_config import cfg

from placement import exception
from placement.db.api import Database
from placement.ops.audit import contradictions, references
from placement.ops.audit.findings import Check, Finding, RowChange
from placement.ops.audit_kinds import KINDS

__all__ = ['KINDS', 'Finding', 'find', 'repair']


def _check_of_kind(kind: str, conf: cfg.ConfigOpts) -> Check:
    """Return the check of a kind of ``KINDS``."""
    checks: Mapping[str, Check] = {
        'outdated_class_sequence': references.outdated_class_sequence,
        'missing_reference': references.missing_reference,
        'invalid_tree': contradictions.invalid_tree,
        'orphaned_aggregate': contradictions.orphaned_aggregate,
        'allocation_without_consumer': functools.partial(contradictions.allocation_without_consumer, conf),
        'allocation_owner_mismatch': contradictions.allocation_owner_mismatch,
        'consumer_without_allocations': contradictions.consumer_without_allocations,
        'allocation_without_inventory': contradictions.allocation_without_inventory,
        'usage_mismatch': contradictions.usage_mismatch,
        'over_committed': contradictions.over_committed,
        'invalid_step_size': contradictions.invalid_step_size,
        'unit_violation': contradictions.unit_violation,
    }
    return checks[kind]


def find(db: Database, conf: cfg.ConfigOpts, kind: str) -> list[Finding]:
    """Run one check and return its findings.

    :param kind: a key of ``KINDS``.
    """
    with db.reader() as tx:
        return [dataclasses.replace(finding, kind=kind) for finding in _check_of_kind(kind, conf)(tx)]


def repair(db: Database, conf: cfg.ConfigOpts, finding: Finding) -> None:
    """Repair a finding if it has changes, and replace these and its detail by what the repair found and changed.

    Set ``repaired``, unless concurrent writes made all attempts fail. Data that have become consistent stay unchanged.
    """

    def repair_in(tx: sa.Connection) -> tuple[RowChange, ...]:
        changes: list[RowChange] = []
        for current in _check_of_kind(finding.kind, conf)(tx, finding.key):
            changes += [change for change in current.changes if change.apply(tx)]
            current.record(tx)
            finding.detail = current.detail
        return tuple(changes)

    if finding.changes:
        with contextlib.suppress(exception.ConcurrentProviderUpdate):
            finding.changes = db.write(repair_in)
            finding.repaired = True
