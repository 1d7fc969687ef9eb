"""``placement-manage audit``: find what is wrong in the database, and put it right."""

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
from placement.db.api import Database

CLEAN, FOUND, REPAIRED = 0, 3, 4

#: Seconds after which a progress bar appears.
_PATIENCE = 2.0

T = TypeVar('T')

_DESCRIPTION = """\
Compare what the database records with what follows from it: usages with allocations, allocations with inventories,
providers and consumers, roots with parents, allocations with the unit rules. Safe while the service runs."""
_EPILOG = 'Exit code: 0 nothing wrong, 3 something is wrong, 4 everything that was wrong is repaired, 127 failed.'


def add_parser(commands: Any) -> None:
    """Add ``audit`` to the parser of ``placement-manage``."""
    parser = commands.add_parser(
        'audit', help='find what is wrong in the database', description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument('--repair', action='store_true', help='put right what needs no decision of a person')
    parser.add_argument('--dry-run', action='store_true', help='with --repair: only say what would be put right')
    parser.add_argument('--format', choices=('text', 'json'), default='text', help='how to print the findings')
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Make the audit that ``args`` (repair, dry_run, format) ask for, print it, and return the exit code."""
    # Usages are looked at after what was before them is repaired, as that changes what they should be.
    findings: list[tuple[str, checks.Finding]] = []
    repairs = args.repair and not args.dry_run
    for kind in _with_progress('Looking', list(checks.CHECKS)):
        found = checks.find(db, conf, kind)
        if repairs:
            for finding in _with_progress(f'Repairing {kind}', found):
                checks.repair(db, finding)
        findings += [(kind, finding) for finding in found]
    if args.format == 'json':
        output.print_json(_as_data(findings))
    else:
        _print_text(findings, args)
    if not findings:
        return CLEAN
    return REPAIRED if all(finding.repaired for _kind, finding in findings) else FOUND


def _with_progress(what: str, things: list[T]) -> Iterable[T]:
    """The same things, with a progress bar on standard error once they have taken a while."""
    started = time.monotonic()
    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task(what, total=len(things))
    try:
        for thing in things:
            if not progress.live.is_started and time.monotonic() - started > _PATIENCE:
                progress.start()
            yield thing
            progress.advance(task)
    finally:
        progress.stop()


def _verdict(finding: checks.Finding, args: argparse.Namespace) -> str:
    if finding.repaired:
        return 'repaired'
    if finding.repair is None:
        return 'to be decided by a person'
    if not args.repair:
        return 'to be repaired with --repair'
    return 'would be repaired' if args.dry_run else 'not repaired, as others kept writing: run it again'


def _as_data(findings: list[tuple[str, checks.Finding]]) -> dict[str, Any]:
    return {
        'findings': [
            {
                'kind': kind,
                **finding.subject,
                'detail': finding.detail,
                'repairable': finding.repair is not None,
                'repaired': finding.repaired,
            }
            for kind, finding in findings
        ]
    }


def _print_text(findings: list[tuple[str, checks.Finding]], args: argparse.Namespace) -> None:
    if not findings:
        print('Nothing is wrong.')
        return
    console = output.console()
    for kind, group in itertools.groupby(findings, key=lambda one: one[0]):
        console.print(Text(kind, 'bold'))
        for _, finding in group:
            subject = ', '.join(f'{name} {value}' for name, value in finding.subject.items())
            console.print(Text(f'  {output.printable(subject, console)}'))
            console.print(Text(f'    {output.printable(finding.detail, console)} ({_verdict(finding, args)})'))
    counted = collections.Counter(_verdict(finding, args) for _, finding in findings)
    console.print(f'{len(findings)} found: ' + ', '.join(f'{number} {verdict}' for verdict, number in counted.items()))
