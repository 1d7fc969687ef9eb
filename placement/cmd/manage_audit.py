"""``placement-manage audit``: find inconsistent records in the database, and repair them."""

from __future__ import annotations

import argparse
import collections
import itertools
import operator
from typing import Any

from oslo_config import cfg
from rich.text import Text

from placement.cmd import output
from placement.db.api import Database
from placement.ops import audit
from placement.ops.display_names import DisplayNames
from placement.units import plural

CLEAN, FOUND, REPAIRED = 0, 3, 4


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Audit the database, print the findings, and return the exit code.

    :param args: has ``excluded``, ``repair``, ``dry_run`` and ``format``.
    """
    # Each kind is repaired before the next kind is checked. For example, a repaired usage may exceed the capacity.
    findings: list[audit.Finding] = []
    repairs = args.repair and not args.dry_run
    for kind in output.with_progress('Checking', [kind for kind in audit.CHECKS if kind not in args.excluded]):
        findings_of_kind = audit.find(db, conf, kind)
        if repairs:
            for finding in output.with_progress(f'Repairing {kind}', findings_of_kind):
                audit.repair(db, conf, finding)
        findings += findings_of_kind
    if args.format == 'json':
        output.print_json(_as_data(findings))
    else:
        _print_text(findings, args, output.display_names(conf))
    problems = [finding for finding in findings if finding.needs_action]
    if not problems:
        return CLEAN
    return REPAIRED if all(finding.repaired for finding in problems) else FOUND


def _status(finding: audit.Finding, args: argparse.Namespace) -> str:
    """Return the status of the repair of a finding."""
    if finding.repaired:
        return 'repaired'
    if not finding.needs_action:
        return 'for information'
    if not finding.changes:
        return 'requires a decision'
    if not args.repair:
        return 'to be repaired with --repair'
    return 'would be repaired' if args.dry_run else 'not repaired because of concurrent writes: run it again'


def _as_data(findings: list[audit.Finding]) -> dict[str, Any]:
    return {
        'findings': [
            {
                'kind': finding.kind,
                **finding.subject,
                'detail': finding.detail,
                'repairable': bool(finding.changes) or finding.repaired,
                'repaired': finding.repaired,
                'needs_action': finding.needs_action,
                'changes': [change.as_data() for change in finding.changes],
            }
            for finding in findings
        ]
    }


def _print_text(findings: list[audit.Finding], args: argparse.Namespace, names: DisplayNames) -> None:
    if not findings:
        print('No problems found.')
        return
    console = output.console()
    for kind, group in itertools.groupby(findings, key=operator.attrgetter('kind')):
        console.print(Text(kind, 'bold'))
        for finding in group:
            subject = ', '.join(f'{noun} {names.label(value)}' for noun, value in finding.subject.items())
            console.print(Text(f'  {output.printable(subject, console)}'))
            console.print(Text(f'    {output.printable(finding.detail, console)} ({_status(finding, args)})'))
            for change in finding.changes if finding.repaired or args.dry_run else ():
                console.print(Text(f'      {output.printable(str(change), console)}'))
    counts = collections.Counter(_status(finding, args) for finding in findings)
    texts = [
        f'{count} {status.replace("requires", "require") if count > 1 else status}' for status, count in counts.items()
    ]
    console.print(f'{plural(len(findings), "finding")}: {", ".join(texts)}')
