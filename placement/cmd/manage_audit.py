"""``placement-manage audit``: find inconsistent records in the database, and repair them."""

from __future__ import annotations

import argparse
import collections
import itertools
import time
from collections.abc import Iterable
from typing import Any, TypeVar

from oslo_config import cfg
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from placement.audit import checks
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database

CLEAN, FOUND, REPAIRED = 0, 3, 4

#: A progress bar appears after this delay.
_PROGRESS_DELAY_SECONDS = 2.0

T = TypeVar('T')

_DESCRIPTION = """\
Find records in the database that contradict each other: compare usages with allocations, allocations with inventories,
providers and consumers, roots with parents, allocations with the unit constraints. Safe while the service runs."""
_EPILOG = 'Exit code: 0 nothing has to be done, 3 problems found, 4 all problems repaired, 127 failed.'


def add_command(program: CommandParser) -> None:
    """Add ``audit`` to the parser of ``placement-manage``."""
    parser = program.add_command('audit', 'find inconsistent records in the database', _DESCRIPTION, _EPILOG, run=run)
    parser.add_argument('--repair', action='store_true', help='repair what does not require a decision')
    parser.add_argument('--dry-run', action='store_true', help='with --repair: only print what would be repaired')
    parser.add_format()


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Audit the database, print the findings, and return the exit code.

    :param args: has ``repair``, ``dry_run`` and ``format``.
    """
    # Each kind is repaired before the next one is checked, because repairs change what the usages should be.
    findings: list[tuple[str, checks.Finding]] = []
    repairs = args.repair and not args.dry_run
    for kind in _with_progress('Checking', list(checks.CHECKS)):
        found = checks.find(db, conf, kind)
        if repairs:
            for finding in _with_progress(f'Repairing {kind}', found):
                checks.repair(db, finding)
        findings += [(kind, finding) for finding in found]
    if args.format == 'json':
        output.print_json(_as_data(findings))
    else:
        _print_text(findings, args)
    problems = [finding for _kind, finding in findings if finding.needs_action]
    if not problems:
        return CLEAN
    return REPAIRED if all(finding.repaired for finding in problems) else FOUND


def _with_progress(title: str, items: list[T]) -> Iterable[T]:
    """Yield the items. After ``_PROGRESS_DELAY_SECONDS`` seconds a terminal shows a progress bar, on standard error."""
    started = time.monotonic()
    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task(title, total=len(items))
    try:
        for item in items:
            if not progress.live.is_started and time.monotonic() - started > _PROGRESS_DELAY_SECONDS:
                progress.start()
            yield item
            progress.advance(task)
    finally:
        progress.stop()


def _status(finding: checks.Finding, args: argparse.Namespace) -> str:
    """Return the status of the repair of a finding."""
    if finding.repaired:
        return 'repaired'
    if not finding.needs_action:
        return 'for information'
    if finding.repair is None:
        return 'requires a decision'
    if not args.repair:
        return 'to be repaired with --repair'
    return 'would be repaired' if args.dry_run else 'not repaired because of concurrent writes: run it again'


def _as_data(findings: list[tuple[str, checks.Finding]]) -> dict[str, Any]:
    return {
        'findings': [
            {
                'kind': kind,
                **finding.subject,
                'detail': finding.detail,
                'repairable': finding.repair is not None,
                'repaired': finding.repaired,
                'needs_action': finding.needs_action,
            }
            for kind, finding in findings
        ]
    }


def _print_text(findings: list[tuple[str, checks.Finding]], args: argparse.Namespace) -> None:
    if not findings:
        print('No problems found.')
        return
    console = output.console()
    for kind, group in itertools.groupby(findings, key=lambda one: one[0]):
        console.print(Text(kind, 'bold'))
        for _, finding in group:
            subject = ', '.join(f'{name} {value}' for name, value in finding.subject.items())
            console.print(Text(f'  {output.printable(subject, console)}'))
            console.print(Text(f'    {output.printable(finding.detail, console)} ({_status(finding, args)})'))
    counts = collections.Counter(_status(finding, args) for _, finding in findings)
    console.print(f'{len(findings)} found: ' + ', '.join(f'{count} {status}' for status, count in counts.items()))
