"""``placement-manage audit``: find inconsistent records in the database, and repair them."""

from __future__ import annotations

import argparse
import collections
import itertools
import operator
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from oslo_config import cfg
from rich.text import Text

from placement.cmd import output
from placement.db.api import Database
from placement.ops.audit import audit
from placement.ops.audit.check import Finding
from placement.ops.audit.kinds import KINDS, Outcome
from placement.ops.display_names import DisplayNames
from placement.units import plural

CLEAN, UNREPAIRED, REPAIRED = 0, 3, 4

#: The statuses that differ for several findings.
_PLURAL_STATUSES = {'requires a decision': 'require a decision'}


class AuditOptions(NamedTuple):
    """The options of the command; by default, it prints all findings and repairs nothing."""

    excluded: Collection[str] = ()
    repair: bool = False
    dry_run: bool = False
    format: str = 'text'


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Audit the database as the arguments say, print the findings, and return the exit code."""
    return run_audit(AuditOptions(args.excluded, args.repair, args.dry_run, args.format), conf, db)


def run_audit(options: AuditOptions, conf: cfg.ConfigOpts, db: Database) -> int:
    """Audit the database, print the findings, and return the exit code."""
    findings: list[Finding] = []
    try:
        findings.extend(_findings(options, conf, db))
    except BaseException:
        # Nothing else says what was repaired before the audit failed.
        if any(finding.outcome is Outcome.REPAIRED for finding in findings):
            _print_findings(findings, options, conf)
        raise
    _print_findings(findings, options, conf)
    problems = [finding for finding in findings if finding.needs_action]
    if not problems:
        return CLEAN
    return REPAIRED if all(finding.outcome is Outcome.REPAIRED for finding in problems) else UNREPAIRED


def _findings(options: AuditOptions, conf: cfg.ConfigOpts, db: Database) -> Iterator[Finding]:
    """Yield the findings; if they are to be repaired, each with its outcome."""
    # Each kind is repaired before the next kind is checked. For example, a repaired usage may exceed the capacity.
    for kind in (kind for kind in KINDS if kind not in options.excluded):
        with output.waiting(f'Checking {kind}'):
            findings = audit.find(db, conf, kind, options.excluded)
        if options.repair and not options.dry_run:
            for finding in output.with_progress(f'Repairing {kind}', findings):
                yield audit.repair(db, conf, finding)
        else:
            yield from findings


def _print_findings(findings: list[Finding], options: AuditOptions, conf: cfg.ConfigOpts) -> None:
    if options.format == 'json':
        output.print_json({'findings': list(map(_as_data, findings))})
    else:
        _print_text(findings, options, output.display_names(conf))


def _status(finding: Finding, options: AuditOptions) -> str:
    """Return the status of the repair of a finding."""
    if finding.outcome is not Outcome.UNCHANGED:
        is_excluded = finding.outcome is Outcome.REJECTED and options.excluded
        return f'{finding.outcome.value}{" without --except" if is_excluded else ""}'
    if not finding.needs_action:
        return 'for information'
    if not finding.changes:
        return 'requires a decision'
    return 'would be repaired' if options.repair else 'to be repaired with --repair'


def _as_data(finding: Finding) -> dict[str, Any]:
    return {
        'kind': finding.kind,
        **finding.subject,
        'detail': finding.detail,
        'repairable': bool(finding.changes),
        'repaired': finding.outcome is Outcome.REPAIRED,
        'needs_action': finding.needs_action,
        'changes': [change.as_data() for change in finding.changes],
    }


def _print_text(findings: list[Finding], options: AuditOptions, names: DisplayNames) -> None:
    if not findings:
        print('No problems found.')
        return
    console = output.console()
    for kind, group in itertools.groupby(findings, key=operator.attrgetter('kind')):
        console.print(Text(kind, 'bold'))
        for finding in group:
            shown = finding.changes if finding.outcome is Outcome.REPAIRED or options.dry_run else ()
            changes = (f'      {change}' for change in shown)
            subject, detail = finding.subject_text(names.label), f'{finding.detail} ({_status(finding, options)})'
            output.print_lines([f'  {subject}', f'    {detail}', *changes])
    counts = collections.Counter(_status(finding, options) for finding in findings)
    texts = [
        f'{count} {_PLURAL_STATUSES.get(status, status) if count > 1 else status}' for status, count in counts.items()
    ]
    console.print(f'{plural(len(findings), "finding")}: {", ".join(texts)}')
