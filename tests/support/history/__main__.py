"""Load any Placement service and check it: ``python -m tests.support.history http://127.0.0.1:8778``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence

from tests.support.history import fleet, report
from tests.support.history.client import Client, UnreachableError
from tests.support.history.workload import Load


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 without violations, 1 with violations, 2 when the service cannot be used."""
    parser = argparse.ArgumentParser(prog='python -m tests.support.history', description=__doc__)
    parser.add_argument('urls', nargs='+', metavar='URL', help='one or more addresses of the same service')
    parser.add_argument('--clients', type=int, default=8, help='concurrent callers (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=10.0, help='how long (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='seed of the random choices (default: %(default)s)')
    parser.add_argument('--token', default='admin', help='value of X-Auth-Token (default: %(default)s)')
    parser.add_argument('--database-url', help='also look at the tables there (SQLAlchemy URL)')
    parser.add_argument('--lenient-reads', action='store_true', help='allow reads to show an older state')
    arguments = parser.parse_args(argv)
    try:
        return _judge(arguments)
    except (fleet.FleetError, UnreachableError) as error:
        print(f'history: {str(error) or "no address takes connections: " + ", ".join(arguments.urls)}', file=sys.stderr)
        return 2


def _judge(arguments: argparse.Namespace) -> int:
    load = Load.start(arguments.urls, clients=arguments.clients, seed=arguments.seed, token=arguments.token)
    try:
        time.sleep(arguments.seconds)
    finally:
        history = load.finish()
    databases = [arguments.database_url] if arguments.database_url else []
    judged = report.of(history, unsent=load.unsent, strict_reads=not arguments.lenient_reads, databases=databases)
    print(judged.text())
    with contextlib.closing(Client(arguments.urls, token=arguments.token)) as client:
        fleet.remove(client, history.after)
    return 1 if judged.violations else 0


if __name__ == '__main__':
    sys.exit(main())
