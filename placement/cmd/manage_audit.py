"""``placement-manage audit``: find inconsistent records in the database, and repair them."""

from __future__ import annotations

import argparse
import collections
import itertools
import operator
from collections.abc import Iterator
from typing import Any

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
#: The arguments of an audit that only prints all findings.
WITHOUT_REPAIR = argparse.Namespace(excluded=(), repair=False, dry_run=False, format='text')


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Audit the database as the arguments say, print the findings, and return the exit code."""
    findings: list[Finding] = []
    try:
        findings.extend(_findings(args, conf, db))
    except BaseException:
        # Nothing else says what was repaired before the audit failed.
        if any(finding.outcome is Outcome.REPAIRED for finding in findings):
            _print_findings(findings, args, conf)
        raise
    _print_findings(findings, args, conf)
    problems = [finding for finding in findings if finding.needs_action]
    if not problems:
        return CLEAN
    return REPAIRED if all(finding.outcome is Outcome.REPAIRED for finding in problems) else UNREPAIRED


def _findings(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> Iterator[Finding]:
    """Yield the findings; if they are to be repaired, each with its outcome."""
    # Each kind is repaired before the next kind is checked. For example, a repaired usage may exceed the capacity.
    for kind in (kind for kind in KINDS if kind not in args.excluded):
        with output.waiting(f'Checking {kind}'):
            findings = audit.find(db, conf, kind, args.excluded)
        if args.repair and not args.dry_run:
            for finding in output.with_progress(f'Repairing {kind}', findings):
                yield audit.repair(db, conf, finding)
        else:
            yield from findings


def _print_findings(findings: list[Finding], args: argparse.Namespace, conf: cfg.ConfigOpts) -> None:
    if args.format == 'json':
        output.print_json(_as_data(findings))
    else:
        _print_text(findings, args, output.display_names(conf))


def _status(finding: Finding, args: argparse.Namespace) -> str:
    """Return the status of the repair of a finding."""
    if finding.outcome is not Outcome.UNCHANGED:
        is_excluded = finding.outcome is Outcome.REJECTED and args.excluded
        return f'{finding.outcome.value}{" without --except" if is_excluded else ""}'
    if not finding.needs_action:
        return 'for information'
    if not finding.changes:
        return 'requires a decision'
    return 'would be repaired' if args.repair else 'to be repaired with --repair'


def _as_data(findings: list[Finding]) -> dict[str, Any]:
    return {
        'findings': [
            {
                'kind': finding.kind,
                **finding.subject,
                'detail': finding.detail,
                'repairable': bool(finding.changes),
                'repaired': finding.outcome is Outcome.REPAIRED,
                'needs_action': finding.needs_action,
                'changes': [change.as_data() for change in finding.changes],
            }
            for finding in findings
        ]
    }


def _print_text(findings: list[Finding], args: argparse.Namespace, names: DisplayNames) -> None:
    if not findings:
        print('No problems found.')
        return
    console = output.console()
    for kind, group in itertools.groupby(findings, key=operator.attrgetter('kind')):
        console.print(Text(kind, 'bold'))
        for finding in group:
            shown = finding.changes if finding.outcome is Outcome.REPAIRED or args.dry_run else ()
            changes = (f'      {change}' for change in shown)
            subject, detail = finding.subject_text(names.label), f'{finding.detail} ({_status(finding, args)})'
            output.print_lines([f'  {subject}', f'    {detail}', *changes])
    counts = collections.Counter(_status(finding, args) for finding in findings)
    texts = [
        f'{count} {_PLURAL_STATUSES.get(status, status) if count > 1 else status}' for status, count in counts.items()
    ]
    console.print(f'{plural(len(findings), "finding")}: {", ".join(texts)}')
